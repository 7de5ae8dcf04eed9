// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/text_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/worker/text/text_files.h"

namespace continuo::text {
namespace {

ContinuoSlice SliceOf(std::string_view s) { return {.data = s.data(), .size = s.size()}; }

std::string_view ViewOf(ContinuoSlice s) { return {s.data, s.size}; }

// The string of a call that succeeded, which is freed; empty if it failed.
std::string TakeString(int code, ContinuoString string) {
  if (code != CONTINUO_TEXT_OK) return "";
  std::string result(string.data, string.size);
  continuo_string_free(string);
  return result;
}

// The error of the last call on this thread.
absl::Status LastError() {
  return absl::Status(static_cast<absl::StatusCode>(continuo_text_error_code()),
                      std::string(ViewOf(continuo_text_error())));
}

absl::Status CheckUtf8(std::string_view text, const std::string& field, size_t index) {
  if (IsUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("messages[", index, "].", field, " is not UTF-8"));
}

// Members in the order of OpenAI's messages, which templates that print whole messages show.
absl::StatusOr<nlohmann::ordered_json> ToJson(const ChatMessage& message, size_t index) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  RETURN_IF_ERROR(CheckUtf8(message.role, "role", index));
  RETURN_IF_ERROR(CheckUtf8(message.content, "content", index));
  json["role"] = message.role;
  json["content"] = message.content;
  struct Optional {
    std::string field, name;
    const std::string& value;
  };
  // Templates read the reasoning under either of two names.
  const Optional optionals[] = {{"reasoning", "reasoning_content", message.reasoning},
                                {"reasoning", "reasoning", message.reasoning},
                                {"tool_call_id", "tool_call_id", message.tool_call_id},
                                {"name", "name", message.name}};
  for (const Optional& optional : optionals) {
    if (optional.value.empty()) continue;
    RETURN_IF_ERROR(CheckUtf8(optional.value, optional.field, index));
    json[optional.name] = optional.value;
  }
  return json;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextModel>> TextModel::Open(const std::string& model_dir) {
  RETURN_IF_ERROR(CheckTextFiles(model_dir));
  ContinuoText* text = continuo_text_open(SliceOf(model_dir));
  if (text == nullptr) return LastError();
  return std::unique_ptr<TextModel>(new TextModel(text));
}

TextModel::TextModel(ContinuoText* text)
    : text_(text),
      tokenizer_digest_(ViewOf(continuo_text_tokenizer_digest(text))),
      template_digest_(ViewOf(continuo_text_template_digest(text))) {
  continuo_text_token_table(text, &table_);
  for (int32_t id = 0; id < vocab_size(); ++id) {
    max_token_bytes_ = std::max(max_token_bytes_, TokenBytesKeepSpecial(id).size());
  }
}

TextModel::~TextModel() { continuo_text_free(text_); }

int32_t TextModel::vocab_size() const { return static_cast<int32_t>(table_.num_tokens); }

bool TextModel::has_chat_template() const { return table_.has_chat_template != 0; }

std::string TextModel::TokenName(int32_t id) const {
  ContinuoString name = {};
  const int code = continuo_text_token_name(text_, id, &name);
  return TakeString(code, name);
}

std::string TextModel::TokenizerInfo(int32_t end_id) const {
  ContinuoString info = {};
  const int code = continuo_text_tokenizer_info(text_, end_id, &info);
  return TakeString(code, info);
}

std::vector<int32_t> TextModel::EndIds(std::span<const int32_t> known) const {
  ContinuoIds ids;
  if (continuo_text_end_ids(text_, known.data(), known.size(), &ids) != CONTINUO_TEXT_OK) return {};
  std::vector<int32_t> result(ids.data, ids.data + ids.size);
  continuo_ids_free(ids);
  return result;
}

absl::StatusOr<std::vector<int32_t>> TextModel::Encode(std::string_view text,
                                                       bool add_special) const {
  ContinuoIds ids;
  if (continuo_text_encode(text_, SliceOf(text), add_special, &ids) != CONTINUO_TEXT_OK) {
    return LastError();
  }
  std::vector<int32_t> result(ids.data, ids.data + ids.size);
  continuo_ids_free(ids);
  return result;
}

absl::StatusOr<std::string> TextModel::RenderChat(const ChatPrompt& prompt) const {
  ASSIGN_OR_RETURN(RenderedChat rendered, RenderMarkedChat(prompt));
  return std::move(rendered.text);
}

absl::StatusOr<std::vector<int32_t>> TextModel::EncodeChat(const RenderedChat& chat) const {
  // The function only reads the spans.
  const ContinuoSpans content = {.data = const_cast<ContinuoSpan*>(chat.content.data()),
                                 .size = chat.content.size()};
  ContinuoIds ids;
  if (continuo_text_encode_chat(text_, SliceOf(chat.text), content, &ids) != CONTINUO_TEXT_OK) {
    return LastError();
  }
  std::vector<int32_t> result(ids.data, ids.data + ids.size);
  continuo_ids_free(ids);
  return result;
}

absl::StatusOr<RenderedChat> TextModel::RenderMarkedChat(const ChatPrompt& prompt) const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (size_t i = 0; i < prompt.messages.size(); ++i) {
    ASSIGN_OR_RETURN(nlohmann::ordered_json message, ToJson(prompt.messages[i], i));
    messages.push_back(std::move(message));
  }
  if (!IsUtf8(prompt.template_arguments)) {
    return absl::InvalidArgumentError("template_arguments is not UTF-8");
  }
  if (!IsUtf8(prompt.chat_template)) {
    return absl::InvalidArgumentError("chat_template is not UTF-8");
  }
  const nlohmann::ordered_json request = {{"messages", std::move(messages)},
                                          {"add_generation_prompt", !prompt.omit_generation_prompt},
                                          {"chat_template", prompt.chat_template},
                                          {"continue_final_message", prompt.continue_final_message},
                                          {"template_arguments", prompt.template_arguments},
                                          {"now_seconds", prompt.now_seconds}};
  ContinuoString rendered;
  ContinuoSpans content;
  if (continuo_text_render_chat(text_, SliceOf(request.dump()), &rendered, &content) !=
      CONTINUO_TEXT_OK) {
    return LastError();
  }
  RenderedChat result = {.text = std::string(rendered.data, rendered.size),
                         .content = {content.data, content.data + content.size}};
  continuo_string_free(rendered);
  continuo_spans_free(content);
  return result;
}

absl::StatusOr<std::string> TextModel::Decode(std::span<const int32_t> ids,
                                              bool keep_special) const {
  std::string text;
  Utf8Assembler assembler;
  int32_t previous = -1;
  for (const int32_t id : ids) {
    if (!HasToken(id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", id, " is outside the vocabulary of ", vocab_size()));
    }
    const bool special = keep_special && IsSpecial(id);
    assembler.Push(special ? TokenBytesKeepSpecial(id) : TokenBytesAfter(id, previous), &text);
    previous = id;
  }
  assembler.Flush(&text);
  return text;
}

std::string_view TextModel::TokenBytes(int32_t id) const {
  return IsSpecial(id) ? std::string_view() : TokenBytesKeepSpecial(id);
}

std::string_view TextModel::TokenBytesAfter(int32_t id, int32_t previous) const {
  if (id == previous && table_.collapses_repeats != 0) return {};
  return TokenBytes(id);
}

std::string_view TextModel::TokenBytesKeepSpecial(int32_t id) const {
  if (!HasToken(id)) return {};
  const uint32_t begin = id == 0 ? 0 : table_.ends[id - 1];
  return {reinterpret_cast<const char*>(table_.bytes) + begin, table_.ends[id] - begin};
}

bool TextModel::IsSpecial(int32_t id) const { return HasToken(id) && table_.is_special[id] != 0; }

}  // namespace continuo::text
