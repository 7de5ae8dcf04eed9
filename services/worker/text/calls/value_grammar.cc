// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/value_grammar.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace continuo::text {
namespace {

using Json = ToolSchema::Json;

constexpr uint64_t kMaxItems = 1'000;

bool HasOnly(const Json& schema, std::initializer_list<std::string_view> keywords) {
  return !ToolSchema::OtherThan(schema, keywords).has_value();
}

bool IsBareKey(std::string_view key) {
  return !key.empty() && !absl::ascii_isdigit(key.front()) &&
         std::all_of(key.begin(), key.end(),
                     [](unsigned char c) { return c == '_' || absl::ascii_isalnum(c); });
}

bool IsCount(const Json& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ||
         (found->is_number_integer() && *found >= 0 && *found <= kMaxItems);
}

std::string Either(const std::vector<std::string>& options) {
  return options.size() == 1 ? options.front()
                             : absl::StrCat("(", absl::StrJoin(options, " | "), ")");
}

}  // namespace

std::string ValueGrammar::Value(const Json& schema) {
  if (lark_.is_full()) return "\"\"";
  const auto json = [&] { return lark_.Rule(Lark::JsonValue(schema_.Alone(schema))); };
  if (ToolSchema::IsAny(schema)) return Any();
  if (!schema.is_object()) return json();
  if (schema.contains("$ref") && HasOnly(schema, {"$ref"}) && schema["$ref"].is_string()) {
    return Reference(schema["$ref"]);
  }
  if (schema.contains("const") && HasOnly(schema, {"const"})) return Constant(schema["const"]);
  if (schema.contains("enum") && HasOnly(schema, {"enum", "type"}) && schema["enum"].is_array() &&
      !schema["enum"].empty()) {
    const bool is_of_type = !schema.contains("type") ||
                            (schema["type"] == "string" &&
                             std::all_of(schema["enum"].begin(), schema["enum"].end(),
                                         [](const Json& value) { return value.is_string(); }));
    if (!is_of_type) return json();
    std::vector<std::string> options;
    for (const Json& value : schema["enum"]) options.push_back(Constant(value));
    return lark_.Rule(Either(options));
  }
  if (schema.contains("anyOf") && HasOnly(schema, {"anyOf"}) && schema["anyOf"].is_array() &&
      !schema["anyOf"].empty()) {
    std::vector<std::string> options;
    for (const Json& option : schema["anyOf"]) options.push_back(Value(option));
    return lark_.Rule(Either(options));
  }
  const auto type = schema.find("type");
  if (type == schema.end()) return json();
  if (type->is_string()) return Typed(schema, type->get<std::string>());
  if (!type->is_array() || type->empty()) return json();
  std::vector<std::string> options;
  for (const Json& one : *type) {
    if (!one.is_string()) return json();
    Json single = schema;
    single["type"] = one;
    options.push_back(Value(single));
  }
  return lark_.Rule(Either(options));
}

std::string ValueGrammar::Reference(const std::string& reference) {
  const auto known = references_.find(reference);
  if (known != references_.end()) return known->second;
  const Json* const target = schema_.Find(reference);
  if (target == nullptr) return lark_.Rule(Lark::JsonValue({{"$ref", reference}}));
  const std::string name = lark_.Forward();
  references_[reference] = name;
  lark_.Define(name, Value(*target));
  return name;
}

std::string ValueGrammar::Typed(const Json& schema, const std::string& type) {
  if ((type == "boolean" || type == "null") && HasOnly(schema, {"type"})) {
    if (type == "null") return Word(nullptr);
    return lark_.Rule(absl::StrCat(Word(true), " | ", Word(false)));
  }
  if (type == "string" && dialect_.has_bare_strings() && HasOnly(schema, {"type"})) {
    return BareText();
  }
  if (type == "array" && HasOnly(schema, {"type", "items", "minItems", "maxItems"}) &&
      IsCount(schema, "minItems") && IsCount(schema, "maxItems")) {
    return Array(schema);
  }
  if (type == "object" &&
      HasOnly(schema, {"type", "properties", "required", "additionalProperties"})) {
    return Object(schema);
  }
  return lark_.Rule(Lark::JsonValue(schema_.Alone(schema)));
}

std::string ValueGrammar::Word(const Json& value) const {
  if (!dialect_.python) return Lark::Literal(value.dump());
  return value.is_null() ? "\"None\"" : value == true ? "\"True\"" : "\"False\"";
}

std::string ValueGrammar::BareText() {
  if (bare_text_.empty()) {
    const std::string text = absl::StrCat(
        "(/(?s:.*)/ & ~", Lark::Regex(absl::StrCat("(?s:.*)", dialect_.never_in_string, "(?s:.*)")),
        ")");
    // The lexer would take the beginning of a close that is text for a part of the string.
    const std::string closed =
        dialect_.close_is_text ? lark_.LazyTerminal(absl::StrCat(text, " ", dialect_.string_close))
                               : absl::StrCat(lark_.Terminal(absl::StrCat(text, " & /(?s:.+)/")),
                                              "? ", dialect_.string_close);
    bare_text_ = lark_.Rule(absl::StrCat(dialect_.string_open, " ", closed));
  }
  return bare_text_;
}

std::string ValueGrammar::Constant(const Json& value) {
  if (value.is_boolean() || value.is_null()) return Word(value);
  if (value.is_object() || value.is_array()) {
    std::string body;
    for (auto item = value.begin(); item != value.end(); ++item) {
      if (!body.empty()) absl::StrAppend(&body, " ", Lark::Literal(dialect_.comma), " ");
      if (value.is_object()) absl::StrAppend(&body, Key(item.key()), " ");
      absl::StrAppend(&body, Constant(*item));
    }
    return value.is_object() ? absl::StrCat("\"{\" ", body, " \"}\"")
                             : absl::StrCat("\"[\" ", body, " \"]\"");
  }
  if (value.is_string() && dialect_.has_bare_strings()) {
    const auto& text = value.get_ref<const std::string&>();
    // Text that might be a marker goes between JSON's quotes.
    if (text.find_first_of("<|>[]") == text.npos) {
      return absl::StrCat(dialect_.string_open, " ", Lark::Literal(text), " ",
                          dialect_.string_close);
    }
  }
  return Lark::Literal(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string ValueGrammar::Key(std::string_view key) {
  const std::string text =
      dialect_.has_bare_strings() && IsBareKey(key)
          ? std::string(key)
          : Json(std::string(key)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Lark::Literal(absl::StrCat(text, std::string(dialect_.colon)));
}

std::string ValueGrammar::List(const std::vector<Item>& items, std::string_view more) {
  const std::string comma = Lark::Literal(dialect_.comma);
  // `behind` is the rest of the list where an item stands before it, and `first` where none does.
  // Both are written from the end.
  std::string behind, first;
  if (!more.empty()) {
    behind = lark_.Rule(absl::StrCat("(", comma, " ", std::string(more), ")*"));
    first = lark_.Rule(absl::StrCat("(", std::string(more), " ", behind, ")?"));
  } else {
    behind = first = lark_.Rule("\"\"");
  }
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    const std::string new_first = absl::StrCat(item->body, " ", behind);
    const std::string new_behind = absl::StrCat(comma, " ", item->body, " ", behind);
    const std::string first_without = item->required ? "" : absl::StrCat(" | ", first);
    const std::string behind_without = item->required ? "" : absl::StrCat(" | ", behind);
    first = lark_.Rule(new_first + first_without);
    behind = lark_.Rule(new_behind + behind_without);
  }
  return first;
}

std::string ValueGrammar::Object(const Json& schema) {
  const auto json = [&] { return lark_.Rule(Lark::JsonValue(schema_.Alone(schema))); };
  const Json none = Json::object();
  const Json& properties = schema.contains("properties") ? schema["properties"] : none;
  const Json required = schema.value("required", Json::array());
  const auto more = schema.find("additionalProperties");
  if (!properties.is_object() || !required.is_array()) return json();
  const bool is_open = more != schema.end() && *more != false;
  if (is_open && !properties.empty()) return json();
  std::vector<Item> items;
  for (const auto& [key, value] : properties.items()) {
    const bool is_required = std::find(required.begin(), required.end(), key) != required.end();
    items.push_back({absl::StrCat(Key(key), " ", Value(value)), is_required});
  }
  for (const Json& key : required) {
    if (!key.is_string()) return json();
    if (properties.contains(key.get_ref<const std::string&>())) continue;
    if (more != schema.end()) return json();
    items.push_back({absl::StrCat(Key(key.get_ref<const std::string&>()), " ", Any()), true});
  }
  std::string others;
  if (properties.empty() && (more == schema.end() || *more != false)) {
    if (!required.empty()) return json();
    if (any_string_.empty()) any_string_ = lark_.Rule(Lark::JsonValue({{"type", "string"}}));
    std::string key = absl::StrCat(any_string_, " ", Lark::Literal(dialect_.colon));
    if (dialect_.has_bare_strings()) {
      key = lark_.Terminal(
          absl::StrCat("/[A-Za-z_][A-Za-z0-9_]{0,63}/ ", Lark::Literal(dialect_.colon)));
    }
    others = absl::StrCat(key, " ", more == schema.end() ? Any() : Value(*more));
  }
  return lark_.Rule(absl::StrCat("\"{\" ", List(items, others), " \"}\""));
}

std::string ValueGrammar::Array(const Json& schema) {
  const auto least = schema.value("minItems", uint64_t{0});
  const auto most = schema.value("maxItems", uint64_t{kMaxItems + 1});
  const std::string item = schema.contains("items") ? Value(schema["items"]) : Any();
  const std::string comma = Lark::Literal(dialect_.comma);
  if (most < least) return lark_.Rule(Lark::JsonValue(schema_.Alone(schema)));
  if (most == 0) return "\"[\" \"]\"";
  const uint64_t few = least == 0 ? 0 : least - 1;
  const std::string range = most > kMaxItems ? absl::StrCat("{", few, ",}")
                            : most == 1      ? std::string()
                                             : absl::StrCat("{", few, ",", most - 1, "}");
  const std::string others = range.empty() ? "" : absl::StrCat(" (", comma, " ", item, ")", range);
  const std::string inside = absl::StrCat("(", item, others, ")", least == 0 ? "?" : "");
  return lark_.Rule(absl::StrCat("\"[\" ", inside, " \"]\""));
}

std::string ValueGrammar::Any() {
  if (!any_.empty()) return any_;
  any_ = lark_.Forward();
  if (any_string_.empty()) any_string_ = lark_.Rule(Lark::JsonValue({{"type", "string"}}));
  const std::string text = dialect_.has_bare_strings() ? BareText() : any_string_;
  const std::string comma = Lark::Literal(dialect_.comma);
  const std::string object = Object(Json::object());
  lark_.Define(any_,
               absl::StrCat(text, " | ", lark_.Rule(Lark::JsonValue({{"type", "number"}})), " | ",
                            Word(true), " | ", Word(false), " | ", Word(nullptr), " | ", object,
                            " | \"[\" (", any_, " (", comma, " ", any_, ")*)? \"]\""));
  return any_;
}

}  // namespace continuo::text
