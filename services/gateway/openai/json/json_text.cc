// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "services/base/utf8.h"

namespace continuo::gateway::openai {
namespace {

void AppendEscaped(char c, std::string* json) {
  switch (c) {
    case '"':
      json->append("\\\"");
      break;
    case '\\':
      json->append("\\\\");
      break;
    case '\n':
      json->append("\\n");
      break;
    case '\r':
      json->append("\\r");
      break;
    case '\t':
      json->append("\\t");
      break;
    default:
      absl::StrAppendFormat(json, "\\u%04x", static_cast<unsigned>(c));
  }
}

}  // namespace

void AppendCharacters(std::string_view text, std::string* json) {
  size_t begin = 0;  // of the bytes to copy as they are
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') {
      ++i;
      continue;
    }
    const size_t length = Utf8CharacterLength(text.substr(i));
    if (length > 1) {
      i += length;
      continue;
    }
    json->append(text.substr(begin, i - begin));
    if (length == 1) {
      AppendEscaped(text[i], json);
    } else {
      json->append("\xef\xbf\xbd");
    }
    begin = ++i;
  }
  json->append(text.substr(begin));
}

void AppendString(std::string_view text, std::string* json) {
  json->push_back('"');
  AppendCharacters(text, json);
  json->push_back('"');
}

void AppendNumber(double value, std::string* json) {
  if (!std::isfinite(value)) {
    json->append("null");
    return;
  }
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  const std::string_view text(digits.data(), static_cast<size_t>(end - digits.data()));
  json->append(text);
  // The ".0" is for readers that tell integers from other numbers.
  if (text.find_first_of(".e") == std::string_view::npos) json->append(".0");
}

std::string OneLine(std::string_view json) {
  std::string line;
  line.reserve(json.size());
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\' && i + 1 < json.size()) {
      line.push_back(c);
      line.push_back(json[++i]);
      continue;
    }
    if (c == '"') in_string = !in_string;
    if (in_string || !absl::ascii_isspace(static_cast<unsigned char>(c))) line.push_back(c);
  }
  return line;
}

}  // namespace continuo::gateway::openai
