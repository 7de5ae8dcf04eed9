// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace continuo::gateway {

struct RetryBudgetOptions {
  // Each of the two buckets, of second tries and of migrations, gains `per_request` tokens for each
  // new request and `per_second` a second. It starts with `max` and holds at most as many.
  double per_request = 0.2;
  double per_second = 10;
  double max = 100;
  // Each open stream adds so many migrations a second, and one to what their bucket holds.
  double per_stream_second = 0.1;
};

// Bounds the retries of all streams together, so that a fleet that fails everything does not see
// every stream again and again. Two token buckets: rejected requests must not use up what streams
// need that have lost their worker. What migrations may take grows with the open streams, since one
// fault may hit them all. Times are those of Clock::Elapsed. Thread-safe.
class RetryBudget {
 public:
  explicit RetryBudget(const RetryBudgetOptions& options = {})
      : options_(options), second_tries_{options.max}, migrations_{options.max} {}

  // An open stream, which is counted for as long as this object lives.
  class Stream {
   public:
    // `budget` outlives the stream; null means no bound.
    Stream(RetryBudget* budget, absl::Duration now) : budget_(budget) {
      if (budget_ != nullptr) budget_->Open(now);
    }
    ~Stream() {
      if (budget_ != nullptr) budget_->Close(has_migration_);
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // Takes a second try of a rejected request. False if there is none now.
    bool TakeSecondTry(absl::Duration now) {
      return budget_ == nullptr || budget_->TakeSecondTry(now);
    }
    // Takes a migration, which may be made after the returned delay: streams that find none left
    // get the next ones in their order. Nothing is taken if the delay would be above `max_delay`.
    // It is given back where the stream ends before UseMigration.
    std::optional<absl::Duration> TakeMigration(absl::Duration now, absl::Duration max_delay) {
      if (budget_ == nullptr) return absl::ZeroDuration();
      const std::optional<absl::Duration> delay = budget_->TakeMigration(now, max_delay);
      has_migration_ = has_migration_ || delay.has_value();
      return delay;
    }
    // The migration that was taken, if any, is made now.
    void UseMigration() { has_migration_ = false; }

   private:
    RetryBudget* const budget_;
    bool has_migration_ = false;  // taken and not yet made
  };

 private:
  struct Bucket {
    double tokens;  // below 0: this many are due to streams that wait for them
    // `tokens` includes the seconds up to here. Those since are counted with the streams that are
    // open at the next look.
    absl::Duration time = absl::ZeroDuration();

    void Advance(absl::Duration now, double per_second, double max) {
      if (now > time) {
        tokens += absl::ToDoubleSeconds(now - time) * per_second;
        time = now;
      }
      tokens = std::min(max, tokens);
    }
  };

  void Open(absl::Duration now) {
    absl::MutexLock lock(&mutex_);
    AdvanceMigrations(now);
    open_streams_ += 1;
    second_tries_.tokens = std::min(options_.max, second_tries_.tokens + options_.per_request);
    migrations_.tokens = std::min(MaxMigrations(), migrations_.tokens + options_.per_request);
  }
  void Close(bool gives_back) {
    absl::MutexLock lock(&mutex_);
    open_streams_ -= 1;
    if (gives_back) migrations_.tokens += 1;
  }
  bool TakeSecondTry(absl::Duration now) {
    absl::MutexLock lock(&mutex_);
    second_tries_.Advance(now, options_.per_second, options_.max);
    if (second_tries_.tokens < 1) return false;
    second_tries_.tokens -= 1;
    return true;
  }
  std::optional<absl::Duration> TakeMigration(absl::Duration now, absl::Duration max_delay) {
    absl::MutexLock lock(&mutex_);
    AdvanceMigrations(now);
    absl::Duration delay;
    if (migrations_.tokens < 1) {
      const double per_second = MigrationsPerSecond();
      if (per_second <= 0) return std::nullopt;
      // In whole milliseconds: a timer's time may have no smaller fractions than a nanosecond.
      delay =
          absl::Ceil(absl::Seconds((1 - migrations_.tokens) / per_second), absl::Milliseconds(1));
      if (delay > max_delay) return std::nullopt;
    }
    migrations_.tokens -= 1;
    return delay;
  }

  double MigrationsPerSecond() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return options_.per_second + options_.per_stream_second * static_cast<double>(open_streams_);
  }
  double MaxMigrations() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return options_.max + (options_.per_stream_second > 0 ? static_cast<double>(open_streams_) : 0);
  }
  void AdvanceMigrations(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    migrations_.Advance(now, MigrationsPerSecond(), MaxMigrations());
  }

  const RetryBudgetOptions options_;
  absl::Mutex mutex_;
  int64_t open_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  Bucket second_tries_ ABSL_GUARDED_BY(mutex_), migrations_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
