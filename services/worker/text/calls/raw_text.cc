// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/raw_text.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/text/calls/lark.h"

namespace continuo::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxLength = 65'536;

// Texts of a format, not all of them.
constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date", "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"},
    {"time",
     "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"
     "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"},
    {"date-time",
     "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T"
     "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"
     "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", "[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)+"},
    {"hostname",
     "[a-z0-9](?:[a-z0-9-]{0,60}[a-z0-9])?(?:\\.[a-z0-9](?:[a-z0-9-]{0,60}[a-z0-9])?)*"},
    {"ipv4",
     "(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}"
     "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"},
    {"uri", "[a-z][a-z0-9+.-]*://[A-Za-z0-9._~:/?#@!$&'()*+,;=-]+"},
};

absl::Status Refuse(std::string_view pattern, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the pattern ", Json(std::string(pattern)).dump(), " has ", std::string(what)));
}

// Translates one alternative of a pattern, or a part of it, without its anchors.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Translate() {
    while (at_ < pattern_.size()) RETURN_IF_ERROR(Next());
    if (in_class_ || depth_ != 0) return Refuse(pattern_, "brackets that are not closed");
    Close();
    std::string regex;
    for (const std::string& alternative : alternatives_) {
      absl::StrAppend(&regex, regex.empty() ? "" : "|", alternative);
    }
    return absl::StrCat("(?:", regex, ")");
  }

 private:
  absl::Status Next() {
    const char c = pattern_[at_];
    if (c == '\\') return Escape();
    if (in_class_) {
      if (c == ']') in_class_ = false;
      // Rust's classes have operators.
      if (c == '[' || c == '&' || c == '~') text_ += '\\';
      text_ += c;
      ++at_;
      return absl::OkStatus();
    }
    switch (c) {
      case '[':
        in_class_ = true;
        text_ += c;
        ++at_;
        if (Looking("^")) {
          text_ += '^';
          ++at_;
        }
        if (Looking("]")) return Refuse(pattern_, "an empty class");
        return absl::OkStatus();
      case '(':
        if (Looking("(?") && !Looking("(?:") &&
            !(Looking("(?<") && !Looking("(?<=") && !Looking("(?<!"))) {
          return Refuse(pattern_, "look-around or another group that is not supported");
        }
        ++depth_;
        break;
      case ')':
        if (--depth_ < 0) return Refuse(pattern_, "an unbalanced \")\"");
        break;
      case '|':
        if (depth_ > 0) break;
        Close();
        ++at_;
        return absl::OkStatus();
      case '^':
        if (depth_ > 0 || !text_.empty()) return Refuse(pattern_, "a \"^\" inside");
        at_begin_ = true;
        ++at_;
        return absl::OkStatus();
      case '$':
        if (depth_ > 0 || (at_ + 1 < pattern_.size() && pattern_[at_ + 1] != '|')) {
          return Refuse(pattern_, "a \"$\" inside");
        }
        at_end_ = true;
        ++at_;
        return absl::OkStatus();
      case '.':
        // Rust's leaves out the first of these alone.
        text_ += "[^\\n\\r\\x{2028}\\x{2029}]";
        ++at_;
        return absl::OkStatus();
      default:
        break;
    }
    text_ += c;
    ++at_;
    return absl::OkStatus();
  }

  absl::Status Escape() {
    if (at_ + 1 >= pattern_.size()) return Refuse(pattern_, "a \"\\\" at its end");
    const char c = pattern_[at_ + 1];
    at_ += 2;
    switch (c) {
      case 'd':
        text_ += in_class_ ? "0-9" : "[0-9]";
        return absl::OkStatus();
      case 'w':
        text_ += in_class_ ? "0-9A-Za-z_" : "[0-9A-Za-z_]";
        return absl::OkStatus();
      case 's':
        text_ += in_class_ ? " \\t\\n\\r" : "[ \\t\\n\\r]";
        return absl::OkStatus();
      case 'D':
      case 'W':
      case 'S':
        if (in_class_) return Refuse(pattern_, "a negated class in a class");
        text_ += c == 'D' ? "[^0-9]" : c == 'W' ? "[^0-9A-Za-z_]" : "[^\\s\\x{feff}]";
        return absl::OkStatus();
      case 'n':
      case 't':
      case 'r':
      case 'f':
      case 'v':
        text_ += '\\';
        text_ += c;
        return absl::OkStatus();
      case 'u':
      case 'x': {
        const size_t digits = c == 'u' ? 4 : 2;
        const std::string_view hex = pattern_.substr(at_, digits);
        if (hex.size() < digits ||
            !std::all_of(hex.begin(), hex.end(), [](char h) { return absl::ascii_isxdigit(h); })) {
          return Refuse(pattern_, "a bad escape");
        }
        absl::StrAppend(&text_, "\\x{", std::string(hex), "}");
        at_ += digits;
        return absl::OkStatus();
      }
      default:
        if (absl::ascii_isalnum(c)) return Refuse(pattern_, "an escape that is not supported");
        text_ += '\\';
        text_ += c;
        return absl::OkStatus();
    }
  }

  // Ends an alternative.
  void Close() {
    alternatives_.push_back(
        absl::StrCat(at_begin_ ? "" : "(?s:.*)", "(?:", text_, ")", at_end_ ? "" : "(?s:.*)"));
    text_.clear();
    at_begin_ = at_end_ = false;
  }

  bool Looking(std::string_view text) const {
    return pattern_.substr(at_).substr(0, text.size()) == text;
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_class_ = false, at_begin_ = false, at_end_ = false;
  std::string text_;
  std::vector<std::string> alternatives_;
};

absl::StatusOr<uint64_t> LengthAt(const Json& schema, const char* keyword, uint64_t without) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return without;
  if (!found->is_number_integer() || *found < 0 || *found > kMaxLength) {
    return absl::InvalidArgumentError(
        absl::StrCat(keyword, " must be an integer from 0 to ", kMaxLength));
  }
  return found->get<uint64_t>();
}

}  // namespace

absl::StatusOr<std::string> WholeTextRegex(std::string_view pattern) {
  return Translator(pattern).Translate();
}

absl::StatusOr<std::string> TextDemands(const Json& schema) {
  std::string demands;
  ASSIGN_OR_RETURN(const uint64_t least, LengthAt(schema, "minLength", 0));
  ASSIGN_OR_RETURN(const uint64_t most, LengthAt(schema, "maxLength", kMaxLength + 1));
  if (most < least) return absl::InvalidArgumentError("minLength is larger than maxLength");
  if (most <= kMaxLength) {
    absl::StrAppend(&demands, " & /(?s:.{", least, ",", most, "})/");
  } else if (least > 0) {
    absl::StrAppend(&demands, " & /(?s:.{", least, ",})/");
  }
  if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
    if (!pattern->is_string()) return absl::InvalidArgumentError("pattern must be a string");
    ASSIGN_OR_RETURN(const std::string regex, WholeTextRegex(pattern->get<std::string>()));
    absl::StrAppend(&demands, " & ", Lark::Regex(regex));
  }
  if (const auto format = schema.find("format"); format != schema.end()) {
    const auto* const known =
        std::find_if(std::begin(kFormats), std::end(kFormats),
                     [&](const auto& one) { return *format == std::string(one.first); });
    if (known == std::end(kFormats)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the format ", format->dump(), " is not supported in this model's calls"));
    }
    absl::StrAppend(&demands, " & ", Lark::Regex(known->second));
  }
  return demands;
}

}  // namespace continuo::text
