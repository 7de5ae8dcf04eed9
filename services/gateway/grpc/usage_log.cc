// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/usage_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

std::string UsageLine(absl::Time time, const UsageRecord& record, const absl::Status& status) {
  return common::FormatLogLine(time, common::LogSeverity::kInfo, "usage",
                               {{"call", record.call},
                                {"tenant", record.tenant},
                                {"key", record.key},
                                {"request_id", record.request_id},
                                {"again", record.is_again},
                                {"model", record.model},
                                {"fingerprint", record.fingerprint},
                                {"outcome", OutcomeOf(status)},
                                {"code", protocol::StatusName(status.code())},
                                {"reason", protocol::ReasonOf(status)},
                                {"prompt_tokens", record.prompt_tokens},
                                {"prompt_estimated", record.is_estimate},
                                {"cached_tokens", record.cached_tokens},
                                {"generated_tokens", record.generated_tokens},
                                {"delivered_tokens", record.delivered_tokens},
                                {"reasoning_tokens", record.reasoning_tokens},
                                {"migrations", record.migrations},
                                {"seconds", record.duration}});
}

absl::StatusOr<std::unique_ptr<UsageLog>> UsageLog::Open(const std::string& path) {
  const int file = path == "-" ? ::dup(STDOUT_FILENO)
                               : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                                        S_IRUSR | S_IWUSR | S_IRGRP);
  if (file < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--usage_log: \"", path, "\" cannot be opened: ", std::strerror(errno)));
  }
  return absl::WrapUnique(new UsageLog(file));
}

UsageLog::~UsageLog() { ::close(file_); }

void UsageLog::Write(const UsageRecord& record, const absl::Status& status) {
  const std::string line = UsageLine(absl::Now(), record, status);
  absl::MutexLock lock(&mutex_);
  if (WriteAll(file_, line + "\n")) return;
  common::Log(common::LogSeverity::kError, "a line of --usage_log was not written",
              {{"line", line}, {"error", std::strerror(errno)}});
}

}  // namespace continuo::gateway
