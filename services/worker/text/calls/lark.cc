// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/lark.h"

#include "absl/strings/str_cat.h"

namespace continuo::text {
namespace {

std::string Embedded(const Lark::Json& schema) {
  return absl::StrCat("%json ", schema.dump(-1, ' ', false, Lark::Json::error_handler_t::replace));
}

}  // namespace

void Lark::Define(std::string_view name, std::string_view body) {
  if (is_full()) return;
  absl::StrAppend(&text_, std::string(name), ": ", std::string(body), "\n");
}

std::string Lark::Rule(std::string_view body) {
  std::string name = Forward();
  Define(name, body);
  return name;
}

std::string Lark::Terminal(std::string_view body) {
  std::string name = absl::StrCat("T", num_rules_++);
  Define(name, body);
  return name;
}

std::string Lark::LazyTerminal(std::string_view body) {
  const std::string terminal = Terminal(body);
  const std::string name = Forward();
  Define(name + "[lazy]", terminal);
  return name;
}

std::string Lark::Literal(std::string_view text) {
  // A string of Lark is one of JSON that lacks DEL.
  std::string literal;
  for (const char c : Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '\x7F') {
      literal += "\\u007f";
    } else {
      literal += c;
    }
  }
  return literal;
}

std::string Lark::Regex(std::string_view regex) {
  if (regex.empty()) return "\"\"";
  std::string text = "/";
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] == '\\' && i + 1 < regex.size()) {
      text += regex[i++];
      text += regex[i];
    } else if (regex[i] == '/') {
      text += "\\/";
    } else if (regex[i] == '\n') {
      text += "\\n";
    } else {
      text += regex[i];
    }
  }
  return text + "/";
}

std::string Lark::Token(int32_t id) { return absl::StrCat("<[", id, "]>"); }

std::string Lark::SpacedJsonValue(Json schema) {
  // The compiler of grammars adds its own.
  schema.erase("x-guidance");
  return Embedded(schema);
}

std::string Lark::JsonValue(Json schema) {
  schema["x-guidance"] = {{"whitespace_flexible", false},
                          {"item_separator", ", ?"},
                          {"key_separator", ": ?"},
                          // Two spellings of one key would be two keys for the grammar.
                          {"json_allowed_escapes", "nrbtf\"\\"}};
  return Embedded(schema);
}

std::string Lark::Finish(std::string_view start) const {
  return absl::StrCat("start: ", std::string(start), "\n", text_);
}

}  // namespace continuo::text
