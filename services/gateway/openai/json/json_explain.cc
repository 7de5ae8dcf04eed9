// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/json_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/utf8.h"

namespace continuo::gateway::openai {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Reads a text by the grammar of RFC 8259 and stops at the first fault.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::string Explain() {
    if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff")) {
      return "it is text in UTF-16, and JSON is UTF-8";
    }
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // a byte order mark
    SkipSpace();
    if (ReadValue()) {
      SkipSpace();
      if (at_ < text_.size()) Fail("the end after the value");
    }
    return fault_;
  }

 private:
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string Found() const {
    if (at_ >= text_.size()) return "the end";
    constexpr std::array<std::string_view, 8> kWords = {
        "True", "False", "None", "NaN", "nan", "Infinity", "-Infinity", "undefined"};
    for (const std::string_view word : kWords) {
      if (text_.substr(at_).starts_with(word)) {
        return absl::StrCat(std::string(word), ", which JSON does not have");
      }
    }
    const char c = text_[at_];
    if (c == '\'') return "', where JSON has double quotes";
    if (c > 0x20 && c < 0x7f) return std::string(1, c);
    if (Utf8CharacterLength(text_.substr(at_)) > 1) return "a character beyond ASCII";
    return absl::StrFormat("the byte 0x%02x", static_cast<uint8_t>(c));
  }

  bool Fail(std::string_view expected) {
    const std::string_view before = text_.substr(0, at_);
    const auto lines = std::ranges::count(before, '\n');
    const size_t begin = lines == 0 ? 0 : before.rfind('\n') + 1;
    fault_ = absl::StrCat("at byte ", at_, " (line ", lines + 1, ", column ", at_ - begin + 1,
                          "): expected ", std::string(expected), ", found ", Found());
    return false;
  }

  bool ReadValue() {
    switch (Peek()) {
      case '{':
        return ReadObject();
      case '[':
        return ReadArray();
      case '"':
        return ReadString();
      case 't':
        return ReadWord("true");
      case 'f':
        return ReadWord("false");
      case 'n':
        return ReadWord("null");
      default:
        break;
    }
    if (IsDigit(Peek()) || (Peek() == '-' && !text_.substr(at_).starts_with("-I"))) {
      return ReadNumber();
    }
    return Fail("a value");
  }

  bool ReadWord(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return Fail("a value");
    at_ += word.size();
    return true;
  }

  bool ReadObject() {
    ++at_;
    SkipSpace();
    if (Take('}')) return true;
    while (true) {
      if (Peek() != '"') {
        return Fail(is_after_comma_ ? "a name in double quotes after the comma"
                                    : "a name in double quotes or }");
      }
      if (!ReadString()) return false;
      SkipSpace();
      if (!Take(':')) return Fail("a colon after the name");
      SkipSpace();
      is_after_comma_ = false;
      if (!ReadValue()) return false;
      SkipSpace();
      if (Take('}')) return true;
      if (!Take(',')) return Fail("a comma or }");
      is_after_comma_ = true;
      SkipSpace();
    }
  }

  bool ReadArray() {
    ++at_;
    SkipSpace();
    if (Take(']')) return true;
    while (true) {
      is_after_comma_ = false;
      if (!ReadValue()) return false;
      SkipSpace();
      if (Take(']')) return true;
      if (!Take(',')) return Fail("a comma or ]");
      SkipSpace();
    }
  }

  bool ReadDigits() {
    if (!IsDigit(Peek())) return Fail("a digit");
    while (IsDigit(Peek())) ++at_;
    return true;
  }

  bool ReadNumber() {
    const size_t begin = at_;
    Take('-');
    if (!Take('0') && !ReadDigits()) return false;
    if (Take('.') && !ReadDigits()) return false;
    if (Peek() == 'e' || Peek() == 'E') {
      ++at_;
      if (!Take('+')) Take('-');
      if (!ReadDigits()) return false;
    }
    double value;
    const std::string digits(text_.substr(begin, at_ - begin));
    if (!absl::SimpleAtod(digits, &value) || !std::isfinite(value)) {
      at_ = begin;
      return Fail("a number that fits 64-bit floating point");
    }
    return true;
  }

  // Reads four hexadecimal digits.
  bool ReadUnit(uint32_t* unit) {
    *unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const auto c = static_cast<unsigned char>(Peek());
      if (!absl::ascii_isxdigit(c)) return Fail("four hexadecimal digits after \\u");
      *unit = *unit * 16 + static_cast<uint32_t>(IsDigit(static_cast<char>(c))
                                                     ? c - '0'
                                                     : absl::ascii_tolower(c) - 'a' + 10);
    }
    return true;
  }

  bool ReadEscape() {
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    if (Peek() != '\0' && kEscapes.find(Peek()) != std::string_view::npos) {
      ++at_;
      return true;
    }
    if (!Take('u')) return Fail("an escape of JSON after the backslash");
    uint32_t unit;
    if (!ReadUnit(&unit)) return false;
    if (unit >= 0xdc00 && unit <= 0xdfff) {
      at_ -= 4;
      return Fail("no second half of a surrogate pair without its first");
    }
    if (unit < 0xd800 || unit > 0xdbff) return true;
    const size_t low = at_;
    if (!Take('\\') || !Take('u')) {
      at_ = low;
      return Fail("the second half of a surrogate pair");
    }
    if (!ReadUnit(&unit)) return false;
    if (unit >= 0xdc00 && unit <= 0xdfff) return true;
    at_ = low;
    return Fail("the second half of a surrogate pair");
  }

  bool ReadString() {
    ++at_;
    while (true) {
      if (at_ >= text_.size()) return Fail("a double quote that ends the string");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c < 0x20) return Fail("control characters of strings written as \\n, \\t or \\u00XX");
      if (c == '\\') {
        ++at_;
        if (!ReadEscape()) return false;
        continue;
      }
      const size_t length = Utf8CharacterLength(text_.substr(at_));
      if (length == 0) return Fail("UTF-8");
      at_ += length;
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
  bool is_after_comma_ = false;  // in an object, for the message
  std::string fault_;
};

}  // namespace

std::string ExplainJson(std::string_view text) { return Reader(text).Explain(); }

}  // namespace continuo::gateway::openai
