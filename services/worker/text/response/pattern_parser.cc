// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/pattern_parser.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"

namespace continuo::text {
namespace {

using Bytes = std::bitset<256>;
using Kind = PatternNode::Kind;

constexpr int kMaxDepth = 50;
constexpr int kMaxRepeat = 256;

Bytes BytesWhere(bool (*holds)(unsigned char)) {
  Bytes bytes;
  for (int c = 0; c < 256; ++c) bytes[c] = holds(static_cast<unsigned char>(c));
  return bytes;
}

Bytes DigitBytes() { return BytesWhere(absl::ascii_isdigit); }
Bytes SpaceBytes() { return BytesWhere(absl::ascii_isspace); }
Bytes WordBytes() {
  return BytesWhere(
      [](unsigned char c) { return c >= 0x80 || c == '_' || absl::ascii_isalnum(c); });
}

PatternNode ClassNode(Bytes bytes) { return {.kind = Kind::kClass, .bytes = bytes}; }

// UTF-8 of a code point below U+10000.
std::string Utf8Of(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  std::string text;
  if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
  } else {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
  }
  text += static_cast<char>(0x80 | (code & 0x3F));
  return text;
}

class Parser {
 public:
  explicit Parser(std::string_view regex) : regex_(regex) {}

  absl::StatusOr<PatternNode> Parse() {
    ASSIGN_OR_RETURN(PatternNode node, Alternatives(0));
    if (at_ < regex_.size()) return Refuse("an unbalanced \")\"");
    return node;
  }

 private:
  absl::Status Refuse(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("the pattern \"", std::string(regex_), "\" has ",
                                                   std::string(what), " at byte ", at_));
  }
  bool Looking(std::string_view text) const {
    return regex_.substr(at_).substr(0, text.size()) == text;
  }
  bool Take(std::string_view text) {
    if (!Looking(text)) return false;
    at_ += text.size();
    return true;
  }

  absl::StatusOr<PatternNode> Alternatives(int depth) {
    if (depth > kMaxDepth) return Refuse("too many groups in groups");
    PatternNode node{.kind = Kind::kAlternatives};
    do {
      ASSIGN_OR_RETURN(PatternNode next, Concat(depth));
      node.children.push_back(std::move(next));
    } while (Take("|"));
    if (node.children.size() > 1) return node;
    PatternNode only = std::move(node.children.front());
    return only;
  }

  absl::StatusOr<PatternNode> Concat(int depth) {
    PatternNode node{.kind = Kind::kConcat};
    while (at_ < regex_.size() && regex_[at_] != '|' && regex_[at_] != ')') {
      ASSIGN_OR_RETURN(PatternNode atom, Atom(depth));
      ASSIGN_OR_RETURN(atom, Repeated(std::move(atom)));
      node.children.push_back(std::move(atom));
    }
    return node;
  }

  absl::StatusOr<PatternNode> Repeated(PatternNode atom) {
    int min = 0, max = -1;
    if (Take("*")) {
    } else if (Take("+")) {
      min = 1;
    } else if (Take("?")) {
      max = 1;
    } else if (Looking("{")) {
      const size_t end = regex_.find('}', at_);
      if (end == std::string_view::npos) return Refuse("a \"{\" without its \"}\"");
      const std::string_view range = regex_.substr(at_ + 1, end - at_ - 1);
      const size_t comma = range.find(',');
      const std::string_view high = comma == range.npos ? range : range.substr(comma + 1);
      if (!absl::SimpleAtoi(std::string(range.substr(0, comma)), &min) ||
          (!high.empty() && !absl::SimpleAtoi(std::string(high), &max)) || min < 0 ||
          min > kMaxRepeat || max > kMaxRepeat || (max >= 0 && max < min)) {
        return Refuse("a bad repetition");
      }
      at_ = end + 1;
    } else {
      return atom;
    }
    if (atom.kind == Kind::kBegin || atom.kind == Kind::kEnd) return Refuse("a repeated anchor");
    const bool greedy = !Take("?");
    if (Looking("+") || Looking("*") || Looking("{")) return Refuse("a repeated repetition");
    PatternNode node{.kind = Kind::kRepeat, .min = min, .max = max, .greedy = greedy};
    node.children.push_back(std::move(atom));
    return node;
  }

  absl::StatusOr<PatternNode> Atom(int depth) {
    if (Take("(")) return Group(depth);
    if (Take("[")) return Class();
    if (Take(".")) return ClassNode(Bytes().set());
    if (Take("^")) return PatternNode{.kind = Kind::kBegin};
    if (Take("$")) return PatternNode{.kind = Kind::kEnd};
    if (Looking("*") || Looking("+") || Looking("?")) return Refuse("nothing to repeat");
    if (Take("\\A")) return PatternNode{.kind = Kind::kBegin};
    if (Take("\\Z")) return PatternNode{.kind = Kind::kEnd};
    if (Looking("\\")) {
      Bytes bytes;
      ASSIGN_OR_RETURN(const bool is_class, ClassEscape(&bytes));
      if (is_class) return ClassNode(bytes);
      ASSIGN_OR_RETURN(const std::string character, CharacterEscape());
      return PatternNode::Literal(character);
    }
    const size_t length = Utf8CharacterLength(regex_.substr(at_));
    if (length == 0) return Refuse("bytes that are no UTF-8");
    at_ += length;
    return PatternNode::Literal(regex_.substr(at_ - length, length));
  }

  absl::StatusOr<PatternNode> Group(int depth) {
    PatternNode node{.kind = Kind::kGroup};
    if (Take("?P<")) {
      const size_t end = regex_.find('>', at_);
      if (end == std::string_view::npos) return Refuse("a group without a name");
      node.name = std::string(regex_.substr(at_, end - at_));
      at_ = end + 1;
    } else if (Looking("?") && !Take("?:")) {
      return Refuse("a group of a kind that is not supported");
    }
    ASSIGN_OR_RETURN(PatternNode inside, Alternatives(depth + 1));
    if (!Take(")")) return Refuse("a \"(\" without its \")\"");
    node.children.push_back(std::move(inside));
    return node;
  }

  // Takes \s, \d, \w or their opposites.
  absl::StatusOr<bool> ClassEscape(Bytes* bytes) {
    if (at_ + 1 >= regex_.size()) return Refuse("a \"\\\" at its end");
    switch (regex_[at_ + 1]) {
      case 's':
        *bytes = SpaceBytes();
        break;
      case 'S':
        *bytes = ~SpaceBytes();
        break;
      case 'd':
        *bytes = DigitBytes();
        break;
      case 'D':
        *bytes = ~DigitBytes();
        break;
      case 'w':
        *bytes = WordBytes();
        break;
      case 'W':
        *bytes = ~WordBytes();
        break;
      default:
        return false;
    }
    at_ += 2;
    return true;
  }

  absl::StatusOr<std::string> CharacterEscape() {
    const char c = regex_[at_ + 1];
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    if (digits > 0) {
      const std::string hex(regex_.substr(at_ + 2, digits));
      uint32_t code = 0;
      if (hex.size() < digits || !absl::SimpleHexAtoi(hex, &code) ||
          (code >= 0xD800 && code < 0xE000)) {
        return Refuse("a bad escape");
      }
      at_ += 2 + digits;
      return Utf8Of(code);
    }
    constexpr std::string_view kNames = "ntrfv", kBytes = "\n\t\r\f\v";
    if (const size_t which = kNames.find(c); which != kNames.npos) {
      at_ += 2;
      return std::string(1, kBytes[which]);
    }
    if (absl::ascii_isalnum(c) || static_cast<unsigned char>(c) >= 0x80) {
      return Refuse("an escape that is not supported");
    }
    at_ += 2;
    return std::string(1, c);
  }

  absl::StatusOr<PatternNode> Class() {
    Bytes bytes;
    const bool negated = Take("^");
    for (bool first = true; first || !Looking("]"); first = false) {
      if (at_ >= regex_.size()) return Refuse("a \"[\" without its \"]\"");
      Bytes escaped;
      if (Looking("\\")) {
        ASSIGN_OR_RETURN(const bool is_class, ClassEscape(&escaped));
        if (is_class) {
          bytes |= escaped;
          continue;
        }
      }
      ASSIGN_OR_RETURN(const unsigned char low, ClassByte());
      unsigned char high = low;
      if (Looking("-") && regex_.substr(at_).size() > 1 && regex_[at_ + 1] != ']') {
        ++at_;
        ASSIGN_OR_RETURN(high, ClassByte());
        if (high < low) return Refuse("a range that is empty");
      }
      for (int c = low; c <= high; ++c) bytes.set(c);
    }
    ++at_;
    return ClassNode(negated ? ~bytes : bytes);
  }

  absl::StatusOr<unsigned char> ClassByte() {
    std::string character(1, regex_[at_]);
    if (character == "\\") {
      ASSIGN_OR_RETURN(character, CharacterEscape());
    } else {
      ++at_;
    }
    if (character.size() != 1 || static_cast<unsigned char>(character[0]) >= 0x80) {
      return Refuse("a character beyond ASCII in a class");
    }
    return static_cast<unsigned char>(character[0]);
  }

  const std::string_view regex_;
  size_t at_ = 0;
};

}  // namespace

PatternNode PatternNode::Literal(std::string_view text) {
  PatternNode node{.kind = Kind::kConcat};
  for (const char c : text) {
    node.children.push_back(ClassNode(Bytes().set(static_cast<unsigned char>(c))));
  }
  return node;
}

absl::StatusOr<PatternNode> ParsePattern(std::string_view regex) { return Parser(regex).Parse(); }

}  // namespace continuo::text
