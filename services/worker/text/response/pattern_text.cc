// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/pattern_text.h"

#include <cstddef>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace continuo::text {
namespace {

using Kind = PatternNode::Kind;

void AppendEscaped(unsigned char c, std::string* regex) {
  constexpr std::string_view kPlain = " !\"%',:;<=>@_`";
  if (absl::ascii_isalnum(c) || kPlain.find(static_cast<char>(c)) != kPlain.npos) {
    *regex += static_cast<char>(c);
  } else if (c >= 0x20 && c < 0x7F) {
    *regex += '\\';
    *regex += static_cast<char>(c);
  } else {
    absl::StrAppend(regex, "\\x{", absl::Hex(c), "}");
  }
}

// A class of bytes as one of characters. All bytes beyond ASCII, or none, are in a class that has
// more than one byte.
std::string ClassRegex(const std::bitset<256>& bytes) {
  std::string regex = "[";
  for (unsigned low = 0; low < 0x80; ++low) {
    if (!bytes[low]) continue;
    unsigned high = low;
    while (high + 1 < 0x80 && bytes[high + 1]) ++high;
    AppendEscaped(static_cast<unsigned char>(low), &regex);
    if (high > low) {
      regex += '-';
      AppendEscaped(static_cast<unsigned char>(high), &regex);
    }
    low = high;
  }
  if (bytes[0x80]) regex += "\\x{80}-\\x{10ffff}";
  return regex + "]";
}

// The byte of a class that has only one; -1: it has several.
int OnlyByte(const PatternNode& node) {
  if (node.kind != Kind::kClass || node.bytes.count() != 1) return -1;
  for (int c = 0; c < 256; ++c) {
    if (node.bytes[c]) return c;
  }
  return -1;
}

}  // namespace

std::string RegexOf(const PatternNode& node) {
  switch (node.kind) {
    case Kind::kEmpty:
    case Kind::kBegin:
    case Kind::kEnd:
      return "";
    case Kind::kClass: {
      const int only = OnlyByte(node);
      if (only < 0) return ClassRegex(node.bytes);
      std::string regex;
      AppendEscaped(static_cast<unsigned char>(only), &regex);
      return regex;
    }
    case Kind::kConcat: {
      std::string regex;
      for (const PatternNode& child : node.children) {
        // Bytes beyond ASCII are those of a literal's characters, and stand together.
        if (const int only = OnlyByte(child); only >= 0x80) {
          regex += static_cast<char>(only);
        } else {
          regex += RegexOf(child);
        }
      }
      return regex;
    }
    case Kind::kAlternatives: {
      std::string regex = "(?:";
      for (size_t i = 0; i < node.children.size(); ++i) {
        absl::StrAppend(&regex, i == 0 ? "" : "|", RegexOf(node.children[i]));
      }
      return regex + ")";
    }
    case Kind::kGroup:
      return absl::StrCat("(?:", RegexOf(node.children[0]), ")");
    case Kind::kRepeat: {
      const std::string inside = absl::StrCat("(?:", RegexOf(node.children[0]), ")");
      if (node.max < 0 && node.min <= 1) return inside + (node.min == 0 ? "*" : "+");
      if (node.max < 0) return absl::StrCat(inside, "{", node.min, ",}");
      return absl::StrCat(inside, "{", node.min, ",", node.max, "}");
    }
  }
  return "";
}

std::optional<std::string> ExampleOf(const PatternNode& node) {
  switch (node.kind) {
    case Kind::kEmpty:
    case Kind::kBegin:
    case Kind::kEnd:
      return "";
    case Kind::kClass: {
      const int only = OnlyByte(node);
      if (only >= 0) return std::string(1, static_cast<char>(only));
      if (node.bytes[' '] && !node.bytes['x']) return " ";
      return std::nullopt;
    }
    case Kind::kConcat: {
      std::string text;
      for (const PatternNode& child : node.children) {
        const std::optional<std::string> part = ExampleOf(child);
        if (!part.has_value()) return std::nullopt;
        text += *part;
      }
      return text;
    }
    case Kind::kAlternatives:
      for (const PatternNode& child : node.children) {
        if (std::optional<std::string> text = ExampleOf(child); text.has_value()) return text;
      }
      return std::nullopt;
    case Kind::kGroup:
      if (node.name == "name") return std::string(1, kNameInExample);
      if (node.name == "key") return std::string(1, kKeyInExample);
      return ExampleOf(node.children[0]);
    case Kind::kRepeat: {
      if (node.min == 0) return "";
      const std::optional<std::string> once = ExampleOf(node.children[0]);
      if (!once.has_value()) return std::nullopt;
      std::string text;
      for (int i = 0; i < node.min; ++i) text += *once;
      return text;
    }
  }
  return std::nullopt;
}

}  // namespace continuo::text
