// SPDX-License-Identifier: Apache-2.0
#include "services/common/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "services/base/utf8.h"

namespace continuo::common {
namespace {

bool IsPlain(char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

void AppendString(std::string& line, std::string_view text) {
  line += '"';
  while (!text.empty()) {
    size_t length = 0;
    while (length < text.size() && IsPlain(text[length])) ++length;
    line.append(text.substr(0, length));
    text.remove_prefix(length);
    if (text.empty()) break;
    length = Utf8CharacterLength(text);
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

// Appends what std::to_chars makes of `value`.
template <typename... Arguments>
void AppendChars(std::string& line, Arguments... value) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), value...);
  line.append(text, end.ptr);
}

struct AppendValue {
  std::string& line;
  void operator()(std::string_view value) const { AppendString(line, value); }
  void operator()(bool value) const { line += value ? "true" : "false"; }
  void operator()(int64_t value) const { AppendChars(line, value); }
  void operator()(uint64_t value) const { AppendChars(line, value); }
  void operator()(double value) const {
    if (!std::isfinite(value)) {
      line += "null";
    } else {
      AppendChars(line, value, std::chars_format::general, 9);
    }
  }
};

// Appends a time of UTC to the microsecond. A thread's lines of one second share its text.
void AppendTime(std::string& line, absl::Time time) {
  // Has no destructor, since lines may come while a thread ends.
  struct Second {
    int64_t number = -1;
    size_t size = 0;
    char text[40];
  };
  thread_local Second last;
  const int64_t number = absl::ToUnixSeconds(time);
  const absl::Time begin = absl::FromUnixSeconds(number);
  if (last.size == 0 || number != last.number) {
    const std::string text = absl::FormatTime("%Y-%m-%d%ET%H:%M:%S.", begin, absl::UTCTimeZone());
    last.number = number;
    last.size = text.copy(last.text, sizeof(last.text));
  }
  line.append(last.text, last.size);
  const int64_t microseconds = absl::ToInt64Microseconds(time - begin);
  // The leading 1 keeps the zeros.
  const size_t place = line.size();
  AppendChars(line, 1000000 + microseconds);
  line.erase(place, 1);
  line += 'Z';
}

std::atomic<LogSeverity> least_severity = LogSeverity::kInfo;

// Held while a line is written.
ABSL_CONST_INIT absl::Mutex writing(absl::kConstInit);

void WriteLine(std::string line) {
  line += '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // There is nowhere to report it.
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string FormatLogLine(absl::Time time, LogSeverity severity, std::string_view message,
                          std::span<const LogField> fields) {
  constexpr size_t kUsualBytes = 512;
  std::string line;
  line.reserve(kUsualBytes);
  line += "{\"time\":\"";
  AppendTime(line, time);
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

void SetLogLevel(std::string_view level) {
  least_severity = level == "error"     ? LogSeverity::kError
                   : level == "warning" ? LogSeverity::kWarning
                                        : LogSeverity::kInfo;
}

void Log(LogSeverity severity, std::string_view message, std::initializer_list<LogField> fields) {
  if (severity < least_severity.load(std::memory_order_relaxed)) return;
  std::string line = FormatLogLine(absl::Now(), severity, message, fields);
  absl::MutexLock lock(&writing);
  WriteLine(std::move(line));
}

void LogAndExit(int code, std::string_view message, std::initializer_list<LogField> fields) {
  std::string line = FormatLogLine(absl::Now(), LogSeverity::kError, message, fields);
  writing.Lock();  // Never unlocked.
  WriteLine(std::move(line));
  std::_Exit(code);
}

}  // namespace continuo::common
