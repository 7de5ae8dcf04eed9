// SPDX-License-Identifier: Apache-2.0
#pragma once

// Log lines are JSON objects, one a line, on stderr: {"time":"2025-01-31T12:00:00.123456Z",
// "severity":"INFO","message":"serving","port":50051}. They never contain prompt text, generated
// text or keys.

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/base/log_severity.h"
#include "absl/time/time.h"

namespace continuo::common {

using LogSeverity = absl::LogSeverity;  // kInfo, kWarning, kError

// The value of a field. A view, valid during the Log call.
class LogValue {
 public:
  LogValue(const char* value) : value_(std::string_view(value)) {}  // NOLINT: implicit by design
  LogValue(std::string_view value) : value_(value) {}               // NOLINT
  LogValue(const std::string& value) : value_(std::string_view(value)) {}  // NOLINT
  LogValue(bool value) : value_(value) {}                                  // NOLINT
  template <std::signed_integral T>
  LogValue(T value) : value_(static_cast<int64_t>(value)) {}  // NOLINT
  template <std::unsigned_integral T>
  LogValue(T value) : value_(static_cast<uint64_t>(value)) {}                       // NOLINT
  LogValue(std::floating_point auto value) : value_(static_cast<double>(value)) {}  // NOLINT
  LogValue(absl::Duration value)
      : value_(absl::ToDoubleSeconds(value)) {}  // NOLINT: logged in seconds

 private:
  friend std::string FormatLogLine(absl::Time, LogSeverity, std::string_view,
                                   std::span<const struct LogField>);
  std::variant<std::string_view, bool, int64_t, uint64_t, double> value_;
};

struct LogField {
  std::string_view key;
  LogValue value;
};

// Lines of a lower severity than `level` ("info", "warning" or "error") are not written from now
// on. Called once, before other threads are started.
void SetLogLevel(std::string_view level);

// Writes one line. Thread-safe; lines of several threads do not mix.
void Log(LogSeverity severity, std::string_view message,
         std::initializer_list<LogField> fields = {});

// Logs an error and ends the process at once with `code`, without destructors. No line of another
// thread follows; lines that they log meanwhile are lost. Thread-safe.
[[noreturn]] void LogAndExit(int code, std::string_view message,
                             std::initializer_list<LogField> fields = {});

// Formats a line, without the newline. Bytes that are not UTF-8 become U+FFFD; numbers that are not
// finite become null.
std::string FormatLogLine(absl::Time time, LogSeverity severity, std::string_view message,
                          std::span<const LogField> fields);
inline std::string FormatLogLine(absl::Time time, LogSeverity severity, std::string_view message,
                                 std::initializer_list<LogField> fields) {
  return FormatLogLine(time, severity, message, std::span(fields.begin(), fields.size()));
}

// Routes the errors and warnings of gRPC and Protocol Buffers through Log, with "source" set to
// file:line. Call once, before the first channel or server.
void InstallGrpcLogSink();

}  // namespace continuo::common
