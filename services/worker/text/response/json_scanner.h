// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace continuo::text {

// Checks one JSON value, a byte at a time. Unlike JSON's, a string may hold control characters,
// which models write: Escaped makes them JSON's. Small and copyable.
class JsonScanner {
 public:
  static constexpr size_t kMaxDepth = 64;

  enum class Step : uint8_t {
    kInside,       // the byte belongs to the value, which goes on
    kEnds,         // the byte is the value's last one
    kEndedBefore,  // the value, a number, ended before the byte
    kBad,          // no value begins like this
  };
  Step Push(char c);

  bool in_string() const {
    return state_ == State::kString || state_ == State::kEscape || state_ == State::kHex;
  }
  // White space between the parts of a value.
  static bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

 private:
  enum class State : uint8_t {
    kValue,
    kFirstItem,
    kFirstKey,
    kKey,
    kColon,
    kAfter,
    kString,
    kEscape,
    kHex,
    kLiteral,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kDone,
  };
  Step Value(char c);
  Step Number(char c);
  Step Ended();
  Step Close(char open);

  std::string open_;  // the brackets that are open
  State state_ = State::kValue;
  bool string_is_key_ = false;
  uint8_t hex_ = 0;
  std::string_view literal_;  // what is left of true, false or null
};

// Returns whether `text` is one JSON object, with nothing around it, of at most
// JsonScanner::kMaxDepth levels.
bool IsJsonObject(std::string_view text);
// Appends `c` as it stands in a JSON string.
void AppendJsonEscaped(char c, std::string* out);
// `text` as a JSON string, with its quotes.
std::string JsonString(std::string_view text);

}  // namespace continuo::text
