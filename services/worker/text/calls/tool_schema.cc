// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/tool_schema.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace continuo::text {
namespace {

using Json = ToolSchema::Json;

constexpr std::string_view kRootOfAlone = "#/$defs/root";

bool IsTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > ToolSchema::kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// These keywords have data under them, not a schema.
bool IsData(std::string_view keyword) {
  return keyword == "const" || keyword == "enum" || keyword == "default" || keyword == "examples";
}

// These keywords have schemas under names of a client's, which are no keywords.
bool NamesSchemas(std::string_view keyword) {
  return keyword == "properties" || keyword == "patternProperties" || keyword == "$defs" ||
         keyword == "definitions";
}

// Lets references of a document find what they name when it is at kRootOfAlone. True where there
// are any.
bool Rewrite(Json& schema) {
  bool found = false;
  if (schema.is_array()) {
    for (Json& one : schema) found |= Rewrite(one);
  }
  if (!schema.is_object()) return found;
  for (auto& [key, value] : schema.items()) {
    if (key == "$ref" && value.is_string()) {
      const auto& reference = value.get_ref<const std::string&>();
      found = true;
      if (reference.starts_with("#/") && reference.size() > 2) {
        value = absl::StrCat(std::string(kRootOfAlone), reference.substr(1));
      } else if (reference == "#" || reference == "#/") {
        value = std::string(kRootOfAlone);
      }
    } else if (NamesSchemas(key) && value.is_object()) {
      for (auto& [name, part] : value.items()) found |= Rewrite(part);
    } else if (!IsData(key)) {
      found |= Rewrite(value);
    }
  }
  return found;
}

// Returns whether arguments that the schema does not list are left out: they are where nothing
// tells of them, since no function takes what it does not know.
bool IsClosed(const Json& root) {
  const auto properties = root.find("properties");
  if (properties == root.end() || !properties->is_object() || properties->empty()) return false;
  for (const std::string_view open :
       {"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames",
        "minProperties", "allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "not",
        "dependentSchemas", "dependentRequired"}) {
    if (root.contains(open)) return false;
  }
  const auto required = root.find("required");
  if (required == root.end() || !required->is_array()) return true;
  return std::all_of(required->begin(), required->end(), [&](const Json& name) {
    return name.is_string() && properties->contains(name.get_ref<const std::string&>());
  });
}

}  // namespace

bool ToolSchema::IsAnnotation(std::string_view keyword) {
  constexpr std::array<std::string_view, 15> kKnown = {
      "title", "description", "default",  "examples",  "example",  "$comment",   "$schema", "$id",
      "$defs", "definitions", "readOnly", "writeOnly", "nullable", "deprecated", "strict"};
  return std::find(kKnown.begin(), kKnown.end(), keyword) != kKnown.end() ||
         keyword.starts_with("x-");
}

std::optional<std::string_view> ToolSchema::OtherThan(
    const Json& schema, std::initializer_list<std::string_view> keywords) {
  for (auto item = schema.begin(); item != schema.end(); ++item) {
    const bool is_one = std::find(keywords.begin(), keywords.end(), item.key()) != keywords.end();
    if (!is_one && !IsAnnotation(item.key())) return item.key();
  }
  return std::nullopt;
}

bool ToolSchema::IsAny(const Json& schema) {
  return schema == true || (schema.is_object() && !OtherThan(schema, {}).has_value());
}

absl::StatusOr<ToolSchema> ToolSchema::Parse(std::string_view text) {
  ToolSchema schema;
  if (IsTooDeep(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameters are nested deeper than ", kMaxDepth, " levels"));
  }
  schema.root_ = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
  if (!schema.root_.is_object()) {
    return absl::InvalidArgumentError("parameters must be a JSON object");
  }
  Json& root = schema.root_;
  root.erase("x-guidance");
  if (const auto type = root.find("type"); type != root.end()) {
    const bool takes_object = type->is_array()
                                  ? std::find(type->begin(), type->end(), "object") != type->end()
                                  : *type == "object";
    if (!takes_object) {
      return absl::InvalidArgumentError("parameters must have the type \"object\"");
    }
  }
  root["type"] = "object";
  if (IsClosed(root)) root["additionalProperties"] = false;
  return schema;
}

Json ToolSchema::Alone(const Json& part) const {
  if (&part == &root_) return root_;
  if (!part.is_object()) return part == false ? Json{{"not", Json::object()}} : Json::object();
  Json alone = part;
  alone.erase("x-guidance");
  if (!Rewrite(alone)) return alone;
  alone.erase("definitions");
  Json root = root_;
  Rewrite(root);
  alone["$defs"] = {{"root", std::move(root)}};
  return alone;
}

Json ToolSchema::CallValue(const char* name_key, std::string_view name,
                           const char* arguments_key) const {
  Json arguments = root_;
  Json call = {
      {"type", "object"}, {"required", {name_key, arguments_key}}, {"additionalProperties", false}};
  if (Rewrite(arguments)) call["$defs"] = {{"root", arguments}};
  call["properties"] = {{name_key, {{"const", std::string(name)}}}, {arguments_key, arguments}};
  return call;
}

const Json* ToolSchema::Find(std::string_view reference) const {
  if (!reference.starts_with("#")) return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root_;
  while (!reference.empty()) {
    if (reference.front() != '/') return nullptr;
    reference.remove_prefix(1);
    const std::string_view raw = reference.substr(0, reference.find('/'));
    reference.remove_prefix(raw.size());
    const std::string key =
        absl::StrReplaceAll(absl::StrReplaceAll(std::string(raw), {{"~1", "/"}}), {{"~0", "~"}});
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &at->at(key);
  }
  return at;
}

}  // namespace continuo::text
