// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/text_json.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/json_text.h"
#include "services/gateway/openai/json/members.h"
#include "services/gateway/openai/json/prompt_json.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

absl::Status ReadTextPrompt(const Json& body, v1::TokenizeRequest* request) {
  for (const Member& member : TextMembers()) {
    const std::string name(member.name);
    // All that says how messages are rendered is of no use to a text.
    if (member.note.starts_with("of messages") && Find(body, name.c_str()) != nullptr) {
      return protocol::FieldError(name, "goes with messages, not with prompt");
    }
  }
  const Json* const prompt = Find(body, "prompt");
  if (!prompt->is_string()) return WrongType("prompt", "a string", *prompt);
  request->set_text(prompt->get<std::string>());
  std::optional<bool> special;
  RETURN_IF_ERROR(Read(body, "add_special_tokens", &special));
  request->set_omit_special_tokens(!special.value_or(true));
  return absl::OkStatus();
}

absl::Status ReadChatPrompt(const Json& body, std::string_view text, v1::TokenizeRequest* request) {
  std::vector<int> tool_places;
  RETURN_IF_ERROR(ReadConversation(body, text, request->mutable_conversation(), &tool_places));
  std::optional<bool> special;
  RETURN_IF_ERROR(Read(body, "add_special_tokens", &special));
  if (!special.value_or(false)) return absl::OkStatus();
  return protocol::FieldError("add_special_tokens",
                              "must be false with messages: the chat template adds them");
}

}  // namespace

absl::StatusOr<v1::TokenizeRequest> ParseTokenize(std::string_view text) {
  ASSIGN_OR_RETURN(const Json body, ParseObject(text));
  RETURN_IF_ERROR(CheckMembers(Endpoint::kTokenize, body));
  v1::TokenizeRequest request;
  std::optional<std::string> model;
  std::optional<bool> strings;
  RETURN_IF_ERROR(Read(body, "model", &model));
  request.set_model(model.value_or(""));
  RETURN_IF_ERROR(Read(body, "return_token_strs", &strings));
  request.set_return_tokens(strings.value_or(false));
  const bool has_prompt = Find(body, "prompt") != nullptr;
  if (Find(body, "messages") == nullptr) {
    if (!has_prompt) return protocol::FieldError("prompt", "is needed, or messages");
    RETURN_IF_ERROR(ReadTextPrompt(body, &request));
  } else {
    if (has_prompt) return protocol::FieldError("prompt", "is not supported beside messages");
    RETURN_IF_ERROR(ReadChatPrompt(body, text, &request));
  }
  return request;
}

absl::StatusOr<v1::DetokenizeRequest> ParseDetokenize(std::string_view text) {
  ASSIGN_OR_RETURN(const Json body, ParseObject(text));
  RETURN_IF_ERROR(CheckMembers(Endpoint::kDetokenize, body));
  v1::DetokenizeRequest request;
  std::optional<std::string> model;
  RETURN_IF_ERROR(Read(body, "model", &model));
  request.set_model(model.value_or(""));
  request.set_keep_special_tokens(true);
  const Json* const tokens = Find(body, "tokens");
  if (tokens == nullptr) return protocol::FieldError("tokens", "is needed");
  if (!tokens->is_array()) return WrongType("tokens", "an array of token ids", *tokens);
  request.mutable_token_ids()->Reserve(static_cast<int>(tokens->size()));
  for (size_t i = 0; i < tokens->size(); ++i) {
    ASSIGN_OR_RETURN(const uint32_t id, TokenIdAt(*tokens, i, "tokens"));
    request.add_token_ids(id);
  }
  return request;
}

std::string TokenizeJson(const v1::TokenizeResponse& response, bool has_token_strs) {
  std::string json = absl::StrCat(R"({"count":)", response.token_ids_size(), R"(,"max_model_len":)",
                                  response.max_context_tokens(), R"(,"tokens":[)");
  for (int i = 0; i < response.token_ids_size(); ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",", response.token_ids(i));
  }
  json.append(R"(],"token_strs":)");
  if (!has_token_strs) return json.append("null}");
  json.push_back('[');
  for (int i = 0; i < response.tokens_size(); ++i) {
    if (i > 0) json.push_back(',');
    AppendString(response.tokens(i), &json);
  }
  return json.append("]}");
}

std::string DetokenizeJson(const v1::DetokenizeResponse& response) {
  std::string json = R"({"prompt":)";
  AppendString(response.text(), &json);
  return json.append("}");
}

}  // namespace continuo::gateway::openai
