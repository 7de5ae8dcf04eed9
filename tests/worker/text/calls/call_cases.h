// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/base/utf8.h"
#include "services/worker/text/calls/call_grammar.h"

namespace continuo::text {

// Tools of several kinds, a set each.
inline std::vector<std::vector<CallTool>> ToolSets() {
  const CallTool weather = {
      "get_weather",
      R"({"type": "object", "properties": {"city": {"type": "string", "description": "x"},
          "days": {"type": "integer"}}, "required": ["city"]})"};
  const CallTool nothing = {"now", R"({"type": "object", "properties": {}})"};
  const CallTool any = {"any", ""};
  const CallTool nested = {"book.trip-2",
                           R"({"type": "object", "properties": {
          "legs": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "object",
            "properties": {"from": {"type": "string"}, "km": {"type": "number"}},
            "required": ["from", "km"], "additionalProperties": false}},
          "options": {"type": "object", "properties": {"quiet": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["quiet"]}},
          "required": ["legs"]})"};
  const CallTool choices = {"choices",
                            R"({"type": "object", "properties": {
          "unit": {"type": "string", "enum": ["metric", "imperial \"x\"", "é <b>"]},
          "kind": {"const": "only"}, "level": {"enum": [1, 2.5, null, "high", true]},
          "on": {"type": "boolean"}, "none": {"type": "null"},
          "id": {"enum": ["1", "true", "a</parameter>b", "x"]}},
          "required": ["unit", "kind", "level", "on"]})"};
  const CallTool numbers = {"numbers",
                            R"({"type": "object", "properties": {
          "small": {"type": "integer", "minimum": -3, "maximum": 12},
          "ratio": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
          "row": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
          "free": {"type": "number"}}, "required": ["small", "ratio", "row"]})"};
  const CallTool tree = {
      "tree",
      R"({"$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"},
            "left": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            "more": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 1}},
            "required": ["name", "left"], "additionalProperties": false},
          "color": {"type": "string", "enum": ["red", "blue"]}},
          "type": "object", "properties": {"root": {"$ref": "#/$defs/node"},
            "color": {"$ref": "#/$defs/color"}}, "required": ["root", "color"]})"};
  const CallTool strings = {"strings",
                            R"({"type": "object", "properties": {
          "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"},
          "part": {"type": "string", "pattern": "b/c"},
          "short": {"type": "string", "minLength": 1, "maxLength": 4},
          "day": {"type": "string", "format": "date"},
          "long": {"type": "string", "minLength": 3}}, "required": ["code", "short", "day"]})"};
  const CallTool mixed = {"mixed",
                          R"({"type": "object", "properties": {
          "a": {"type": ["string", "integer"]}, "b": {"type": ["string", "null"]},
          "c": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {
            "k": {"type": "boolean"}}, "required": ["k"], "additionalProperties": false}]},
          "d": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 10}]},
          "e": {"type": ["boolean", "string"]}, "f": {"type": "string", "nullable": true},
          "g": {}, "h": {"description": "anything"}},
          "required": ["a", "b", "c", "d", "e", "f", "g"]})"};
  const CallTool open = {"open",
                         R"({"type": "object", "additionalProperties": {"type": "string"}})"};
  const CallTool odd = {"odd",
                        R"({"type": "object", "properties": {"with space": {"type": "string"},
          "q\"uote>": {"type": "integer"}, "na\nme": {"type": "string"}, "ü": {"type": "string"},
          "plain": {"type": "object"}}, "required": ["plain"]})"};
  return {{weather},  {nothing},
          {any},      {weather, {"get_weather2", weather.parameters}, {"get", ""}},
          {nested},   {choices, nothing},
          {numbers},  {tree},
          {strings},  {mixed, any},
          {open, odd}};
}

// Returns whether the value obeys the keywords that ToolSets has.
inline bool Obeys(const nlohmann::json& value, const nlohmann::json& schema,
                  const nlohmann::json& root) {
  using Json = nlohmann::json;
  if (schema.is_boolean()) return schema.get<bool>();
  if (const auto ref = schema.find("$ref"); ref != schema.end()) {
    if (!Obeys(value, root.at(Json::json_pointer(ref->get<std::string>().substr(1))), root)) {
      return false;
    }
  }
  const auto is = [&](const std::string& type) {
    if (type == "integer") {
      return value.is_number_integer() ||
             (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
    }
    return type == "string"    ? value.is_string()
           : type == "number"  ? value.is_number()
           : type == "boolean" ? value.is_boolean()
           : type == "null"    ? value.is_null()
           : type == "array"   ? value.is_array()
                               : value.is_object();
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    bool found = false;
    for (const Json& one : type->is_array() ? *type : Json::array({*type})) found |= is(one);
    if (!found) return false;
  }
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return false;
  }
  if (schema.contains("anyOf") &&
      std::none_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                   [&](const Json& one) { return Obeys(value, one, root); })) {
    return false;
  }
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (number < schema.value("minimum", number) || number > schema.value("maximum", number) ||
        (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"])) {
      return false;
    }
  }
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const auto length = static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
    if (length < schema.value("minLength", size_t{0}) ||
        length > schema.value("maxLength", length)) {
      return false;
    }
    if (schema.contains("pattern") &&
        !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) {
      return false;
    }
    if (schema.value("format", "") == "date" &&
        !std::regex_match(text, std::regex(R"(\d{4}-\d\d-\d\d)"))) {
      return false;
    }
  }
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", size_t{0}) ||
        value.size() > schema.value("maxItems", value.size())) {
      return false;
    }
    for (const Json& item : value) {
      if (schema.contains("items") && !Obeys(item, schema["items"], root)) return false;
    }
  }
  if (value.is_object()) {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return false;
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [key, item] : value.items()) {
      if (properties.contains(key)) {
        if (!Obeys(item, properties[key], root)) return false;
      } else if (schema.contains("additionalProperties") &&
                 !Obeys(item, schema["additionalProperties"], root)) {
        return false;
      }
    }
  }
  return true;
}

// The markers of a format that its models have as special tokens.
inline std::vector<std::string> MarkersOf(std::string_view format) {
  if (format == "harmony") {
    return {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"};
  }
  if (format == "gemma") return {"<|tool_call>", "<tool_call|>", "<|\"|>"};
  if (format == "deepseek") {
    return {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"};
  }
  if (format == "kimi") {
    return {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
            "<|tool_call_end|>", "<|tool_call_argument_begin|>"};
  }
  if (format == "mistral_args") return {"[TOOL_CALLS]", "[ARGS]"};
  if (format == "mistral") return {"[TOOL_CALLS]"};
  if (format == "cohere") return {"<|START_ACTION|>", "<|END_ACTION|>"};
  if (format == "granite") return {"<|tool_call|>"};
  if (format == "gigachat") return {"<|function_call|>"};
  if (format == "lfm2") return {"<|tool_call_start|>", "<|tool_call_end|>"};
  if (format == "hermes") return {"<tool_call>", "</tool_call>"};
  if (format == "glm")
    return {"<tool_call>", "</tool_call>", "<arg_key>",
            "</arg_key>",  "<arg_value>",  "</arg_value>"};
  if (format == "qwen_xml") return {"</parameter>"};
  if (format == "minimax") return {"<minimax:tool_call>", "</minimax:tool_call>"};
  if (format == "deepseek_dsml") return {"｜DSML｜"};
  return {};
}

}  // namespace continuo::text
