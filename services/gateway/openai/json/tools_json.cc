// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/tools_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/chat_members.h"
#include "services/gateway/openai/json/tool_choice_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kBlank = " \t\n\r";

// Returns where the JSON string that begins at `at` ends. The text is JSON.
size_t EndOfString(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// Returns where the value that begins at `at` ends.
size_t EndOfValue(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = EndOfString(text, at);
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at;
    } else if (c == '}' || c == ']') {
      if (--depth < 0) return at;  // of what is around a number or a word
      ++at;
    } else if (depth == 0) {
      at = std::min(text.find_first_of(",]} \t\n\r", at), text.size());
    } else {
      at = std::min(text.find_first_of("\"{}[]", at), text.size());
    }
    if (depth == 0) return at;
  }
  return at;
}

// The place of the next byte that is no white space and no comma.
size_t NextValue(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == ',' || kBlank.find(text[at]) != kBlank.npos)) ++at;
  return at;
}

// Returns whether the JSON string, with its quotes, is this text.
bool IsString(std::string_view json, std::string_view text) {
  if (json.find('\\') == json.npos) return json.substr(1, json.size() - 2) == text;
  const Json value = Json::parse(json, /*cb=*/nullptr, /*allow_exceptions=*/false);
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

// Calls `visit(key, value)` for each member of an object's text; the key has its quotes.
template <typename Visit>
void ForEachMember(std::string_view object, Visit visit) {
  object.remove_prefix(std::min(object.find_first_not_of(kBlank), object.size()));
  size_t at = NextValue(object, object.empty() ? 0 : 1);
  while (at < object.size() && object[at] == '"') {
    const size_t end = EndOfString(object, at);
    const std::string_view key = object.substr(at, end - at);
    at = std::min(object.find(':', end), object.size());
    if (at == object.size()) return;
    at = std::min(object.find_first_not_of(kBlank, at + 1), object.size());
    const size_t value_end = EndOfValue(object, at);
    visit(key, object.substr(at, value_end - at));
    at = NextValue(object, value_end);
  }
}

// The "function" of a tool, a call or a choice at `path`, which has to be of that type.
absl::StatusOr<const Json*> FunctionOf(const Json& json, const std::string& path) {
  if (!json.is_object()) return WrongType(path, "an object", json);
  std::string type = "function";
  RETURN_IF_ERROR(ReadText(json, "type", path, &type));
  if (type != "function") {
    return protocol::FieldError(path + ".type", "only the type \"function\" is supported");
  }
  const Json* const function = Find(json, "function");
  if (function == nullptr) return protocol::FieldError(path + ".function", "is needed");
  if (!function->is_object()) return WrongType(path + ".function", "an object", *function);
  return function;
}

absl::Status ReadTool(const Json& json, std::string_view text, const std::string& path,
                      v1::Tool* tool) {
  ASSIGN_OR_RETURN(const Json* const function, FunctionOf(json, path));
  RETURN_IF_ERROR(CheckObject(chats::kTool, json, path));
  const std::string inside = path + ".function";
  RETURN_IF_ERROR(CheckObject(chats::kToolFunction, *function, inside));
  RETURN_IF_ERROR(ReadText(*function, "name", inside, tool->mutable_name()));
  if (tool->name().empty()) return protocol::FieldError(inside + ".name", "is needed");
  RETURN_IF_ERROR(ReadText(*function, "description", inside, tool->mutable_description()));
  if (const Json* const parameters = Find(*function, "parameters"); parameters != nullptr) {
    if (!parameters->is_object()) {
      return WrongType(inside + ".parameters", "an object", *parameters);
    }
    tool->set_parameters(std::string(MemberText(MemberText(text, "function"), "parameters")));
  }
  if (const Json* const strict = Find(*function, "strict"); strict != nullptr) {
    if (!strict->is_boolean()) return WrongType(inside + ".strict", "a boolean", *strict);
    tool->set_strict(strict->get<bool>());
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string_view> ElementTexts(std::string_view array) {
  std::vector<std::string_view> texts;
  size_t at = NextValue(array, array.empty() ? 0 : 1);
  while (at < array.size() && array[at] != ']') {
    const size_t end = EndOfValue(array, at);
    texts.push_back(array.substr(at, end - at));
    at = NextValue(array, end);
  }
  return texts;
}

std::string_view MemberText(std::string_view object, std::string_view name) {
  std::string_view found;
  ForEachMember(object, [&](std::string_view key, std::string_view value) {
    if (IsString(key, name)) found = value;
  });
  return found;
}

absl::flat_hash_map<std::string, std::string_view> MemberTexts(std::string_view object) {
  absl::flat_hash_map<std::string, std::string_view> texts;
  ForEachMember(object, [&](std::string_view key, std::string_view value) {
    const Json name = Json::parse(key, /*cb=*/nullptr, /*allow_exceptions=*/false);
    if (name.is_string()) texts[name.get_ref<const std::string&>()] = value;
  });
  return texts;
}

absl::Status ReadTools(const Json& body, std::string_view text, v1::Conversation* conversation,
                       std::vector<int>* places) {
  if (const Json* const tools = Find(body, "tools"); tools != nullptr) {
    if (!tools->is_array()) return WrongType("tools", "an array", *tools);
    const std::vector<std::string_view> texts = ElementTexts(MemberText(text, "tools"));
    for (size_t i = 0; i < tools->size(); ++i) {
      RETURN_IF_ERROR(ReadTool((*tools)[i], i < texts.size() ? texts[i] : std::string_view(),
                               absl::StrCat("tools[", i, "]"), conversation->add_tools()));
      places->push_back(static_cast<int>(i));
    }
  }
  return ReadToolChoice(body, FunctionForm::kInside, conversation, places);
}

absl::Status ReadToolCalls(const Json& json, const std::string& path, v1::ChatMessage* message) {
  const Json* const calls = Find(json, "tool_calls");
  if (calls == nullptr) return absl::OkStatus();
  if (!calls->is_array()) return WrongType(path + ".tool_calls", "an array", *calls);
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string place = absl::StrCat(path, ".tool_calls[", i, "]");
    ASSIGN_OR_RETURN(const Json* const function, FunctionOf((*calls)[i], place));
    RETURN_IF_ERROR(CheckObject(chats::kToolCall, (*calls)[i], place));
    const std::string inside = place + ".function";
    RETURN_IF_ERROR(CheckObject(chats::kCalledFunction, *function, inside));
    v1::ToolCall& call = *message->add_tool_calls();
    RETURN_IF_ERROR(ReadText((*calls)[i], "id", place, call.mutable_id()));
    RETURN_IF_ERROR(ReadText(*function, "name", inside, call.mutable_name()));
    if (call.name().empty()) return protocol::FieldError(inside + ".name", "is needed");
    RETURN_IF_ERROR(ReadText(*function, "arguments", inside, call.mutable_arguments()));
  }
  return absl::OkStatus();
}

}  // namespace continuo::gateway::openai
