// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/unary/unary_relay.h"

#include <algorithm>
#include <utility>

#include "services/protocol/error.h"

namespace continuo::gateway {

UnaryRelay::UnaryRelay(const RelayEnvironment& environment, UnaryWork work, StartCall start,
                       Finish finish)
    : env_(environment),
      start_(std::move(start)),
      finish_(std::move(finish)),
      work_(std::move(work)),
      start_time_(env_.clock->Elapsed()),
      retry_(env_.options.retry, env_.budget, work_.seed, start_time_),
      without_call_since_(start_time_) {
  report_.request_id = work_.context.request_id;
  report_.tenant = work_.context.tenant;
  report_.correlation_id = work_.context.correlation_id;
  report_.model = work_.model;
}

void UnaryRelay::Start() {
  if (events_.Open(Started{})) HandleEvents();
}

void UnaryRelay::HandleEvents() {
  // `finish` may let go of the last other owner.
  const std::shared_ptr<UnaryRelay> self = shared_from_this();
  events_.Drain([this](Event& event) {
    if (finish_ == nullptr) return;
    std::visit([this](auto& e) { Handle(e); }, event);
  });
}

std::function<void()> UnaryRelay::Later(Event event) {
  return [weak = weak_from_this(), event = std::move(event)] {
    if (const auto self = weak.lock()) self->Post(event);
  };
}

void UnaryRelay::Handle(CallEnded& event) {
  if (!IsCurrent(event.attempt)) return;
  // An answer is all that there is to have.
  WorkerEnd end = event.status.ok() ? WorkerEnd::kComplete
                                    : ClassifyWorkerEnd(event.status, /*has_summary=*/false);
  // It has unloaded the model, and its next report has not come yet.
  if (end == WorkerEnd::kFinal && absl::IsNotFound(event.status) &&
      env_.router->HasOther(*lease_, retry_.failures())) {
    end = WorkerEnd::kDrained;
  }
  LeaveWorker(end, event.status);
}

void UnaryRelay::Handle(WorkerLost& event) {
  if (!IsCurrent(event.attempt)) return;
  std::exchange(cancel_, nullptr)();
  LeaveWorker(WorkerEnd::kSilent, absl::UnavailableError("the worker is silent"));
}

void UnaryRelay::Handle(WaitOver& event) {
  if (!lease_.has_value() && event.wait == wait_) TryNext();
}

void UnaryRelay::Handle(WaitTimedOut& event) {
  if (event.due == wait_timer_due_) wait_timer_due_ = absl::InfiniteDuration();
  if (waits_for_worker_) TryNext();
}

void UnaryRelay::Handle(Ended& event) {
  if (cancel_ != nullptr) std::exchange(cancel_, nullptr)();
  const bool late = absl::IsCancelled(event.why) && env_.clock->Now() >= work_.context.deadline;
  Conclude(late ? absl::DeadlineExceededError("the deadline has passed") : event.why);
}

void UnaryRelay::TryNext() {
  waits_for_worker_ = false;
  const absl::Duration time_left = work_.context.deadline - env_.clock->Now();
  if (time_left <= absl::ZeroDuration()) {
    return Conclude(absl::DeadlineExceededError("the deadline has passed"));
  }
  const absl::Duration now = env_.clock->Elapsed();
  RetryDecision decision = retry_.BeforeCall(now, time_left, [this](const SuspectedCrash& crash) {
    return env_.router->CheckProcess(crash.address, crash.incarnation, crash.last_seen);
  });
  if (decision.action != RetryDecision::Action::kRetry) return Follow(decision);
  ++wait_;
  absl::StatusOr<Lease> lease = Pick();
  if (!lease.ok() && absl::IsUnavailable(lease.status())) {
    // Ask for the next change first, then pick again: no change in between is missed.
    env_.router->WaitForChange(weak_from_this(), Later(WaitOver{wait_}));
    lease = Pick();
  }
  if (lease.ok()) return StartAttempt(*std::move(lease));
  decision = retry_.OnNoWorker(lease.status(), env_.router->IsCold(model()), now);
  if (decision.action != RetryDecision::Action::kWait) return Follow(decision);
  WaitForWorker(std::min(decision.delay, time_left));
}

absl::StatusOr<Lease> UnaryRelay::Pick() {
  // An answer is whole, so workers of any fingerprint may give it, but where it is a part of one.
  const RouteKey key = {.model = model(),
                        .fingerprint = work_.fingerprint,
                        .exact_only = !work_.fingerprint.empty(),
                        .allow_inexact = true,
                        .prompt_tokens = work_.prompt_tokens,
                        .failures = retry_.failures(),
                        .rejected_by = retry_.rejected_by()};
  return env_.router->Pick(key, Later(WorkerLost{num_attempts_ + 1}));
}

void UnaryRelay::StartAttempt(Lease lease) {
  const absl::Duration now = env_.clock->Elapsed();
  const bool is_migration = retry_.next_is_migration();
  retry_.OnCallStarted(now);
  report_.without_worker += now - without_call_since_;
  report_.model = lease.load().model;
  report_.worker = lease.load().worker;
  report_.pool = lease.load().pool;
  report_.fingerprint = lease.load().fingerprint;
  report_.prompt_tokens = work_.prompt_tokens;
  if (report_.attempts.size() < RelayReport::kMaxAttempts) {
    report_.attempts.push_back({.worker = report_.worker, .begin = now - start_time_});
  }
  work_.ticket.SetSent(true);
  // A worker does not report the begin of such a call.
  work_.ticket.MarkRead();
  lease_ = std::move(lease);
  const int attempt = ++num_attempts_;
  cancel_ = start_(*lease_, work_.context, is_migration,
                   [self = shared_from_this(), attempt](absl::Status status) {
                     self->Post(CallEnded{attempt, std::move(status)});
                   });
}

void UnaryRelay::LeaveWorker(WorkerEnd end, const absl::Status& status) {
  const absl::Duration now = env_.clock->Elapsed();
  // Nothing tells whether a worker had begun the call, so any that is lost with it may have.
  const RetryDecision decision = retry_.OnFailure({.end = end,
                                                   .status = status,
                                                   .address = lease_->address(),
                                                   .incarnation = lease_->incarnation(),
                                                   .was_accepted = end != WorkerEnd::kOverloaded},
                                                  now);
  cancel_ = nullptr;
  lease_.reset();
  work_.ticket.SetSent(false);
  without_call_since_ = now;
  if (!report_.attempts.empty() && num_attempts_ == static_cast<int>(report_.attempts.size())) {
    report_.attempts.back().end = now - start_time_;
    report_.attempts.back().reason = decision.reason;
  }
  if (decision.is_migration && decision.action != RetryDecision::Action::kConclude) {
    ++report_.migrations;
    env_.observer->OnMigration({.model = report_.model, .pool = report_.pool}, decision.reason);
  }
  Follow(decision);
}

void UnaryRelay::Follow(const RetryDecision& decision) {
  switch (decision.action) {
    case RetryDecision::Action::kRetry:
      return TryNext();
    case RetryDecision::Action::kWait:
      return env_.timer->After(decision.delay, Later(WaitOver{++wait_}));
    case RetryDecision::Action::kConclude:
      return Conclude(decision.status);
  }
}

void UnaryRelay::WaitForWorker(absl::Duration delay) {
  waits_for_worker_ = true;
  const absl::Duration due = env_.clock->Elapsed() + delay;
  if (wait_timer_due_ <= due) return;
  wait_timer_due_ = due;
  env_.timer->After(delay, Later(WaitTimedOut{due}));
}

void UnaryRelay::Conclude(const absl::Status& status) {
  const absl::Duration now = env_.clock->Elapsed();
  if (!lease_.has_value()) report_.without_worker += now - without_call_since_;
  lease_.reset();
  report_.duration = now - start_time_;
  work_.ticket = Admission::Ticket();
  std::exchange(finish_, nullptr)(status, report_);
}

}  // namespace continuo::gateway
