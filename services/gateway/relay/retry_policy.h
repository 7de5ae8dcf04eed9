// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/base/random.h"
#include "services/gateway/relay/retry_budget.h"
#include "services/gateway/relay/worker_end.h"
#include "services/gateway/routing/policy.h"
#include "services/gateway/routing/router.h"

namespace continuo::gateway {

struct RetryOptions {
  // How long a stream may have no call to any worker, in total since its last progress.
  absl::Duration no_worker_wait = absl::Seconds(30);
  // How long a stream that has had no call yet may wait while its model is cold (Router::IsCold),
  // if that is longer. The wait does not count as time without a call.
  absl::Duration cold_start_wait = absl::Minutes(15);
  // The back-off before the n-th migration without progress is uniform in [1/2, 1] of
  // base · 2^(n-1), at most max.
  absl::Duration backoff_base = absl::Milliseconds(20);
  absl::Duration backoff_max = absl::Seconds(1);
  // How long a stream waits for a worker of the same fingerprint whose connection is down before
  // the stream goes on inexactly.
  absl::Duration exact_wait = absl::Milliseconds(500);
  // Crashes of worker processes without progress after which the request is taken for the cause.
  int max_crashes = 3;
  // How long after its loss a worker that is not heard of may still turn out to have crashed. After
  // that its loss counts as a cut connection.
  absl::Duration crash_confirm_timeout = absl::Seconds(5);
  // Faults of workers without progress after which the client gets the error.
  int max_faults = 3;
  // Workers that may reject a new request before the client gets the rejection.
  int max_rejections = 3;
};

// The end of a call to a worker.
struct CallFailure {
  WorkerEnd end = WorkerEnd::kFinal;
  absl::Status status;
  std::string address, incarnation;
  bool was_accepted = false;   // by this worker
  bool made_progress = false;  // with this worker
};

// A worker process that has perhaps crashed on this request.
struct SuspectedCrash {
  std::string address, incarnation;
  absl::Duration last_seen;  // when the process was last known to be there
};

// The next step of a stream without a call.
struct RetryDecision {
  enum class Action {
    kRetry,     // pick a worker now
    kWait,      // ask again after `delay`
    kConclude,  // end the client's stream with `status`
  };
  Action action = Action::kRetry;
  absl::Duration delay;
  absl::Status status;
  // For RelayAttempt::reason; empty if the end of the call leads to no further one.
  std::string_view reason;
  bool is_migration = false;  // the end of the call makes the stream migrate
};

// Decides what follows when a call to a worker has ended or no worker takes one. Remembers what
// happened to one stream since its last progress: failures by worker, suspected crashes,
// rejections, retries and time without a call (exactness: query-of-death). A function of what it is
// told; times are those of Clock::Elapsed. Not thread-safe.
class RetryPolicy {
 public:
  // Tells what is known about a process that may have crashed; see Router::CheckProcess.
  using CheckProcess = absl::FunctionRef<ProcessState(const SuspectedCrash&)>;

  // The stream starts `now`, without a call. `budget`, shared by all streams, outlives the policy;
  // null means no bound. `seed` is that of the jitter.
  RetryPolicy(const RetryOptions& options, RetryBudget* budget, uint64_t seed, absl::Duration now)
      : options_(options), budget_(budget, now), random_(seed), wait_start_(now) {}

  void OnCallStarted(absl::Duration now);
  // A response brought something that the next worker need not compute again.
  void OnProgress();
  // The call has ended, and with it the stream's use of that worker. The stream is without a call
  // from now on.
  RetryDecision OnFailure(const CallFailure& failure, absl::Duration now);

  // Without a call: may the next one be made now? kWait if suspected crashes are to be confirmed
  // first or the budget of all streams has none for this one yet. `time_left` is until the
  // request's deadline.
  RetryDecision BeforeCall(absl::Duration now, absl::Duration time_left, CheckProcess check);
  // The router has found no worker, for the reason `status`; `is_cold` is Router::IsCold. kWait:
  // until the set of workers changes, for `delay` at most.
  RetryDecision OnNoWorker(const absl::Status& status, bool is_cold, absl::Duration now);

  // True if the worker must take the next call as a migration: an earlier one may have had an
  // effect, which a rejected one has not.
  bool next_is_migration() const { return num_calls_ > 0 && rejected_by_.empty(); }
  // True if the stream has waited long enough for a worker of its own fingerprint.
  bool allows_inexact(absl::Duration now) const { return now - wait_start_ >= options_.exact_wait; }
  std::span<const Failure> failures() const { return failures_; }
  std::span<const std::string> rejected_by() const { return rejected_by_; }

 private:
  enum class CrashVerdict { kHarmless, kUnconfirmed, kPoison };

  RetryDecision Migrate(std::string_view reason, const CallFailure& failure);
  RetryDecision Reject(const CallFailure& failure, absl::Duration now);
  void SuspectCrash(const CallFailure& failure, absl::Duration now);
  CrashVerdict JudgeCrashes(absl::Duration now, CheckProcess check);
  // How long the budget makes the next call wait; none if longer than the stream may. The first
  // call, and the first migration since the last progress, take nothing from the budget.
  std::optional<absl::Duration> BudgetDelay(absl::Duration now, absl::Duration time_left);
  absl::Duration TimeWithoutCall(absl::Duration now) const;
  absl::Duration Backoff();

  const RetryOptions options_;
  RetryBudget::Stream budget_;
  SplitMix64 random_;

  int num_calls_ = 0;
  int num_migrations_ = 0;
  absl::Duration wait_start_;  // of the current or last time without a call
  bool was_cold_ = false;      // the current time without a call has met a cold model

  // All below is reset by progress, except the rejections, which only precede it.
  absl::Duration waited_;  // without a call, before wait_start_
  int retries_without_progress_ = 0;
  std::optional<absl::Duration> may_migrate_at_;  // taken from the budget for the next call
  int num_faults_ = 0;
  std::vector<Failure> failures_;
  std::vector<SuspectedCrash> crashes_;
  std::vector<std::string> rejected_by_;  // addresses; cleared by a migration
  absl::Status rejection_;                // the last one
};

}  // namespace continuo::gateway
