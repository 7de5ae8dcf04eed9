// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/tool_choice_json.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/chat_members.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

using enum Disposition;

constexpr ObjectMember kTypeAndName[] = {
    {"type", kDone, "\"function\"", ""},
    {"name", kDone, "of a function in tools", ""},
};
constexpr ObjectMember kTypeModeAndTools[] = {
    {"type", kDone, "\"allowed_tools\"", ""},
    {"mode", kDone, "\"auto\" or \"required\"", ""},
    {"tools", kDone, "the functions that may be called; those of other types are skipped", ""},
};

// A name, and its place in the body.
struct PlacedName {
  std::string name, path;
};

// Reads the name of the function that is chosen at `path`, which is an object of the type function.
absl::StatusOr<PlacedName> ReadFunctionName(const Json& json, const std::string& path,
                                            FunctionForm form, const ObjectMembers& beside) {
  PlacedName named = {.path = path + ".name"};
  if (form == FunctionForm::kBeside) {
    RETURN_IF_ERROR(CheckObject(beside, json, path));
    RETURN_IF_ERROR(ReadText(json, "name", path, &named.name));
    return named;
  }
  RETURN_IF_ERROR(CheckObject(chats::kChoice, json, path));
  const std::string inside = path + ".function";
  const Json* const function = Find(json, "function");
  if (function == nullptr) return protocol::FieldError(inside, "is needed");
  if (!function->is_object()) return WrongType(inside, "an object", *function);
  RETURN_IF_ERROR(CheckObject(chats::kChosenFunction, *function, inside));
  named.path = inside + ".name";
  RETURN_IF_ERROR(ReadText(*function, "name", inside, &named.name));
  return named;
}

absl::StatusOr<std::string> TypeOf(const Json& json, const std::string& path) {
  if (!json.is_object()) return WrongType(path, "an object", json);
  std::string type = "function";
  RETURN_IF_ERROR(ReadText(json, "type", path, &type));
  return type;
}

// Reads a choice of tools, and the names of those that are allowed.
class ChoiceReader {
 public:
  ChoiceReader(FunctionForm form, v1::Conversation* conversation, std::vector<int>* places)
      : form_(form), conversation_(conversation), places_(places) {
    for (const v1::Tool& tool : conversation->tools()) known_.insert(tool.name());
  }

  absl::Status Read(const Json& choice, v1::ToolChoice* parsed) {
    constexpr char kPath[] = "tool_choice";
    if (choice.is_string()) return ReadMode(choice, kPath, /*allows_none=*/true, parsed);
    if (!choice.is_object()) return WrongType(kPath, "a string or an object", choice);
    ASSIGN_OR_RETURN(const std::string type, TypeOf(choice, kPath));
    if (type == "allowed_tools") return ReadAllowed(choice, kPath, parsed);
    if (type != "function") {
      return protocol::FieldError(
          "tool_choice.type", "only the types \"function\" and \"allowed_tools\" are supported");
    }
    ASSIGN_OR_RETURN(PlacedName named, ReadFunctionName(choice, kPath, form_, kNamedChoice));
    RETURN_IF_ERROR(CheckIsKnown(named));
    parsed->set_name(std::move(named.name));
    parsed->set_mode(v1::ToolChoice::MODE_REQUIRED);
    return absl::OkStatus();
  }

 private:
  static absl::Status ReadMode(const Json& mode, std::string_view path, bool allows_none,
                               v1::ToolChoice* parsed) {
    if (mode == "auto") {
      parsed->set_mode(v1::ToolChoice::MODE_AUTO);
    } else if (mode == "required") {
      parsed->set_mode(v1::ToolChoice::MODE_REQUIRED);
    } else if (mode == "none" && allows_none) {
      parsed->set_mode(v1::ToolChoice::MODE_NONE);
    } else {
      return protocol::FieldError(
          path, allows_none ? "must be \"none\", \"auto\", \"required\" or a function of the tools"
                            : "must be \"auto\" or \"required\"");
    }
    return absl::OkStatus();
  }

  absl::Status CheckIsKnown(const PlacedName& named) const {
    if (known_.contains(named.name)) return absl::OkStatus();
    return protocol::FieldError(named.path, "is not the name of a function in tools");
  }

  absl::Status ReadAllowed(const Json& choice, std::string path, v1::ToolChoice* parsed) {
    const Json* allowed = &choice;
    if (form_ == FunctionForm::kBeside) {
      RETURN_IF_ERROR(CheckObject(kAllowedChoice, choice, path));
    } else {
      RETURN_IF_ERROR(CheckObject(chats::kAllowedChoice, choice, path));
      allowed = Find(choice, "allowed_tools");
      path += ".allowed_tools";
      if (allowed == nullptr) return protocol::FieldError(path, "is needed");
      if (!allowed->is_object()) return WrongType(path, "an object", *allowed);
      RETURN_IF_ERROR(CheckObject(chats::kAllowedTools, *allowed, path));
    }
    const Json* const mode = Find(*allowed, "mode");
    RETURN_IF_ERROR(ReadMode(mode == nullptr ? Json() : *mode, path + ".mode",
                             /*allows_none=*/false, parsed));
    const Json* const tools = Find(*allowed, "tools");
    path += ".tools";
    if (tools == nullptr) return protocol::FieldError(path, "is needed");
    if (!tools->is_array()) return WrongType(path, "an array", *tools);
    absl::flat_hash_set<std::string> names;
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string place = absl::StrCat(path, "[", i, "]");
      ASSIGN_OR_RETURN(const std::string type, TypeOf((*tools)[i], place));
      if (type != "function") {
        if (form_ == FunctionForm::kBeside) continue;  // the model does not see it
        return protocol::FieldError(place + ".type", "only the type \"function\" is supported");
      }
      ASSIGN_OR_RETURN(PlacedName named, ReadFunctionName((*tools)[i], place, form_, kAllowedTool));
      RETURN_IF_ERROR(CheckIsKnown(named));
      names.insert(std::move(named.name));
    }
    if (names.empty()) return protocol::FieldError(path, "names no function");
    KeepOnly(names);
    return absl::OkStatus();
  }

  void KeepOnly(const absl::flat_hash_set<std::string>& names) {
    google::protobuf::RepeatedPtrField<v1::Tool> kept;
    std::vector<int> places;
    for (int i = 0; i < conversation_->tools_size(); ++i) {
      if (!names.contains(conversation_->tools(i).name())) continue;
      kept.Add()->Swap(conversation_->mutable_tools(i));
      places.push_back(places_->at(static_cast<size_t>(i)));
    }
    *places_ = std::move(places);
    conversation_->mutable_tools()->Swap(&kept);
  }

  const FunctionForm form_;
  v1::Conversation* const conversation_;
  std::vector<int>* const places_;
  absl::flat_hash_set<std::string> known_;  // names of the tools
};

}  // namespace

constinit const ObjectMembers kNamedChoice = {"`tool_choice` of a function", kTypeAndName};
constinit const ObjectMembers kAllowedChoice = {"`tool_choice` of `allowed_tools`",
                                                kTypeModeAndTools};
constinit const ObjectMembers kAllowedTool = {"`tool_choice.tools[]`", kTypeAndName};

absl::Status ReadToolChoice(const Json& body, FunctionForm form, v1::Conversation* conversation,
                            std::vector<int>* places) {
  if (const Json* const choice = Find(body, "tool_choice"); choice != nullptr) {
    v1::ToolChoice parsed;
    RETURN_IF_ERROR(ChoiceReader(form, conversation, places).Read(*choice, &parsed));
    if (!conversation->tools().empty()) {
      *conversation->mutable_tool_choice() = std::move(parsed);
    } else if (parsed.mode() == v1::ToolChoice::MODE_REQUIRED) {
      return protocol::FieldError("tool_choice", "requires a call, and tools has no function");
    }
  }
  std::optional<bool> parallel;
  RETURN_IF_ERROR(Read(body, "parallel_tool_calls", &parallel));
  if (!parallel.value_or(true) && !conversation->tools().empty()) {
    conversation->mutable_tool_choice()->set_single_call(true);
  }
  return absl::OkStatus();
}

}  // namespace continuo::gateway::openai
