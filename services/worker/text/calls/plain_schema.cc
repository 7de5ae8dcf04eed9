// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/plain_schema.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/utf8.h"

namespace continuo::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAny[] = "plain value";
constexpr char kAnyReference[] = "#/$defs/plain value";

// A character outside of a class, and in one.
std::string Escaped(std::string_view character) {
  constexpr std::string_view kMeta = "\\.+*?()[]{}^$|-/&~#";
  const bool is_plain = character.size() > 1 || kMeta.find(character[0]) == kMeta.npos;
  return absl::StrCat(is_plain ? "" : "\\", std::string(character));
}

bool HasAny(const Json& schema, std::initializer_list<const char*> keywords) {
  return std::any_of(keywords.begin(), keywords.end(),
                     [&](const char* keyword) { return schema.contains(keyword); });
}

class Rewriter {
 public:
  explicit Rewriter(std::string pattern) : pattern_(std::move(pattern)) {}

  Json Rewrite(Json schema) {
    if (schema == true) return AnyValue();
    if (!schema.is_object()) return schema;
    for (const char* keyword : {"properties", "patternProperties", "$defs", "definitions"}) {
      if (!schema.contains(keyword) || !schema[keyword].is_object()) continue;
      for (auto& [name, part] : schema[keyword].items()) part = Rewrite(std::move(part));
    }
    for (const char* keyword : {"anyOf", "oneOf", "allOf", "prefixItems"}) {
      if (!schema.contains(keyword) || !schema[keyword].is_array()) continue;
      for (Json& part : schema[keyword]) part = Rewrite(std::move(part));
    }
    if (schema.contains("items")) schema["items"] = Rewrite(std::move(schema["items"]));
    const bool is_whole =
        HasAny(schema, {"$ref", "anyOf", "oneOf", "allOf", "const", "enum", "not"});
    if (!schema.contains("type") && !is_whole) {
      const char* const type = TypeOf(schema);
      if (type == nullptr) return AnyBeside(std::move(schema));
      schema["type"] = type;
    }
    if (Has(schema, "string")) NarrowString(schema);
    if (Has(schema, "array") && !schema.contains("items")) schema["items"] = AnyValue();
    if (Has(schema, "object")) NarrowObject(schema);
    return schema;
  }

  // Returns the schema of any value; call it last.
  Json Any() const {
    const Json any = AnyValue();
    return {{"anyOf",
             {{{"type", "null"}},
              {{"type", "boolean"}},
              {{"type", "number"}},
              {{"type", "string"}, {"pattern", pattern_}},
              {{"type", "array"}, {"items", any}},
              {{"type", "object"},
               {"patternProperties", {{pattern_, any}}},
               {"additionalProperties", false}}}}};
  }
  bool needs_any() const { return needs_any_; }

 private:
  Json AnyValue() const {
    needs_any_ = true;
    return {{"$ref", kAnyReference}};
  }
  Json AnyBeside(Json schema) const {
    needs_any_ = true;
    schema["$ref"] = kAnyReference;
    return schema;
  }

  // The type that a schema without one is about; null: none.
  static const char* TypeOf(const Json& schema) {
    if (HasAny(schema, {"properties", "required", "additionalProperties", "patternProperties",
                        "minProperties", "maxProperties"})) {
      return "object";
    }
    if (HasAny(schema, {"items", "prefixItems", "minItems", "maxItems"})) return "array";
    if (HasAny(schema, {"minLength", "maxLength", "pattern", "format"})) return "string";
    if (HasAny(schema,
               {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
      return "number";
    }
    return nullptr;
  }

  static bool Has(const Json& schema, const char* type) {
    const auto types = schema.find("type");
    if (types == schema.end()) return false;
    return types->is_array() ? std::find(types->begin(), types->end(), type) != types->end()
                             : *types == type;
  }

  void NarrowString(Json& schema) const {
    if (HasAny(schema, {"const", "enum"})) return;
    if (!schema.contains("pattern")) {
      schema["pattern"] = pattern_;
      return;
    }
    if (!schema.contains("allOf") || !schema["allOf"].is_array()) schema["allOf"] = Json::array();
    schema["allOf"].push_back({{"type", "string"}, {"pattern", pattern_}});
  }

  void NarrowObject(Json& schema) {
    if (HasAny(schema, {"patternProperties", "$ref", "anyOf", "oneOf", "allOf", "const", "enum"})) {
      return;
    }
    const auto properties = schema.find("properties");
    const bool lists = properties != schema.end() && !properties->empty();
    const bool is_closed =
        schema.contains("additionalProperties") && schema["additionalProperties"] == false;
    if (is_closed) return;
    if (!lists) {
      const bool says = schema.contains("additionalProperties");
      schema["patternProperties"] = {
          {pattern_, says ? Rewrite(schema["additionalProperties"]) : AnyValue()}};
    }
    // A required member that is not listed needs them.
    const Json required = schema.value("required", Json::array());
    for (const Json& name : required) {
      if (!name.is_string() || (lists && properties->contains(name.get<std::string>()))) continue;
      schema["properties"][name.get<std::string>()] = AnyValue();
    }
    schema["additionalProperties"] = false;
  }

  const std::string pattern_;
  mutable bool needs_any_ = false;
};

}  // namespace

std::string TextWithout(std::string_view marker) {
  std::vector<std::string> characters;
  for (size_t at = 0; at < marker.size();) {
    const size_t length = std::max<size_t>(1, Utf8CharacterLength(marker.substr(at)));
    characters.emplace_back(marker.substr(at, length));
    at += length;
  }
  if (characters.empty() ||
      std::count(characters.begin(), characters.end(), characters.front()) > 1) {
    return "";
  }
  // The marker's first character, then a part of what follows it there, then something else.
  const std::string first = Escaped(characters.front());
  std::string rest;
  for (size_t i = characters.size() - 1; i > 0; --i) {
    const std::string next = Escaped(characters[i]);
    const std::string other = absl::StrCat("[^", first, next, "][^", first, "]*");
    rest = i + 1 == characters.size() ? absl::StrCat("(?:", other, ")?")
                                      : absl::StrCat("(?:", other, "|", next, rest, ")?");
  }
  if (characters.size() == 1) return absl::StrCat("^[^", first, "]*$");
  return absl::StrCat("^[^", first, "]*(?:", first, rest, ")*$");
}

Json WithoutMarker(Json schema, std::string_view marker) {
  const std::string pattern = TextWithout(marker);
  if (pattern.empty()) return schema;
  Rewriter rewriter(pattern);
  schema = rewriter.Rewrite(std::move(schema));
  if (!rewriter.needs_any()) return schema;
  schema["$defs"][kAny] = rewriter.Any();
  return schema;
}

}  // namespace continuo::text
