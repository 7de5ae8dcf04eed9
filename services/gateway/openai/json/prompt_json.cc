// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/prompt_json.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

// As Read, for a member of a message; `path` is the message's.
absl::Status ReadText(const Json& object, const char* name, const std::string& path,
                      std::string* value) {
  const Json* const json = Find(object, name);
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_string()) return WrongType(absl::StrCat(path, ".", name), "a string", *json);
  *value = json->get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadContent(const Json& content, const std::string& path, std::string* text) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return absl::OkStatus();
  }
  if (!content.is_array()) return WrongType(path, "a string or an array of parts", content);
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string at = absl::StrCat(path, "[", i, "]");
    if (!part.is_object()) return WrongType(at, "an object", part);
    std::string type, piece;
    RETURN_IF_ERROR(ReadText(part, "type", at, &type));
    if (type != "text") {
      return protocol::FieldError(at + ".type", "only parts of the type \"text\" are supported");
    }
    if (Find(part, "text") == nullptr) return protocol::FieldError(at + ".text", "is needed");
    RETURN_IF_ERROR(ReadText(part, "text", at, &piece));
    text->append(piece);
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const Json& json, const std::string& path, v1::ChatMessage* message) {
  if (!json.is_object()) return WrongType(path, "an object", json);
  RETURN_IF_ERROR(ReadText(json, "role", path, message->mutable_role()));
  if (message->role().empty()) return protocol::FieldError(path + ".role", "is needed");
  if (message->role() == "developer") message->set_role("system");
  for (const char* name : {"tool_calls", "function_call"}) {
    const Json* const calls = Find(json, name);
    if (calls != nullptr && !calls->empty()) {
      return protocol::FieldError(absl::StrCat(path, ".", name), "tools are not supported");
    }
  }
  RETURN_IF_ERROR(ReadText(json, "name", path, message->mutable_name()));
  RETURN_IF_ERROR(ReadText(json, "tool_call_id", path, message->mutable_tool_call_id()));
  const Json* const content = Find(json, "content");
  if (content != nullptr) {
    return ReadContent(*content, path + ".content", message->mutable_content());
  }
  // An assistant's message may have only calls or a refusal.
  if (message->role() == "assistant") return absl::OkStatus();
  return protocol::FieldError(path + ".content", "is needed");
}

bool IsTokenIds(const Json& json) {
  return json.is_array() && !json.empty() && json[0].is_number();
}

absl::Status ReadTokenIds(const Json& json, const std::string& path, v1::TokenIds* ids) {
  if (json.empty()) return protocol::FieldError(path, "is empty");
  ids->mutable_ids()->Reserve(static_cast<int>(json.size()));
  for (size_t i = 0; i < json.size(); ++i) {
    const Json& id = json[i];
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
      return protocol::FieldError(absl::StrCat(path, "[", i, "]"),
                                  "must be a token id, from 0 to 4294967295");
    }
    ids->add_ids(id.get<uint32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadPrompt(const Json& json, const std::string& path,
                        std::vector<v1::GenerateRequest>* requests) {
  v1::GenerateRequest& request = requests->emplace_back();
  if (json.is_string()) {
    request.set_text(json.get<std::string>());
    return absl::OkStatus();
  }
  if (json.is_array()) return ReadTokenIds(json, path, request.mutable_token_ids());
  return WrongType(path, "a string or an array of token ids", json);
}

}  // namespace

absl::Status ReadMessages(const Json& body, v1::Conversation* conversation) {
  const Json* const messages = Find(body, "messages");
  if (messages == nullptr) return protocol::FieldError("messages", "is needed");
  if (!messages->is_array()) return WrongType("messages", "an array", *messages);
  if (messages->empty()) return protocol::FieldError("messages", "is empty");
  for (size_t i = 0; i < messages->size(); ++i) {
    RETURN_IF_ERROR(ReadMessage((*messages)[i], absl::StrCat("messages[", i, "]"),
                                conversation->add_messages()));
  }
  return absl::OkStatus();
}

absl::Status ReadPrompts(const Json& body, std::vector<v1::GenerateRequest>* requests) {
  const Json* const prompt = Find(body, "prompt");
  if (prompt == nullptr) return protocol::FieldError("prompt", "is needed");
  if (!prompt->is_array() || IsTokenIds(*prompt)) return ReadPrompt(*prompt, "prompt", requests);
  if (prompt->empty()) return protocol::FieldError("prompt", "is empty");
  if (prompt->size() > static_cast<size_t>(kMaxChoices)) {
    return protocol::FieldError(
        "prompt", absl::StrCat("has ", prompt->size(), " prompts, the limit is ", kMaxChoices));
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    RETURN_IF_ERROR(ReadPrompt((*prompt)[i], absl::StrCat("prompt[", i, "]"), requests));
  }
  return absl::OkStatus();
}

}  // namespace continuo::gateway::openai
