// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/reports/usage_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <type_traits>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/common/log.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway {
namespace {

// Writes what is possible, and returns how much that is.
size_t WriteSome(int file, std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(file, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  return done;
}

// True if a file, which may be a pipe or not to be read, ends within a line.
bool EndsWithinLine(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n' && !file.fail();
}

// Calls add(name, value) for each member of a record. Texts are views of the arguments.
constexpr size_t kNumMembers = 18;
template <typename Add>
void AddMembers(const UsageRecord& record, const absl::Status& status, std::string_view reason,
                Add add) {
  add("call", std::string_view(record.call));
  add("tenant", std::string_view(record.tenant));
  add("key", std::string_view(record.key));
  add("request_id", std::string_view(record.request_id));
  add("again", record.is_again);
  add("model", std::string_view(record.model));
  add("fingerprint", std::string_view(record.fingerprint));
  add("outcome", OutcomeOf(status));
  add("code", protocol::StatusName(status.code()));
  add("reason", reason);
  add("prompt_tokens", record.prompt_tokens);
  add("prompt_estimated", record.is_estimate);
  add("cached_tokens", record.cached_tokens);
  add("generated_tokens", record.generated_tokens);
  add("delivered_tokens", record.delivered_tokens);
  add("reasoning_tokens", record.reasoning_tokens);
  add("migrations", int64_t{record.migrations});
  add("seconds", absl::ToDoubleSeconds(record.duration));
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
  common::LogRecord log_record = {.event = "continuo.usage", .time = time, .attributes = {}};
  const auto add = [&log_record](const char* name, auto value) {
    if constexpr (std::is_convertible_v<decltype(value), std::string_view>) {
      log_record.attributes.emplace_back(name, std::string(value));
    } else {
      log_record.attributes.emplace_back(name, value);
    }
  };
  AddMembers(record, status, protocol::ReasonOf(status), add);
  return log_record;
}

std::string UsageLine(absl::Time time, const UsageRecord& record, const absl::Status& status) {
  const std::string reason = protocol::ReasonOf(status);
  std::vector<common::LogField> fields;
  fields.reserve(kNumMembers);
  AddMembers(record, status, reason, [&fields](const char* name, auto value) {
    fields.push_back({name, value});
  });
  return common::FormatLogLine(time, common::LogSeverity::kInfo, "usage", fields);
}

absl::StatusOr<std::unique_ptr<UsageLog>> UsageLog::Open(
    const std::string& path, std::unique_ptr<common::LogExporter> exporter) {
  int file = -1;
  bool is_torn = false;
  if (!path.empty()) {
    file = path == "-" ? ::dup(STDOUT_FILENO)
                       : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                                S_IRUSR | S_IWUSR | S_IRGRP);
    if (file < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--usage_log: \"", path, "\" cannot be opened: ", std::strerror(errno)));
    }
    struct stat about = {};
    is_torn =
        path != "-" && ::fstat(file, &about) == 0 && S_ISREG(about.st_mode) && EndsWithinLine(path);
  }
  return absl::WrapUnique(new UsageLog(file, is_torn, std::move(exporter)));
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
  const std::string bytes = absl::StrCat(is_torn_ ? "\n" : "", line, "\n");
  const size_t written = WriteSome(file_, bytes);
  if (written == bytes.size()) {
    is_torn_ = false;
    return;
  }
  // The end of an earlier line may be all that was written.
  if (written > 0) is_torn_ = bytes[written - 1] != '\n';
  common::Log(common::LogSeverity::kError, "a line of --usage_log was not written",
              {{"line", line}, {"error", std::strerror(errno)}});
}

void UsageLog::Stop() {
  if (exporter_ != nullptr) exporter_->Stop();
}

}  // namespace continuo::gateway
