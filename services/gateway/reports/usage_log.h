// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/telemetry/log_exporter.h"

namespace continuo::gateway {

// A record tells what one call of a client used, whatever its end.
struct UsageRecord {
  std::string call;  // names this call among all calls
  std::string tenant, key, request_id, model, fingerprint;
  // Several calls of one request_id are tries of one generation.
  bool is_again = false;  // it may have been called before: it is keyed, resumed or continued
  int64_t prompt_tokens = 0;
  bool is_estimate = false;      // no worker has counted the prompt
  int64_t cached_tokens = 0;     // of the prompt, as the last worker found them
  int64_t generated_tokens = 0;  // of the whole generation, where a worker told them
  int64_t delivered_tokens = 0;  // by this call
  int64_t reasoning_tokens = 0;  // of the generated ones
  int migrations = 0;
  absl::Duration duration;
};

// "finished", "cancelled" by the client, "replaced" by another call of the same generation, "moved"
// to another gateway since this one ended, "expired" or "failed".
std::string_view OutcomeOf(const absl::Status& status);

// The record as a line of JSON without its end.
std::string UsageLine(absl::Time time, const UsageRecord& record, const absl::Status& status);

// The record as OpenTelemetry has it: the members of the line, from "call" on.
common::LogRecord UsageLogRecord(absl::Time time, const UsageRecord& record,
                                 const absl::Status& status);

// The ledger of one gateway: a record for each call that was admitted, written at its end: a line
// of a file, appended in one piece, a log record for a collector, or both. Thread-safe.
class UsageLog {
 public:
  // "-" is the standard output, "" no file, anything else a file. INVALID_ARGUMENT names
  // --usage_log. An exporter of null sends nothing.
  static absl::StatusOr<std::unique_ptr<UsageLog>> Open(
      const std::string& path, std::unique_ptr<common::LogExporter> exporter);
  ~UsageLog();
  UsageLog(const UsageLog&) = delete;
  UsageLog& operator=(const UsageLog&) = delete;

  // A line that cannot be written goes to the log instead, so that it is not lost. What was written
  // of it ends before the next one. Waits for the file.
  void Write(const UsageRecord& record, const absl::Status& status);

  // Sends what waits for the collector, for at most a second. Called by one thread.
  void Stop();
  // The number of records that no collector took.
  int64_t num_dropped() const { return exporter_ == nullptr ? 0 : exporter_->num_dropped(); }

 private:
  UsageLog(int file, bool is_torn, std::unique_ptr<common::LogExporter> exporter)
      : file_(file), exporter_(std::move(exporter)), is_torn_(is_torn) {}

  const int file_;  // -1: none
  const std::unique_ptr<common::LogExporter> exporter_;
  absl::Mutex mutex_;  // held while a line is written
  // The file ends within a line.
  bool is_torn_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace continuo::gateway
