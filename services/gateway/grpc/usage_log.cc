// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/usage_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <variant>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/common/log.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway {
namespace {

// Writes all of it; false if that is not possible.
bool WriteAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

std::string_view OutcomeOf(const absl::Status& status) {
  const std::string reason = protocol::ReasonOf(status);
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return "finished";
    case absl::StatusCode::kCancelled:
      return "cancelled";
    case absl::StatusCode::kDeadlineExceeded:
      return "expired";
    case absl::StatusCode::kAborted:
      return reason == protocol::kReasonAborted ? "replaced" : "failed";
    default:
      return reason == protocol::kReasonContinue ? "moved" : "failed";
  }
}

common::LogRecord UsageLogRecord(absl::Time time, const UsageRecord& record,
                                 const absl::Status& status) {
  return {.event = "continuo.usage",
          .time = time,
          .attributes = {{"call", record.call},
                         {"tenant", record.tenant},
                         {"key", record.key},
                         {"request_id", record.request_id},
                         {"again", record.is_again},
                         {"model", record.model},
                         {"fingerprint", record.fingerprint},
                         {"outcome", std::string(OutcomeOf(status))},
                         {"code", std::string(protocol::StatusName(status.code()))},
                         {"reason", protocol::ReasonOf(status)},
                         {"prompt_tokens", record.prompt_tokens},
                         {"prompt_estimated", record.is_estimate},
                         {"cached_tokens", record.cached_tokens},
                         {"generated_tokens", record.generated_tokens},
                         {"delivered_tokens", record.delivered_tokens},
                         {"reasoning_tokens", record.reasoning_tokens},
                         {"migrations", int64_t{record.migrations}},
                         {"seconds", absl::ToDoubleSeconds(record.duration)}}};
}

std::string UsageLine(absl::Time time, const UsageRecord& record, const absl::Status& status) {
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", time, absl::UTCTimeZone())},
      {"severity", "INFO"},
      {"message", "usage"}};
  const common::LogRecord log_record = UsageLogRecord(time, record, status);
  for (const auto& [key, value] : log_record.attributes) {
    std::visit([&line, &key](const auto& v) { line[key] = v; }, value);
  }
  return line.dump(/*indent=*/-1, /*indent_char=*/' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<std::unique_ptr<UsageLog>> UsageLog::Open(
    const std::string& path, std::unique_ptr<common::LogExporter> exporter) {
  int file = -1;
  if (!path.empty()) {
    file = path == "-" ? ::dup(STDOUT_FILENO)
                       : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                                S_IRUSR | S_IWUSR | S_IRGRP);
    if (file < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--usage_log: \"", path, "\" cannot be opened: ", std::strerror(errno)));
    }
  }
  return absl::WrapUnique(new UsageLog(file, std::move(exporter)));
}

UsageLog::~UsageLog() {
  if (file_ >= 0) ::close(file_);
}

void UsageLog::Write(const UsageRecord& record, const absl::Status& status) {
  const absl::Time now = absl::Now();
  if (exporter_ != nullptr) exporter_->Add(UsageLogRecord(now, record, status));
  if (file_ < 0) return;
  const std::string line = UsageLine(now, record, status);
  absl::MutexLock lock(&mutex_);
  if (WriteAll(file_, line + "\n")) return;
  common::Log(common::LogSeverity::kError, "a line of --usage_log was not written",
              {{"line", line}, {"error", std::strerror(errno)}});
}

void UsageLog::Stop() {
  if (exporter_ != nullptr) exporter_->Stop();
}

}  // namespace continuo::gateway
