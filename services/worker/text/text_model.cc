// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/text_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/worker/gguf/gguf_file.h"
#include "services/worker/gguf/gguf_tokenizer.h"
#include "services/worker/text/response/json_scanner.h"
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

using Json = nlohmann::ordered_json;

// JSON that a request has as text becomes part of the larger text as it is: its keys keep their
// order, its numbers their digits, and an object of many keys costs no more than its bytes. `where`
// names it in errors; empty text is `otherwise`.
absl::StatusOr<std::string> ObjectText(const std::string& text, const std::string& where,
                                       std::string_view otherwise) {
  if (text.empty()) return std::string(otherwise);
  if (IsUtf8(text) && IsJsonObject(text)) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(where, " is not a JSON object of at most ", JsonScanner::kMaxDepth, " levels"));
}

absl::StatusOr<std::string> ToolText(const ChatTool& tool, size_t index) {
  const std::string where = absl::StrCat("tools[", index, "]");
  if (!IsUtf8(tool.name) || !IsUtf8(tool.description)) {
    return absl::InvalidArgumentError(where + " is not UTF-8");
  }
  ASSIGN_OR_RETURN(
      const std::string parameters,
      ObjectText(tool.parameters, where + ".parameters", R"({"type":"object","properties":{}})"));
  std::string text = R"({"type":"function","function":{"name":)" + JsonString(tool.name);
  if (!tool.description.empty()) text += R"(,"description":)" + JsonString(tool.description);
  return text + R"(,"parameters":)" + parameters + "}}";
}

absl::StatusOr<std::string> CallText(const ChatToolCall& call, const std::string& where,
                                     bool arguments_are_text) {
  if (!IsUtf8(call.id) || !IsUtf8(call.name)) {
    return absl::InvalidArgumentError(where + " is not UTF-8");
  }
  ASSIGN_OR_RETURN(std::string arguments, ObjectText(call.arguments, where + ".arguments", "{}"));
  if (arguments_are_text) arguments = JsonString(arguments);
  std::string text = "{";
  if (!call.id.empty()) text += R"("id":)" + JsonString(call.id) + ",";
  return text + R"("type":"function","function":{"name":)" + JsonString(call.name) +
         R"(,"arguments":)" + arguments + "}}";
}

// Members in the order of OpenAI's messages, which templates that print whole messages show.
absl::StatusOr<std::string> MessageText(const ChatMessage& message, size_t index,
                                        bool arguments_are_text) {
  Json json = Json::object();
  RETURN_IF_ERROR(CheckUtf8(message.role, "role", index));
  RETURN_IF_ERROR(CheckUtf8(message.content, "content", index));
  json["role"] = message.role;
  json["content"] = message.content;
  for (const std::string& part : message.parts) {
    RETURN_IF_ERROR(CheckUtf8(part, "content", index));
    if (json["content"].is_string()) json["content"] = Json::array();
    json["content"].push_back({{"type", "text"}, {"text", part}});
  }
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
  std::string text = json.dump();
  if (message.tool_calls.empty()) return text;
  text.pop_back();
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const std::string where = absl::StrCat("messages[", index, "].tool_calls[", i, "]");
    ASSIGN_OR_RETURN(const std::string call,
                     CallText(message.tool_calls[i], where, arguments_are_text));
    text += (i == 0 ? R"(,"tool_calls":[)" : ",") + call;
  }
  return text + "]}";
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextModel>> TextModel::Open(const std::string& model_path) {
  ContinuoText* text = nullptr;
  std::string source;
  if (gguf::IsGguf(model_path)) {
    ASSIGN_OR_RETURN(const gguf::GgufFile file, gguf::GgufFile::Open(model_path));
    ASSIGN_OR_RETURN(const gguf::TokenizerTexts texts, gguf::TokenizerOf(file));
    source = "GGUF metadata";
    text = continuo_text_open_texts(SliceOf(model_path), SliceOf("tokenizer.json"),
                                    SliceOf(texts.tokenizer), SliceOf(texts.tokenizer_config));
  } else {
    ASSIGN_OR_RETURN(source, CheckTextFiles(model_path));
    text = continuo_text_open(SliceOf(model_path), SliceOf(source));
  }
  if (text == nullptr) return LastError();
  std::unique_ptr<TextModel> model(new TextModel(text));
  model->tokenizer_source_ = std::move(source);
  model->FindFormat();
  return model;
}

TextModel::TextModel(ContinuoText* text)
    : text_(text),
      tokenizer_digest_(ViewOf(continuo_text_tokenizer_digest(text))),
      template_digest_(ViewOf(continuo_text_template_digest(text))) {
  continuo_text_token_table(text, &table_);
  const std::string warnings(ViewOf(continuo_text_warnings(text)));
  warnings_ = absl::StrSplit(warnings, '\n', absl::SkipEmpty());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    max_token_bytes_ = std::max(max_token_bytes_, TokenBytesKeepSpecial(id).size());
  }
}

TextModel::~TextModel() { continuo_text_free(text_); }

int32_t TextModel::vocab_size() const { return static_cast<int32_t>(table_.num_tokens); }

void TextModel::FindFormat() {
  if (!has_chat_template()) return;
  if (const std::string_view own = ViewOf(continuo_text_response_template(text_)); !own.empty()) {
    auto parsed = ResponseTemplate::Parse(own);
    if (parsed.ok()) {
      response_format_ = {"template", *std::move(parsed)};
    } else {
      response_template_status_ = parsed.status();
    }
  }
  RenderedCall call;
  const bool is_rendered = RenderCall(&call);
  if (response_format_.name == "template") return;
  response_format_ = FindResponseFormat(Markers(), is_rendered ? &call : nullptr);
}

absl::Status TextModel::UseResponseFormat(std::string_view name) {
  ASSIGN_OR_RETURN(response_format_, NamedResponseFormat(name, Markers()));
  response_template_status_ = absl::OkStatus();
  return absl::OkStatus();
}

bool TextModel::RenderCall(RenderedCall* call) {
  call->name = "find_place";
  call->arguments = R"({"place": "Lima"})";
  const ChatTool tool = {.name = call->name,
                         .description = "Finds a place.",
                         .parameters =
                             R"({"type": "object", "properties": {"place": {"type": "string", )"
                             R"("description": "Its name."}}, "required": ["place"]})"};
  ChatPrompt prompt = {.messages = {{.role = "user", .content = "Where is it?"}}, .tools = {tool}};
  const auto unanswered = RenderChat(prompt);
  if (!unanswered.ok()) return false;
  call->prompt = *unanswered;
  prompt.omit_generation_prompt = true;
  // Some templates take arguments as text, some refuse a call without its result.
  for (const bool are_text : {false, true}) {
    for (const bool has_result : {false, true}) {
      prompt.messages.resize(1);
      prompt.messages.push_back(
          {.role = "assistant", .tool_calls = {{"call00000", call->name, call->arguments}}});
      if (has_result) {
        prompt.messages.push_back(
            {.role = "tool", .content = "There.", .tool_call_id = "call00000", .name = call->name});
      }
      arguments_are_text_ = are_text;
      const auto answered = RenderChat(prompt);
      if (!answered.ok()) continue;
      call->with_call = *answered;
      return true;
    }
  }
  arguments_are_text_ = false;
  return false;
}

// Returns the texts that a format is known by: the chat template, and tokens that look like
// markers.
std::string TextModel::Markers() const {
  constexpr size_t kMaxMarker = 64;
  std::string markers(ViewOf(continuo_text_chat_template(text_)));
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const std::string_view token = TokenBytesKeepSpecial(id);
    if (token.size() < 5 || token.size() > kMaxMarker) continue;
    const bool is_marker = (token.front() == '<' && token.back() == '>') ||
                           (token.front() == '[' && token.back() == ']');
    if (is_marker) markers.append("\n").append(token);
  }
  return markers;
}

bool TextModel::keeps_bytes() const { return table_.keeps_bytes != 0; }

bool TextModel::has_chat_template() const { return table_.has_chat_template != 0; }

std::string_view TextModel::tokenizer_kind() const {
  return ViewOf(continuo_text_tokenizer_kind(text_));
}

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

absl::StatusOr<EncodedPair> TextModel::EncodePair(std::string_view first, std::string_view second,
                                                  bool parse_special) const {
  ContinuoIds ids, types;
  ContinuoSpan of_second;
  if (continuo_text_encode_pair(text_, SliceOf(first), SliceOf(second), parse_special, &ids, &types,
                                &of_second) != CONTINUO_TEXT_OK) {
    return LastError();
  }
  EncodedPair pair = {.tokens = std::vector<int32_t>(ids.data, ids.data + ids.size),
                      .types = std::vector<int32_t>(types.data, types.data + types.size),
                      .second_begin = of_second.begin,
                      .second_end = of_second.end};
  continuo_ids_free(ids);
  continuo_ids_free(types);
  return pair;
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
  std::string lists = R"("messages":[)";
  for (size_t i = 0; i < prompt.messages.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string message,
                     MessageText(prompt.messages[i], i, arguments_are_text_));
    lists += (i == 0 ? "" : ",") + message;
  }
  lists += "]";
  for (size_t i = 0; i < prompt.tools.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string tool, ToolText(prompt.tools[i], i));
    lists += (i == 0 ? R"(,"tools":[)" : ",") + tool;
  }
  if (!prompt.tools.empty()) lists += "]";
  if (!IsUtf8(prompt.template_arguments)) {
    return absl::InvalidArgumentError("template_arguments is not UTF-8");
  }
  if (!IsUtf8(prompt.chat_template)) {
    return absl::InvalidArgumentError("chat_template is not UTF-8");
  }
  const Json rest = {{"add_generation_prompt", !prompt.omit_generation_prompt},
                     {"chat_template", prompt.chat_template},
                     {"continue_final_message", prompt.continue_final_message},
                     {"template_arguments", prompt.template_arguments},
                     {"now_seconds", prompt.now_seconds}};
  const std::string request = "{" + lists + "," + rest.dump().substr(1);
  ContinuoString rendered;
  ContinuoSpans content;
  if (continuo_text_render_chat(text_, SliceOf(request), &rendered, &content) != CONTINUO_TEXT_OK) {
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
