// SPDX-License-Identifier: Apache-2.0
#include "services/common/log.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>

#include "absl/time/clock.h"

namespace continuo {
namespace {

// Length of the well-formed UTF-8 character at the start of `text`, or 0.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what is beyond U+10FFFF.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

void AppendString(std::string& line, std::string_view text) {
  line += '"';
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      line += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      line += '\\';
      line += text[0];
    } else if (c == '\n') {
      line += "\\n";
    } else if (c < 0x20 || c == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      line += escaped;
    } else {
      line.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  line += '"';
}

struct AppendValue {
  std::string& line;
  void operator()(std::string_view value) const { AppendString(line, value); }
  void operator()(bool value) const { line += value ? "true" : "false"; }
  void operator()(int64_t value) const { line += std::to_string(value); }
  void operator()(uint64_t value) const { line += std::to_string(value); }
  void operator()(double value) const {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", value);
    line += std::isfinite(value) ? text : "null";
  }
};

}  // namespace

std::string FormatLogLine(absl::Time time, LogSeverity severity, std::string_view message,
                          std::initializer_list<LogField> fields) {
  std::string line = "{\"time\":\"";
  line += absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", time, absl::UTCTimeZone());
  line += "\",\"severity\":\"";
  line += absl::LogSeverityName(severity);
  line += "\",\"message\":";
  AppendString(line, message);
  for (const LogField& field : fields) {
    line += ',';
    AppendString(line, field.key);
    line += ':';
    std::visit(AppendValue{line}, field.value.value_);
  }
  line += '}';
  return line;
}

void Log(LogSeverity severity, std::string_view message, std::initializer_list<LogField> fields) {
  const std::string line = FormatLogLine(absl::Now(), severity, message, fields) + '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // Nobody to tell.
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace continuo
