// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/worker/text/calls/lark.h"
#include "services/worker/text/calls/tool_schema.h"

namespace continuo::text {

// The spelling of values that are nearly JSON, which is always read as well.
struct ValueDialect {
  bool python = false;  // True, False and None
  // Strings as they are between these parts of a body, in place of JSON's; keys without quotes.
  std::string string_open, string_close;
  bool close_is_text = false;  // string_close is a literal, not a token
  // A string has no text that this regular expression finds.
  std::string never_in_string;
  std::string_view colon = ": ", comma = ", ";

  bool has_bare_strings() const { return !string_open.empty(); }
};

// Grammars of values in a dialect, by their schemas. What of a schema it does not know how to write
// in the dialect is JSON. Not thread-safe; may be used for one tool only.
class ValueGrammar {
 public:
  using Json = ToolSchema::Json;

  // All outlive it.
  ValueGrammar(Lark* lark, const ToolSchema* schema, const ValueDialect* dialect)
      : lark_(*lark), schema_(*schema), dialect_(*dialect) {}

  // Each returns a part of a body.
  std::string Value(const Json& schema);
  std::string Any();

  // An item of a list.
  struct Item {
    std::string body;
    bool required = false;  // it has to be there
  };
  // The items in their order, with the dialect's comma between them, then any number of `more`,
  // which may be empty.
  std::string List(const std::vector<Item>& items, std::string_view more);

 private:
  std::string Reference(const std::string& reference);
  std::string Typed(const Json& schema, const std::string& type);
  std::string Object(const Json& schema);
  std::string Array(const Json& schema);
  std::string Constant(const Json& value);
  std::string Key(std::string_view key);
  std::string BareText();
  std::string Word(const Json& value) const;

  Lark& lark_;
  const ToolSchema& schema_;
  const ValueDialect& dialect_;
  std::string any_, any_string_, bare_text_;
  std::map<std::string, std::string> references_;
};

}  // namespace continuo::text
