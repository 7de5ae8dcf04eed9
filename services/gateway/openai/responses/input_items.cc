// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/responses/input_items.h"

#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/gateway/openai/json/members.h"
#include "services/gateway/openai/responses/responses_members.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kEncoded = "continuo:";

// Appends the text of parts, each of which is text under one of its names.
absl::Status ReadParts(const Json& parts, const std::string& path, std::string* text) {
  if (parts.is_string()) {
    text->append(parts.get<std::string>());
    return absl::OkStatus();
  }
  if (!parts.is_array()) return WrongType(path, "a string or an array of parts", parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    if (!parts[i].is_object()) return WrongType(place, "an object", parts[i]);
    std::string type, piece;
    RETURN_IF_ERROR(NeedText(parts[i], "type", place, &type));
    const bool is_text = type == "input_text" || type == "output_text" || type == "text" ||
                         type == "summary_text" || type == "reasoning_text";
    if (!is_text && type != "refusal") {
      return protocol::FieldError(place + ".type",
                                  "only parts of the types \"input_text\" and \"output_text\" are "
                                  "supported; text is all that goes in");
    }
    RETURN_IF_ERROR(
        CheckObject(is_text ? responses::kTextPart : responses::kRefusalPart, parts[i], place));
    RETURN_IF_ERROR(NeedText(parts[i], is_text ? "text" : "refusal", place, &piece));
    if (i > 0) text->append("\n");
    text->append(piece);
  }
  return absl::OkStatus();
}

bool IsObjectText(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' && Json::accept(text);
}

// Reads items, one after the other.
class ItemReader {
 public:
  explicit ItemReader(v1::Conversation* conversation) : conversation_(conversation) {}

  absl::Status Read(const Json& item, const std::string& path) {
    if (!item.is_object()) return WrongType(path, "an object", item);
    std::string type = "message";
    RETURN_IF_ERROR(ReadText(item, "type", path, &type));
    if (type == "message") return ReadMessage(item, path);
    if (type == "function_call") return ReadCall(item, path);
    if (type == "function_call_output") return ReadOutput(item, path);
    if (type == "reasoning") return ReadReasoning(item, path);
    return protocol::FieldError(
        path + ".type", type == "item_reference"
                            ? "is of a stored item, and nothing is stored; send the item itself"
                            : "only message, function_call, function_call_output and reasoning are "
                              "supported");
  }

 private:
  absl::Status ReadMessage(const Json& item, const std::string& path) {
    RETURN_IF_ERROR(CheckObject(responses::kMessage, item, path));
    std::string role;
    RETURN_IF_ERROR(NeedText(item, "role", path, &role));
    if (role == "developer") role = "system";
    if (role != "user" && role != "assistant" && role != "system") {
      return protocol::FieldError(path + ".role",
                                  "must be \"user\", \"assistant\", \"system\" or \"developer\"");
    }
    const Json* const content = Find(item, "content");
    if (content == nullptr) return protocol::FieldError(path + ".content", "is needed");
    v1::ChatMessage* message = nullptr;
    if (role == "assistant") {
      // Text behind calls is a message of its own: templates write calls behind the text.
      if (assistant_ != nullptr && assistant_->tool_calls_size() > 0) assistant_ = nullptr;
      message = Assistant();
      if (!message->content().empty()) message->mutable_content()->append("\n");
    } else {
      assistant_ = nullptr;
      message = conversation_->add_messages();
      message->set_role(role);
    }
    return ReadParts(*content, path + ".content", message->mutable_content());
  }

  absl::Status ReadCall(const Json& item, const std::string& path) {
    RETURN_IF_ERROR(CheckObject(responses::kFunctionCall, item, path));
    v1::ToolCall& call = *Assistant()->add_tool_calls();
    RETURN_IF_ERROR(NeedText(item, "call_id", path, call.mutable_id()));
    RETURN_IF_ERROR(NeedText(item, "name", path, call.mutable_name()));
    RETURN_IF_ERROR(NeedText(item, "arguments", path, call.mutable_arguments()));
    if (call.arguments().empty() || IsObjectText(call.arguments())) return absl::OkStatus();
    return protocol::FieldError(path + ".arguments", "must be the text of a JSON object");
  }

  absl::Status ReadOutput(const Json& item, const std::string& path) {
    RETURN_IF_ERROR(CheckObject(responses::kFunctionCallOutput, item, path));
    assistant_ = nullptr;
    v1::ChatMessage& message = *conversation_->add_messages();
    message.set_role("tool");
    RETURN_IF_ERROR(NeedText(item, "call_id", path, message.mutable_tool_call_id()));
    const Json* const output = Find(item, "output");
    if (output == nullptr) return protocol::FieldError(path + ".output", "is needed");
    return ReadParts(*output, path + ".output", message.mutable_content());
  }

  absl::Status ReadReasoning(const Json& item, const std::string& path) {
    RETURN_IF_ERROR(CheckObject(responses::kReasoning, item, path));
    // Thoughts begin a turn.
    assistant_ = nullptr;
    std::string* const text = Assistant()->mutable_reasoning();
    if (const Json* const content = Find(item, "content"); content != nullptr) {
      RETURN_IF_ERROR(ReadParts(*content, path + ".content", text));
    }
    std::string encoded;
    RETURN_IF_ERROR(ReadText(item, "encrypted_content", path, &encoded));
    if (text->empty() && encoded.starts_with(kEncoded)) {
      // What others encrypted can be read by nobody here.
      std::string decoded;
      if (absl::Base64Unescape(encoded.substr(kEncoded.size()), &decoded) && IsUtf8(decoded)) {
        *text = decoded;
      }
    }
    const Json* const summary = Find(item, "summary");
    if (summary == nullptr || !text->empty()) return absl::OkStatus();
    return ReadParts(*summary, path + ".summary", text);
  }

  // The message of the assistant that the next items belong to.
  v1::ChatMessage* Assistant() {
    if (assistant_ == nullptr) {
      assistant_ = conversation_->add_messages();
      assistant_->set_role("assistant");
    }
    return assistant_;
  }

  v1::Conversation* const conversation_;
  v1::ChatMessage* assistant_ = nullptr;  // null: the next item begins one
};

}  // namespace

std::string EncodeReasoning(std::string_view text) {
  return absl::StrCat(std::string(kEncoded), absl::Base64Escape(std::string(text)));
}

absl::Status ReadInput(const Json& body, v1::Conversation* conversation) {
  std::optional<std::string> instructions;
  RETURN_IF_ERROR(Read(body, "instructions", &instructions));
  if (!instructions.value_or("").empty()) {
    v1::ChatMessage& message = *conversation->add_messages();
    message.set_role("system");
    message.set_content(*instructions);
  }
  const Json* const input = Find(body, "input");
  if (input == nullptr) return protocol::FieldError("input", "is needed");
  if (input->is_string()) {
    v1::ChatMessage& message = *conversation->add_messages();
    message.set_role("user");
    message.set_content(input->get<std::string>());
    return absl::OkStatus();
  }
  if (!input->is_array()) return WrongType("input", "a string or an array of items", *input);
  if (input->empty()) return protocol::FieldError("input", "is empty");
  ItemReader reader(conversation);
  for (size_t i = 0; i < input->size(); ++i) {
    RETURN_IF_ERROR(reader.Read((*input)[i], absl::StrCat("input[", i, "]")));
  }
  return absl::OkStatus();
}

}  // namespace continuo::gateway::openai
