// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/argument_grammar.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/worker/text/calls/plain_schema.h"
#include "services/worker/text/calls/raw_text.h"
#include "services/worker/text/calls/value_grammar.h"
#include "services/worker/text/response/json_scanner.h"
#include "services/worker/text/response/pattern_text.h"
#include "services/worker/text/response/spaces.h"

namespace continuo::text {
namespace {

using Json = ToolSchema::Json;
using Syntax = ResponseField::Syntax;

constexpr char kAnyKey[] = "/[A-Za-z_][A-Za-z0-9_]{0,63}/";

// The parameters that a schema lists, where it says nothing else of them than which are needed.
struct Parameters {
  struct One {
    std::string name;
    const Json* schema = nullptr;
    bool required = false;
  };
  std::vector<One> listed;
  // Others may be there, as this says; null: none may.
  const Json* others = nullptr;
};

absl::StatusOr<Parameters> ParametersOf(const ToolSchema& schema) {
  static const Json* const kAny = new Json(true);
  const Json* root = &schema.root();
  // The schema may be a reference to another one.
  for (int i = 0; i < 16 && root->is_object() && root->contains("$ref"); ++i) {
    if (const auto other = ToolSchema::OtherThan(*root, {"$ref", "type"}); other.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", std::string(*other), "\" beside \"$ref\" is not possible in this model's calls"));
    }
    const Json& reference = root->at("$ref");
    root = reference.is_string() ? schema.Find(reference.get<std::string>()) : nullptr;
    if (root == nullptr) return absl::InvalidArgumentError("\"$ref\" names nothing");
  }
  if (!root->is_object()) return absl::InvalidArgumentError("parameters must be a schema");
  if (const auto other =
          ToolSchema::OtherThan(*root, {"type", "properties", "required", "additionalProperties"});
      other.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", std::string(*other),
                     "\" of the parameters as a whole is not possible in this model's calls"));
  }
  const auto type = root->find("type");
  if (type != root->end() && *type != "object" &&
      !(type->is_array() && std::find(type->begin(), type->end(), "object") != type->end())) {
    return absl::InvalidArgumentError("parameters must have the type \"object\"");
  }
  Parameters parameters;
  const auto properties = root->find("properties");
  const auto required = root->find("required");
  if ((properties != root->end() && !properties->is_object()) ||
      (required != root->end() && !required->is_array())) {
    return absl::InvalidArgumentError("\"properties\" or \"required\" has a wrong type");
  }
  if (properties != root->end()) {
    for (const auto& [key, value] : properties->items()) {
      parameters.listed.push_back({key, &value});
    }
  }
  const auto others = root->find("additionalProperties");
  const Json* const rest = others == root->end() ? kAny : &*others;
  if (required != root->end()) {
    for (const Json& name : *required) {
      if (!name.is_string()) return absl::InvalidArgumentError("\"required\" has no string");
      const auto found = std::find_if(
          parameters.listed.begin(), parameters.listed.end(),
          [&, text = name.get<std::string>()](const auto& one) { return one.name == text; });
      if (found != parameters.listed.end()) {
        found->required = true;
      } else {
        parameters.listed.push_back({name.get<std::string>(), rest, true});
      }
    }
  }
  if (parameters.listed.empty() && *rest != false) parameters.others = rest;
  return parameters;
}

}  // namespace

absl::StatusOr<std::string> ArgumentGrammar::Write(std::string_view tool,
                                                   const ToolSchema& schema) {
  switch (form_.field->syntax) {
    case Syntax::kJson:
      if (form_.field->unquoted_keys || !form_.field->string_delimiters.empty()) {
        return WriteLaxJson(schema);
      }
      return lark_.Rule(Lark::JsonValue(schema.root()));
    case Syntax::kTags:
      return WriteTags(tool, schema);
    case Syntax::kPython:
      return WriteKeywords(schema);
  }
  return "";
}

std::string ArgumentGrammar::WriteLaxJson(const ToolSchema& schema) {
  ValueDialect dialect{.colon = ":", .comma = ","};
  if (!form_.field->string_delimiters.empty() && form_.field->unquoted_keys) {
    const auto& [open, close] = form_.field->string_delimiters.front();
    dialect.string_open = Text(open);
    dialect.string_close = Text(close);
    dialect.close_is_text = DivideAtTokens(close, tokens_).front().token == nullptr;
    dialect.never_in_string = RegexOf(PatternNode::Literal(close));
  }
  return ValueGrammar(&lark_, &schema, &dialect).Value(schema.root());
}

absl::StatusOr<std::string> ArgumentGrammar::WriteKeywords(const ToolSchema& schema) {
  ASSIGN_OR_RETURN(const Parameters parameters, ParametersOf(schema));
  const ValueDialect dialect{.python = true};
  ValueGrammar values(&lark_, &schema, &dialect);
  std::vector<ValueGrammar::Item> items;
  for (const Parameters::One& one : parameters.listed) {
    const bool is_name = !one.name.empty() && !absl::ascii_isdigit(one.name.front()) &&
                         one.name.size() <= OpenCall::kMaxName &&
                         std::all_of(one.name.begin(), one.name.end(), [](unsigned char c) {
                           return c == '_' || absl::ascii_isalnum(c);
                         });
    if (!is_name && one.required) {
      return absl::InvalidArgumentError(absl::StrCat("the parameter ", JsonString(one.name),
                                                     " is no name in this model's calls"));
    }
    if (!is_name) continue;
    items.push_back({absl::StrCat(Lark::Literal(one.name + "="), " ", values.Value(*one.schema)),
                     one.required});
  }
  std::string others;
  if (parameters.others != nullptr) {
    others = absl::StrCat(lark_.Terminal(absl::StrCat(kAnyKey, " \"=\"")), " ",
                          values.Value(*parameters.others));
  }
  return values.List(items, others);
}

absl::StatusOr<std::string> ArgumentGrammar::WriteTags(std::string_view tool,
                                                       const ToolSchema& schema) {
  ASSIGN_OR_RETURN(const Parameters parameters, ParametersOf(schema));
  std::string body;
  for (const Parameters::One& one : parameters.listed) {
    if (!Read(tool, one.name, "1", types_).has_value()) {
      if (!one.required) continue;
      return absl::InvalidArgumentError(absl::StrCat("the parameter ", JsonString(one.name),
                                                     " is no name in this model's calls"));
    }
    auto tag = WriteTag(tool, one.name, *one.schema, schema);
    if (!tag.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("the parameter ", JsonString(one.name), ": ",
                                                     std::string(tag.status().message())));
    }
    absl::StrAppend(&body, body.empty() ? "" : " ", *tag, one.required ? "" : "?");
    if (lark_.is_full()) break;
  }
  if (parameters.others != nullptr) {
    TagValue values;
    if (ToolSchema::IsAny(*parameters.others)) {
      values.texts.push_back(AnyText(0, false));
      values.may_be_empty = true;
    } else {
      values.values.push_back(TagJson(*parameters.others, schema));
    }
    absl::StrAppend(&body, Tag(lark_.Terminal(kAnyKey), false, values), "*");
  }
  return body;
}

// A value that is JSON. Its strings do not have what would end it.
std::string ArgumentGrammar::TagJson(const Json& property, const ToolSchema& schema) {
  if (lark_.is_full()) return "\"\"";
  const std::string_view close =
      std::string_view(form_.parameter).substr(form_.parameter.find(CallForm::kValue) + 1);
  return lark_.Rule(Lark::JsonValue(WithoutMarker(schema.Alone(property), Strip(close))));
}

// Any text that a value may be as it stands, and that is not read as a value of these types.
std::string ArgumentGrammar::AnyText(uint8_t types, bool numbers_are_values) {
  std::string body =
      absl::StrCat("/(?s:.*)/ & ~",
                   Lark::Regex(absl::StrCat("(?s:.*)", form_.field->tag_close.regex(), "(?s:.*)")));
  const auto exclude = [&](std::string_view regex) {
    absl::StrAppend(&body, " & ~", Lark::Regex(regex));
  };
  // White space beside the tags may be read as a part of them.
  ParameterTypes string;
  string.Add("f", R"({"properties": {"a": {"type": "string"}}})");
  if (Read("f", "a", "\nx", string) != "\nx") exclude("\\s(?s:.*)");
  if (Read("f", "a", "x\n", string) != "x\n") exclude("(?s:.*)\\s");
  if (types & ParameterTypes::kNull) exclude("\\s*(?:null|None)\\s*");
  if (types & ParameterTypes::kBoolean) exclude("\\s*(?:[tT]rue|[fF]alse)\\s*");
  if (types & (ParameterTypes::kInteger | ParameterTypes::kNumber)) {
    exclude(numbers_are_values ? "\\s*[\\-0-9](?s:.*)" : "\\s*-?[0-9][0-9.eE+\\-]*\\s*");
  }
  if (types & ParameterTypes::kObject) exclude("\\s*\\{(?s:.*)");
  if (types & ParameterTypes::kArray) exclude("\\s*\\[(?s:.*)");
  return lark_.Terminal(body);
}

std::optional<Json> ArgumentGrammar::Read(std::string_view tool, std::string_view key,
                                          std::string_view text,
                                          const ParameterTypes& types) const {
  TagCallReader reader(form_.field, tool, &types);
  ResponseEvents events;
  for (const char c : FillForm(form_.parameter, "", "", key, text)) reader.Push(c, &events);
  if (!reader.at_rest()) return std::nullopt;
  reader.End(/*closed=*/true, &events);
  std::string arguments;
  for (const ResponseEvent& event : events) {
    if (event.kind == ResponseEvent::Kind::kArguments) arguments += event.bytes;
  }
  const Json parsed = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || parsed.size() != 1 || !parsed.contains(key)) return std::nullopt;
  // In place: json converts to an optional of itself, too, and newer compilers find that ambiguous.
  return std::optional<Json>(std::in_place, parsed[std::string(key)]);
}

absl::Status ArgumentGrammar::AddTagValues(std::string_view tool, std::string_view key,
                                           const Json& property, const ToolSchema& schema,
                                           const std::string& any_text, TagValue* values) {
  if (lark_.is_full()) return absl::OkStatus();
  if (ToolSchema::IsAny(property)) {
    values->texts.push_back(any_text);
    values->may_be_empty = true;
    return absl::OkStatus();
  }
  const auto as_json = [&] {
    values->values.push_back(TagJson(property, schema));
    return absl::OkStatus();
  };
  if (!property.is_object()) return as_json();
  const auto only = [&](std::initializer_list<std::string_view> keywords) -> absl::Status {
    const auto other = ToolSchema::OtherThan(property, keywords);
    if (!other.has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", std::string(*other), "\" of a string is not possible in this model's calls"));
  };
  const bool has_const = property.contains("const");
  const auto constants = property.find("enum");
  if (has_const || (constants != property.end() && constants->is_array())) {
    RETURN_IF_ERROR(only({"const", "enum", "type"}));
    const Json list = has_const ? Json::array({property["const"]}) : *constants;
    bool found = false;
    for (const Json& value : list) {
      const std::string json = value.dump(-1, ' ', false, Json::error_handler_t::replace);
      const std::string text = value.is_string() ? value.get<std::string>() : json;
      if (Read(tool, key, text, types_) != value) continue;
      values->texts.push_back(Lark::Literal(text));
      values->may_be_empty |= text.empty();
      found = true;
    }
    if (found) return absl::OkStatus();
    return absl::InvalidArgumentError("no value of its list can be written in this model's calls");
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto options = property.find(keyword);
    if (options == property.end() || !options->is_array()) continue;
    RETURN_IF_ERROR(only({keyword}));
    for (const Json& option : *options) {
      RETURN_IF_ERROR(AddTagValues(tool, key, option, schema, any_text, values));
    }
    return absl::OkStatus();
  }
  const auto type = property.find("type");
  if (type == property.end()) return as_json();
  if (type->is_array()) {
    for (const Json& one : *type) {
      Json single = property;
      single["type"] = one;
      RETURN_IF_ERROR(AddTagValues(tool, key, single, schema, any_text, values));
    }
    return absl::OkStatus();
  }
  if (*type == "string") {
    RETURN_IF_ERROR(only({"type", "minLength", "maxLength", "pattern", "format"}));
    ASSIGN_OR_RETURN(const std::string demands, TextDemands(property));
    values->texts.push_back(any_text + demands);
    values->may_be_empty |= demands.empty();
    return absl::OkStatus();
  }
  const bool is_plain = only({"type"}).ok();
  if (*type == "null") {
    values->texts.push_back("\"null\"");
  } else if (*type == "boolean" && is_plain) {
    values->texts.push_back("\"true\" | \"false\"");
  } else if (*type == "integer" && is_plain) {
    values->texts.push_back("/-?(?:0|[1-9][0-9]{0,15})/");
  } else if (*type == "number" && is_plain) {
    values->texts.push_back("/-?(?:0|[1-9][0-9]{0,15})(?:\\.[0-9]{1,16})?/");
  } else {
    return as_json();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ArgumentGrammar::WriteTag(std::string_view tool, std::string_view key,
                                                      const Json& property,
                                                      const ToolSchema& schema) {
  const uint8_t types = types_.Of(tool, key);
  TagValue values;
  if ((types & ParameterTypes::kString) == 0 && !ToolSchema::IsAny(property)) {
    // The reader takes JSON for a type that is not known, and for one that is no string.
    values.values.push_back(TagJson(property, schema));
    return Tag(std::string(key), true, values);
  }
  RETURN_IF_ERROR(AddTagValues(tool, key, property, schema, AnyText(types, false), &values));
  constexpr uint8_t kNumbers = ParameterTypes::kInteger | ParameterTypes::kNumber;
  if ((types & kNumbers) != 0 && !values.values.empty()) {
    // Numbers that must obey more than their type are no part of a terminal: no text begins so.
    values = TagValue();
    RETURN_IF_ERROR(AddTagValues(tool, key, property, schema, AnyText(types, true), &values));
  }
  if (values.texts.empty() && values.values.empty()) {
    return absl::InvalidArgumentError("no value of it can be written in this model's calls");
  }
  return Tag(std::string(key), true, values);
}

std::string ArgumentGrammar::Tag(const std::string& key, bool key_is_literal,
                                 const TagValue& values) {
  const size_t at = form_.parameter.find(CallForm::kValue);
  const std::string open = form_.parameter.substr(0, at);
  const std::vector<MarkedPiece> close =
      DivideAtTokens(std::string_view(form_.parameter).substr(at + 1), tokens_);
  const auto opened = [&](const char* is_string) {
    std::string filled;
    for (const char c : open) {
      if (c == CallForm::kIsString) {
        filled += is_string;
      } else {
        filled += c;
      }
    }
    if (key_is_literal) return Text(FillForm(filled, "", "", key));
    const size_t hole = filled.find(CallForm::kKey);
    return absl::StrCat(Text(filled.substr(0, hole)), " ", key, " ", Text(filled.substr(hole + 1)));
  };
  std::vector<std::string> options;
  if (!values.texts.empty()) {
    // The text ends with what closes it, so that nothing else could go on there.
    const bool closes = !close.empty() && close.front().token == nullptr;
    std::string texts = absl::StrCat("(", absl::StrJoin(values.texts, " | "), ")");
    std::string body;
    if (closes) {
      body = lark_.LazyTerminal(absl::StrCat(texts, " ", Lark::Literal(close.front().text)));
    } else {
      body = absl::StrCat(lark_.Terminal(absl::StrCat(texts, " & /(?s:.+)/")),
                          values.may_be_empty ? "?" : "");
    }
    options.push_back(absl::StrCat(opened("true"), " ", body, " ",
                                   LarkOf(std::span(close).subspan(closes ? 1 : 0))));
  }
  for (const std::string& value : values.values) {
    options.push_back(absl::StrCat(opened("false"), " ", value, " ", LarkOf(close)));
  }
  return lark_.Rule(absl::StrJoin(options, " | "));
}

}  // namespace continuo::text
