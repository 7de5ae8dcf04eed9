// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace continuo::text {

// The text of a grammar in llguidance's dialect of Lark, written rule by rule. Rules and terminals
// get names of their own, so nothing that a client wrote is one. Not thread-safe.
class Lark {
 public:
  using Json = nlohmann::ordered_json;

  // A rule, or a terminal: a regular expression that is matched as a whole. Each returns its name.
  std::string Rule(std::string_view body);
  std::string Terminal(std::string_view body);
  // A terminal that ends where it first can. Returns the name of its rule.
  std::string LazyTerminal(std::string_view body);
  // A name whose body is set later, for rules that contain themselves.
  std::string Forward() { return "r" + std::to_string(num_rules_++); }
  void Define(std::string_view name, std::string_view body);

  // Each is a part of a body.
  //
  // `text` is UTF-8.
  static std::string Literal(std::string_view text);
  // A regular expression of Rust's; a "/" in it may be escaped or not.
  static std::string Regex(std::string_view regex);
  static std::string Token(int32_t id);
  // A value that matches the schema, compact but for one space behind a colon or a comma.
  static std::string JsonValue(Json schema);
  // The same, with the white space of a grammar that is the schema alone.
  static std::string SpacedJsonValue(Json schema);

  // No more is written: the grammar is too large to be used.
  static constexpr size_t kMaxBytes = 256 << 10;
  bool is_full() const { return text_.size() > kMaxBytes; }
  // The grammar whose beginning is the rule `start`.
  std::string Finish(std::string_view start) const;

 private:
  std::string text_;
  int num_rules_ = 0;
};

}  // namespace continuo::text
