// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"

namespace continuo::gateway {

struct RetryBudgetOptions {
  double per_request = 0.2;  // retries that each new request earns
  double per_second = 10;    // retries that each second earns
  double max = 100;          // retries that may be saved up, and the number at the start
};

// A token bucket of the retries of all streams together. A fleet that fails everything then sees
// each request twice and little more, not every stream again and again. Thread-safe.
class RetryBudget {
 public:
  // `clock` outlives the budget.
  explicit RetryBudget(const Clock* clock, const RetryBudgetOptions& options = {})
      : clock_(clock), options_(options), tokens_(options.max), time_(clock->Elapsed()) {}

  // Called for each new request.
  void Earn() {
    absl::MutexLock lock(&mutex_);
    tokens_ = std::min(options_.max, tokens_ + options_.per_request);
  }
  // Takes a retry. False if there is none now.
  bool Take() {
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = clock_->Elapsed();
    tokens_ =
        std::min(options_.max, tokens_ + absl::ToDoubleSeconds(now - time_) * options_.per_second);
    time_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  const Clock* const clock_;
  const RetryBudgetOptions options_;
  absl::Mutex mutex_;
  double tokens_ ABSL_GUARDED_BY(mutex_);
  absl::Duration time_ ABSL_GUARDED_BY(mutex_);  // `tokens_` includes the seconds up to here
};

}  // namespace continuo::gateway
