// SPDX-License-Identifier: Apache-2.0
#include "services/cli/chat/tool_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/base/json_text.h"
#include "services/base/status_macros.h"

namespace continuo::cli {
namespace {

// Keeps the members of schemas in the file's order, which the model sees.
using Json = nlohmann::ordered_json;

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxWords = 1024;
constexpr int kMaxDepth = 64;

// `what` stands for a member: "tools.json: [0].command".
absl::Status Bad(const std::string& where, std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(where, " ", std::string(message)));
}

absl::Status CheckMembers(const Json& object, const std::string& where,
                          std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Bad(where, absl::StrCat("has the unknown member \"", name, "\""));
    }
  }
  return absl::OkStatus();
}

bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-';
         });
}

absl::StatusOr<v1::Tool> ParseDefinition(const Json& json, const std::string& where) {
  if (!json.is_object()) return Bad(where, "is no object");
  RETURN_IF_ERROR(CheckMembers(json, where, {"name", "description", "parameters", "strict"}));
  v1::Tool tool;
  if (!json.contains("name") || !json["name"].is_string() ||
      !IsName(json["name"].get_ref<const std::string&>())) {
    return Bad(where + ".name", "is no name of 1 to 64 letters, digits, _ and -");
  }
  tool.set_name(json["name"].get<std::string>());
  if (json.contains("description")) {
    if (!json["description"].is_string()) return Bad(where + ".description", "is no string");
    tool.set_description(json["description"].get<std::string>());
  }
  if (json.contains("parameters")) {
    if (!json["parameters"].is_object()) return Bad(where + ".parameters", "is no object");
    tool.set_parameters(json["parameters"].dump());
  }
  if (json.contains("strict")) {
    if (!json["strict"].is_boolean()) return Bad(where + ".strict", "is neither true nor false");
    tool.set_strict(json["strict"].get<bool>());
  }
  return tool;
}

absl::StatusOr<std::vector<std::string>> ParseCommand(const Json& json, const std::string& where) {
  if (!json.is_array() || json.empty() || json.size() > kMaxWords) {
    return Bad(where, "is no array of a program and its arguments");
  }
  std::vector<std::string> command;
  for (const Json& word : json) {
    if (!word.is_string()) return Bad(where, "has an item that is no string");
    command.push_back(word.get<std::string>());
    if (command.back().find('\0') != std::string::npos) return Bad(where, "has a NUL character");
  }
  if (command.front().empty()) return Bad(where, "has an empty program");
  return command;
}

absl::StatusOr<LocalTool> ParseTool(const Json& json, const std::string& where) {
  if (!json.is_object()) return Bad(where, "is no object");
  RETURN_IF_ERROR(CheckMembers(json, where, {"type", "function", "command"}));
  if (!json.contains("type") || json["type"] != "function") {
    return Bad(where + ".type", "is not \"function\"");
  }
  for (const char* member : {"function", "command"}) {
    if (!json.contains(member)) return Bad(absl::StrCat(where, ".", member), "is missing");
  }
  LocalTool tool;
  ASSIGN_OR_RETURN(tool.definition, ParseDefinition(json["function"], where + ".function"));
  ASSIGN_OR_RETURN(tool.command, ParseCommand(json["command"], where + ".command"));
  return tool;
}

}  // namespace

absl::StatusOr<std::vector<LocalTool>> ParseTools(const std::string& name, std::string_view text) {
  RETURN_IF_ERROR(CheckJson(name, text, kMaxDepth));
  const Json json = Json::parse(text);
  if (!json.is_array() || json.empty() || json.size() > kMaxTools) {
    return Bad(name + ":", absl::StrCat("is no array of 1 to ", kMaxTools, " tools"));
  }
  std::vector<LocalTool> tools;
  std::set<std::string> names;
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string where = absl::StrCat(name, ": [", i, "]");
    ASSIGN_OR_RETURN(LocalTool tool, ParseTool(json[i], where));
    if (!names.insert(tool.definition.name()).second) {
      return Bad(where + ".function.name",
                 absl::StrCat("\"", tool.definition.name(), "\" is that of another tool"));
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}

absl::StatusOr<std::vector<LocalTool>> ReadTools(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has more than ", kMaxFileBytes, " bytes"));
  }
  return ParseTools(path, text);
}

}  // namespace continuo::cli
