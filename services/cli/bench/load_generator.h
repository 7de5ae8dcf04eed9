// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/cli/bench/bench_flags.h"
#include "services/cli/bench/bench_report.h"
#include "services/cli/bench/workload.h"

namespace continuo::cli {

using SteadyClock = std::chrono::steady_clock;

inline double SecondsBetween(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Sends requests over several connections and records how each ended. Calls use gRPC's callback
// API: a thousand streams share its few threads. Thread-safe.
class LoadGenerator {
 public:
  // Flags and workload outlive this. The workload may be null where nothing is started.
  LoadGenerator(const BenchFlags& flags, const Workload* workload)
      : flags_(flags), workload_(workload) {}
  // All calls have ended.
  ~LoadGenerator() = default;
  LoadGenerator(const LoadGenerator&) = delete;
  LoadGenerator& operator=(const LoadGenerator&) = delete;

  // Opens flags.connections connections. Called once, first.
  absl::Status Connect();
  // Request `index` uses this connection; they take turns.
  v1::InferenceService::Stub* stub(uint64_t index) { return stubs_[index % stubs_.size()].get(); }

  void Start(const PlannedRequest& request);
  // Cancels the calls in flight; no new ones start.
  void Cancel();
  // Blocks until fewer than `max_in_flight` calls are in flight, `until` has come, or Cancel was
  // called.
  void WaitForRoom(size_t max_in_flight, SteadyClock::time_point until);
  // Blocks until `until` has come or Cancel was called.
  void WaitUntil(SteadyClock::time_point until) { WaitForRoom(0, until); }

  size_t num_in_flight() const;
  size_t num_finished() const;
  // The output tokens received so far.
  uint64_t output_tokens() const { return output_tokens_.load(std::memory_order_relaxed); }
  bool cancelled() const;
  std::vector<RequestRecord> TakeRecords();
  // The part between the first token of the flags.concurrency-th answer and that of the last one.
  SteadyState steady() const;

 private:
  class Call;
  struct Moment {
    SteadyClock::time_point time;
    uint64_t output_tokens = 0;
  };
  void OnFirstToken(SteadyClock::time_point now);
  // Takes the record of a call, which may be destroyed by this.
  void OnEnd(Call* call, RequestRecord record);

  const BenchFlags& flags_;
  const Workload* const workload_;
  std::vector<std::unique_ptr<v1::InferenceService::Stub>> stubs_;  // One per connection.
  std::atomic<uint64_t> output_tokens_ = 0;

  mutable absl::Mutex mutex_;
  std::map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // In flight.
  std::vector<RequestRecord> records_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t num_begun_ ABSL_GUARDED_BY(mutex_) = 0;  // Answers that have a token.
  Moment full_ ABSL_GUARDED_BY(mutex_);             // When flags.concurrency answers had begun.
  Moment last_begun_ ABSL_GUARDED_BY(mutex_);       // When the last answer so far began.
};

}  // namespace continuo::cli
