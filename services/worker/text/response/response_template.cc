// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/response_template.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/status_macros.h"

namespace continuo::text {
namespace {

using Json = nlohmann::ordered_json;
using Channel = ResponseField::Channel;
using Syntax = ResponseField::Syntax;

absl::Status Refuse(std::string_view where, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("response_template: ", std::string(where), " ", std::string(what)));
}

absl::Status CheckKeys(std::string_view where, const Json& object,
                       std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    bool found = false;
    for (const std::string_view name : known) found |= key == name;
    if (!found) return Refuse(where, absl::StrCat("has an unknown \"", key, "\""));
  }
  return absl::OkStatus();
}

// The string at `key`, "" without one.
absl::StatusOr<std::string> StringAt(std::string_view where, const Json& object,
                                     std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  if (!found->is_string())
    return Refuse(where, absl::StrCat("has a \"", std::string(key), "\" that is no string"));
  return found->get<std::string>();
}

// Reads the marker `name`, or the regular expression `name`_pattern. False without either.
absl::StatusOr<bool> ReadMarker(std::string_view where, const Json& object, std::string_view name,
                                Pattern* pattern) {
  const std::string pattern_name = std::string(name) + "_pattern";
  const auto literal = object.find(name);
  if (object.contains(pattern_name)) {
    if (literal != object.end()) {
      return Refuse(
          where, absl::StrCat("has both \"", std::string(name), "\" and \"", pattern_name, "\""));
    }
    ASSIGN_OR_RETURN(const std::string regex, StringAt(where, object, pattern_name));
    auto compiled = Pattern::Compile(regex);
    if (!compiled.ok()) return Refuse(where, std::string(compiled.status().message()));
    *pattern = *std::move(compiled);
    return true;
  }
  if (literal == object.end()) return false;
  std::vector<std::string> literals;
  for (const Json& one : literal->is_array() ? *literal : Json::array({*literal})) {
    if (!one.is_string() || one.get<std::string>().empty() ||
        one.get<std::string>().size() > Pattern::kMaxLength / 2) {
      return Refuse(where, absl::StrCat("has a \"", std::string(name),
                                        "\" that is no string, or empty or long"));
    }
    literals.push_back(one.get<std::string>());
  }
  if (literals.empty() || literals.size() > 64) {
    return Refuse(where, absl::StrCat("has none or too many of \"", std::string(name), "\""));
  }
  *pattern = Pattern::OfLiterals(std::move(literals));
  return true;
}

// The NAME of "{NAME}".
bool IsPlaceholder(const Json& value, std::string* name) {
  if (!value.is_string()) return false;
  const std::string text = value.get<std::string>();
  if (text.size() < 3 || text.front() != '{' || text.back() != '}') return false;
  *name = text.substr(1, text.size() - 2);
  return true;
}

// Reads where a call's name and arguments are: transform gives them as an object's members.
absl::Status ReadTransform(std::string_view where, const Json& object, ResponseField& field) {
  const bool each = object.value("transform_each", false);
  const auto transform = object.find("transform");
  if (transform == object.end()) {
    field.name_key = "name";
    field.arguments_key = "arguments";
    return absl::OkStatus();
  }
  const auto refuse = [&] { return Refuse(where, "has a \"transform\" that is not supported"); };
  if (!transform->is_object() || !transform->contains("function")) return refuse();
  const Json& function = transform->at("function");
  std::string name, arguments;
  if (IsPlaceholder(function, &name)) {
    if (name != "content" || each) return refuse();
    field.name_key = "name";
    field.arguments_key = "arguments";
    return absl::OkStatus();
  }
  if (!function.is_object() || !function.contains("name") || !function.contains("arguments") ||
      !IsPlaceholder(function["name"], &name) ||
      !IsPlaceholder(function["arguments"], &arguments)) {
    return refuse();
  }
  // A key of the content is "content.KEY", or with transform_each "KEY".
  const auto key_of = [&](std::string_view placeholder, std::string* key) {
    constexpr std::string_view kContent = "content.";
    if (!each && !placeholder.starts_with(kContent)) return false;
    if (!each) placeholder.remove_prefix(kContent.size());
    *key = std::string(placeholder);
    return placeholder.find('.') == placeholder.npos;
  };
  if (field.open.has_group(name)) {
    if (name != "name") return Refuse(where, "has a name in a group that is not called \"name\"");
    field.name_in_open = true;
  } else if (!key_of(name, &field.name_key)) {
    return refuse();
  }
  if (arguments == "content" && !each) return absl::OkStatus();
  return key_of(arguments, &field.arguments_key) ? absl::OkStatus() : refuse();
}

absl::Status ReadJsonDialect(std::string_view where, const Json& arguments, ResponseField& field) {
  RETURN_IF_ERROR(
      CheckKeys(where, arguments, {"unquoted_keys", "string_delims", "allow_non_json"}));
  field.unquoted_keys = arguments.value("unquoted_keys", false);
  if (!arguments.contains("string_delims")) return absl::OkStatus();
  for (const Json& pair : arguments["string_delims"]) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string() ||
        pair[0].get<std::string>().empty() || pair[1].get<std::string>().empty()) {
      return Refuse(where, "has \"string_delims\" that are no pairs of strings");
    }
    field.string_delimiters.emplace_back(pair[0], pair[1]);
  }
  return absl::OkStatus();
}

absl::Status ReadTags(std::string_view where, const Json& arguments, ResponseField& field) {
  RETURN_IF_ERROR(CheckKeys(where, arguments, {"tag_pattern", "value_parser", "merge_duplicates"}));
  ASSIGN_OR_RETURN(const std::string regex, StringAt(where, arguments, "tag_pattern"));
  auto around = Pattern::SplitAt(regex, "value");
  if (!around.ok()) return Refuse(where, std::string(around.status().message()));
  field.tag_open = std::move(around->before);
  field.tag_close = std::move(around->after);
  if (field.tag_open.has_group("key")) return absl::OkStatus();
  return Refuse(where, "has a \"tag_pattern\" without the group \"key\" before \"value\"");
}

absl::Status ReadCalls(std::string_view where, const Json& object, ResponseField& field) {
  RETURN_IF_ERROR(ReadTransform(where, object, field));
  const auto found = object.find("content_args");
  const Json arguments = found == object.end() ? Json::object() : *found;
  if (!arguments.is_object()) return Refuse(where, "has \"content_args\" that are no object");
  ASSIGN_OR_RETURN(const std::string content, StringAt(where, object, "content"));
  if (content == "json") {
    field.syntax = Syntax::kJson;
    RETURN_IF_ERROR(ReadJsonDialect(where, arguments, field));
    if (!field.name_key.empty() && field.arguments_key.empty()) {
      return Refuse(where, "has a name inside of the arguments");
    }
    const bool is_dialect = field.unquoted_keys || !field.string_delimiters.empty();
    if (is_dialect && !(field.name_in_open && field.arguments_key.empty())) {
      return Refuse(where, "has a dialect of JSON for more than the arguments");
    }
    return absl::OkStatus();
  }
  if (content == "xml-inline") {
    field.syntax = Syntax::kTags;
    if (!field.name_in_open || !field.arguments_key.empty()) {
      return Refuse(where, "has tags, and no name before them");
    }
    if (!field.has_close) return Refuse(where, "has tags, and no end");
    return ReadTags(where, arguments, field);
  }
  if (content == "python") {
    field.syntax = Syntax::kPython;
    field.name_in_open = field.open.has_group("name");
    return absl::OkStatus();
  }
  return Refuse(where, absl::StrCat("has the content \"", content, "\", which is not supported"));
}

absl::StatusOr<ResponseField> ReadField(const std::string& name, const Json& object) {
  const std::string where = absl::StrCat("field \"", name, "\"");
  if (!object.is_object()) return Refuse(where, "is no object");
  RETURN_IF_ERROR(
      CheckKeys(where, object,
                {"open", "open_pattern", "close", "close_pattern", "content", "content_args",
                 "repeats", "join", "optional", "transform", "transform_each"}));
  ResponseField field{.name = name};
  ASSIGN_OR_RETURN(field.has_open, ReadMarker(where, object, "open", &field.open));
  ASSIGN_OR_RETURN(field.has_close, ReadMarker(where, object, "close", &field.close));
  if (name == "tool_calls") {
    field.channel = Channel::kCalls;
    if (!field.has_open) return Refuse(where, "has no \"open\"");
    RETURN_IF_ERROR(ReadCalls(where, object, field));
    return field;
  }
  if (name == "thinking" || name == "reasoning" || name == "reasoning_content") {
    field.channel = Channel::kReasoning;
  }
  const auto arguments = object.find("content_args");
  if (arguments != object.end() && arguments->is_object()) {
    field.strip = arguments->value("strip", true);
  }
  return field;
}

absl::StatusOr<ResponseTemplate> ReadTemplate(const Json& json) {
  if (!json.is_object()) return Refuse("it", "is no JSON object");
  RETURN_IF_ERROR(CheckKeys("it", json,
                            {"version", "defaults", "fields", "start_anchor",
                             "start_anchor_pattern", "ignore", "text_header_pattern"}));
  if (json.contains("version") && json["version"] != 1) return Refuse("it", "is not of version 1");
  ResponseTemplate result;
  ASSIGN_OR_RETURN(result.has_anchor, ReadMarker("it", json, "start_anchor", &result.anchor));
  ASSIGN_OR_RETURN(result.has_text_header,
                   ReadMarker("it", json, "text_header", &result.text_header));
  if (!json.contains("fields") || !json["fields"].is_object() || json["fields"].empty() ||
      json["fields"].size() > 32) {
    return Refuse("it", "has no \"fields\", or too many");
  }
  for (const auto& [name, object] : json["fields"].items()) {
    ASSIGN_OR_RETURN(ResponseField field, ReadField(name, object));
    if (!field.has_open) {
      if (result.implicit >= 0) return Refuse("it", "has two fields without an \"open\"");
      result.implicit = static_cast<int>(result.fields.size());
    }
    result.fields.push_back(std::move(field));
  }
  if (!json.contains("ignore")) return result;
  for (const Json& regex : json["ignore"]) {
    if (!regex.is_string()) return Refuse("it", "has an \"ignore\" that is no list of strings");
    auto pattern = Pattern::Compile(regex.get<std::string>());
    if (!pattern.ok()) return Refuse("\"ignore\"", std::string(pattern.status().message()));
    result.ignored.push_back(*std::move(pattern));
  }
  return result;
}

}  // namespace

absl::StatusOr<ResponseTemplate> ResponseTemplate::Parse(std::string_view json) {
  if (json.size() > kMaxBytes) {
    return Refuse("it", absl::StrCat("has ", json.size(), " bytes, the limit is ", kMaxBytes));
  }
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return Refuse("it", "is no JSON");
  try {
    return ReadTemplate(parsed);
  } catch (const Json::exception& e) {  // a member of another type
    return Refuse("it", absl::StrCat("is malformed: ", e.what()));
  }
}

}  // namespace continuo::text
