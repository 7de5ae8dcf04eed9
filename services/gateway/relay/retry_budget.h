// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"

namespace continuo::gateway {

struct RetryBudgetOptions {
  double per_request = 0.2;  // tries that each new request earns
  double per_second = 10;    // and each second
  double max = 100;          // what may be saved up; there at the start
};

// How often all streams together may try again what has just failed again: a bucket of tokens. A
// fleet that fails everything then sees each request twice and little more, not every stream again
// and again. Thread-safe.
class RetryBudget {
 public:
  // `clock` outlives the budget.
  explicit RetryBudget(const Clock* clock, const RetryBudgetOptions& options = {})
      : clock_(clock), options_(options), tokens_(options.max), time_(clock->Elapsed()) {}

  // A new request has come.
  void Earn() {
    absl::MutexLock lock(&mutex_);
    tokens_ = std::min(options_.max, tokens_ + options_.per_request);
  }
  // False: not now.
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
  absl::Duration time_ ABSL_GUARDED_BY(mutex_);  // until when `tokens_` counts the seconds
};

}  // namespace continuo::gateway
