// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/prompt_json.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/chat_members.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/gateway/openai/json/tools_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

absl::StatusOr<std::string> PartText(const Json& part, const std::string& path) {
  if (!part.is_object()) return WrongType(path, "an object", part);
  std::string type, piece;
  RETURN_IF_ERROR(ReadText(part, "type", path, &type));
  if (type != "text" && type != "refusal") {
    return protocol::FieldError(path + ".type", "only parts of the type \"text\" are supported");
  }
  const char* const member = type == "text" ? "text" : "refusal";
  RETURN_IF_ERROR(CheckObject(type == "text" ? chats::kTextPart : chats::kRefusalPart, part, path));
  if (Find(part, member) == nullptr) {
    return protocol::FieldError(absl::StrCat(path, ".", member), "is needed");
  }
  RETURN_IF_ERROR(ReadText(part, member, path, &piece));
  return piece;
}

absl::Status ReadContent(const Json& content, const std::string& path, v1::ChatMessage* message) {
  if (content.is_string()) {
    message->set_content(content.get<std::string>());
    return absl::OkStatus();
  }
  if (!content.is_array()) return WrongType(path, "a string or an array of parts", content);
  for (size_t i = 0; i < content.size(); ++i) {
    ASSIGN_OR_RETURN(std::string text, PartText(content[i], absl::StrCat(path, "[", i, "]")));
    // One part alone is the content.
    if (content.size() == 1) {
      message->set_content(std::move(text));
    } else {
      message->add_content_parts(std::move(text));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const Json& json, const std::string& path, v1::ChatMessage* message) {
  if (!json.is_object()) return WrongType(path, "an object", json);
  RETURN_IF_ERROR(CheckObject(chats::kMessage, json, path));
  RETURN_IF_ERROR(ReadText(json, "role", path, message->mutable_role()));
  if (message->role().empty()) return protocol::FieldError(path + ".role", "is needed");
  if (message->role() == "developer") message->set_role("system");
  RETURN_IF_ERROR(ReadToolCalls(json, path, message));
  // Servers have both names; the first that says something counts.
  for (const char* name : {"reasoning_content", "reasoning"}) {
    std::string reasoning;
    RETURN_IF_ERROR(ReadText(json, name, path, &reasoning));
    if (message->reasoning().empty()) message->set_reasoning(std::move(reasoning));
  }
  RETURN_IF_ERROR(ReadText(json, "name", path, message->mutable_name()));
  RETURN_IF_ERROR(ReadText(json, "tool_call_id", path, message->mutable_tool_call_id()));
  std::string refusal;
  RETURN_IF_ERROR(ReadText(json, "refusal", path, &refusal));
  if (const Json* const content = Find(json, "content"); content != nullptr) {
    return ReadContent(*content, path + ".content", message);
  }
  // An assistant's message may have only calls or a refusal.
  if (message->role() == "assistant") {
    message->set_content(std::move(refusal));
    return absl::OkStatus();
  }
  return protocol::FieldError(path + ".content", "is needed");
}

// Reads "prefix" of a message.
absl::Status ReadPrefix(const Json& json, const std::string& path, bool is_last,
                        v1::Conversation* conversation) {
  const Json* const prefix = Find(json, "prefix");
  if (prefix == nullptr) return absl::OkStatus();
  if (!prefix->is_boolean()) return WrongType(path + ".prefix", "a boolean", *prefix);
  if (!prefix->get<bool>()) return absl::OkStatus();
  if (!is_last || conversation->messages().rbegin()->role() != "assistant") {
    return protocol::FieldError(path + ".prefix",
                                "is of the last message, which must be an assistant's");
  }
  conversation->set_continue_final_message(true);
  return absl::OkStatus();
}

bool IsTokenIds(const Json& json) {
  return json.is_array() && !json.empty() && json[0].is_number();
}

absl::Status ReadTokenIds(const Json& json, const std::string& path, v1::TokenIds* ids) {
  if (json.empty()) return protocol::FieldError(path, "is empty");
  ids->mutable_ids()->Reserve(static_cast<int>(json.size()));
  for (size_t i = 0; i < json.size(); ++i) {
    ASSIGN_OR_RETURN(const uint32_t id, TokenIdAt(json, i, path));
    ids->add_ids(id);
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

absl::StatusOr<uint32_t> TokenIdAt(const Json& array, size_t i, std::string_view path) {
  const std::optional<Integer> id = IntegerOf(array[i]);
  constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
  if (id.has_value() && !id->is_negative && id->magnitude <= kMax) {
    return static_cast<uint32_t>(id->magnitude);
  }
  return WrongType(absl::StrCat(std::string(path), "[", i, "]"), "a token id, from 0 to 4294967295",
                   array[i]);
}

absl::Status ReadMessages(const Json& body, v1::Conversation* conversation) {
  const Json* const messages = Find(body, "messages");
  if (messages == nullptr) return protocol::FieldError("messages", "is needed");
  if (!messages->is_array()) return WrongType("messages", "an array", *messages);
  if (messages->empty()) return protocol::FieldError("messages", "is empty");
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string path = absl::StrCat("messages[", i, "]");
    RETURN_IF_ERROR(ReadMessage((*messages)[i], path, conversation->add_messages()));
    RETURN_IF_ERROR(ReadPrefix((*messages)[i], path, i + 1 == messages->size(), conversation));
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
