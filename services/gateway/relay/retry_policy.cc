// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/retry_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

using Action = RetryDecision::Action;

// The interval between looks at the processes that may have crashed.
constexpr absl::Duration kCrashPollInterval = absl::Milliseconds(50);

RetryDecision Retry() { return {.action = Action::kRetry}; }
RetryDecision Wait(absl::Duration delay) { return {.action = Action::kWait, .delay = delay}; }
RetryDecision Conclude(absl::Status status) {
  return {.action = Action::kConclude, .status = std::move(status)};
}
absl::Status WorkerLost(const char* message) {
  return protocol::WithReason(absl::UnavailableError(message), protocol::kReasonWorkerLost);
}

}  // namespace

void RetryPolicy::OnCallStarted(absl::Duration now) {
  num_migrations_ += next_is_migration();
  num_calls_ += 1;
  if (!std::exchange(was_cold_, false)) waited_ += now - wait_start_;
  may_migrate_at_.reset();
  budget_.UseMigration();
}

void RetryPolicy::OnProgress() {
  waited_ = absl::ZeroDuration();
  retries_without_progress_ = num_faults_ = 0;
  failures_.clear();
  crashes_.clear();
}

RetryDecision RetryPolicy::OnFailure(const CallFailure& failure, absl::Duration now) {
  wait_start_ = now;
  switch (failure.end) {
    case WorkerEnd::kComplete:
      return Conclude(absl::OkStatus());
    case WorkerEnd::kDrained:
      return Migrate("drained", failure);
    case WorkerEnd::kLost:
      if (absl::IsUnavailable(failure.status)) SuspectCrash(failure, now);
      return Migrate("lost", failure);
    case WorkerEnd::kSilent:
      SuspectCrash(failure, now);
      return Migrate("silent", failure);
    case WorkerEnd::kFault:
      num_faults_ += 1;
      if (num_faults_ >= options_.max_faults) return Conclude(failure.status);
      return Migrate("fault", failure);
    case WorkerEnd::kOverloaded:
      if (num_migrations_ > 0 || failure.was_accepted) return Migrate("overloaded", failure);
      return Reject(failure, now);
    case WorkerEnd::kFinal:
      break;
  }
  return Conclude(failure.status);
}

RetryDecision RetryPolicy::Migrate(std::string_view reason, const CallFailure& failure) {
  const auto known = std::ranges::find(failures_, failure.address, &Failure::address);
  if (known == failures_.end()) {
    failures_.push_back({failure.address, 1});
  } else {
    known->count += 1;
  }
  rejected_by_.clear();
  RetryDecision decision = Wait(Backoff());
  // The first migration after progress is always tried. Further ones end here if workers are there
  // but none brings the stream further.
  if (retries_without_progress_ > 0 && waited_ + decision.delay > options_.no_worker_wait) {
    decision = Conclude(absl::IsResourceExhausted(failure.status)
                            ? failure.status
                            : WorkerLost("worker after worker was lost"));
  }
  retries_without_progress_ += 1;
  decision.reason = reason;
  decision.is_migration = true;
  return decision;
}

RetryDecision RetryPolicy::Reject(const CallFailure& failure, absl::Duration now) {
  // Nothing has begun: the next worker gets the request as new, so that it may reject it as well.
  rejected_by_.push_back(failure.address);
  rejection_ = protocol::RetryDelayOf(failure.status).has_value()
                   ? failure.status
                   : protocol::WithRetryInfo(failure.status, absl::Seconds(1));
  if (static_cast<int>(rejected_by_.size()) >= options_.max_rejections ||
      !budget_.TakeSecondTry(now)) {
    return Conclude(rejection_);
  }
  RetryDecision decision = Retry();
  decision.reason = "rejected";
  return decision;
}

void RetryPolicy::SuspectCrash(const CallFailure& failure, absl::Duration now) {
  if (!failure.was_accepted || failure.made_progress) return;
  crashes_.push_back({failure.address, failure.incarnation, now});
}

RetryDecision RetryPolicy::BeforeCall(absl::Duration now, absl::Duration time_left,
                                      CheckProcess check) {
  const bool may_wait = TimeWithoutCall(now) < options_.no_worker_wait;
  switch (JudgeCrashes(now, check)) {
    case CrashVerdict::kHarmless:
      break;
    case CrashVerdict::kUnconfirmed:
      // Another worker would hang as well.
      return may_wait ? Wait(kCrashPollInterval)
                      : Conclude(WorkerLost("worker after worker hangs"));
    case CrashVerdict::kPoison:
      return Conclude(protocol::WithReason(
          absl::InternalError(absl::StrCat("the request ended ", crashes_.size(),
                                           " workers in a row, each before a new token")),
          protocol::kReasonPoison));
  }
  const std::optional<absl::Duration> delay = BudgetDelay(now, time_left);
  if (!delay.has_value()) return Conclude(WorkerLost("worker after worker was lost"));
  return *delay > absl::ZeroDuration() ? Wait(*delay) : Retry();
}

RetryPolicy::CrashVerdict RetryPolicy::JudgeCrashes(absl::Duration now, CheckProcess check) {
  const auto are_few = [&] { return static_cast<int>(crashes_.size()) < options_.max_crashes; };
  if (are_few()) return CrashVerdict::kHarmless;
  bool all_confirmed = true;
  std::erase_if(crashes_, [&](SuspectedCrash& crash) {
    const ProcessState state = check(crash);
    if (state == ProcessState::kHung) crash.last_seen = now;
    if (state == ProcessState::kAlive ||
        (state == ProcessState::kUnknown &&
         now - crash.last_seen >= options_.crash_confirm_timeout)) {
      return true;
    }
    all_confirmed = all_confirmed && state == ProcessState::kExited;
    return false;
  });
  if (are_few()) return CrashVerdict::kHarmless;
  return all_confirmed ? CrashVerdict::kPoison : CrashVerdict::kUnconfirmed;
}

std::optional<absl::Duration> RetryPolicy::BudgetDelay(absl::Duration now,
                                                       absl::Duration time_left) {
  if (retries_without_progress_ <= 1) return absl::ZeroDuration();
  if (!may_migrate_at_.has_value()) {
    const absl::Duration max_delay = options_.no_worker_wait - TimeWithoutCall(now);
    const auto delay = budget_.TakeMigration(now, std::min(max_delay, time_left));
    if (!delay.has_value()) return std::nullopt;
    may_migrate_at_ = now + *delay;
  }
  return std::max(absl::ZeroDuration(), *may_migrate_at_ - now);
}

RetryDecision RetryPolicy::OnNoWorker(const absl::Status& status, bool is_cold,
                                      absl::Duration now) {
  if (!absl::IsUnavailable(status)) return Conclude(status);
  if (!rejected_by_.empty()) return Conclude(rejection_);
  was_cold_ = was_cold_ || (is_cold && num_calls_ == 0);
  const absl::Duration limit = was_cold_
                                   ? std::max(options_.cold_start_wait, options_.no_worker_wait)
                                   : options_.no_worker_wait;
  const absl::Duration left = limit - TimeWithoutCall(now);
  if (left <= absl::ZeroDuration()) return Conclude(status);
  const absl::Duration exact_left = wait_start_ + options_.exact_wait - now;
  return Wait(exact_left > absl::ZeroDuration() ? std::min(left, exact_left) : left);
}

absl::Duration RetryPolicy::TimeWithoutCall(absl::Duration now) const {
  return waited_ + (now - wait_start_);
}

absl::Duration RetryPolicy::Backoff() {
  absl::Duration limit = options_.backoff_base;
  for (int i = 0; i < retries_without_progress_ && limit < options_.backoff_max; ++i) limit *= 2;
  return std::min(limit, options_.backoff_max) * (0.5 + random_.NextUniform() / 2);
}

}  // namespace continuo::gateway
