// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/stream_relay.h"

#include <algorithm>
#include <utility>

#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

protocol::ReceivedResponses ReceivedBefore(const v1::GenerateRequest& request) {
  protocol::ReceivedResponses received;
  if (request.continuation().has_received()) received.Begin(request.continuation().received());
  return received;
}

absl::Status DeadlineOver() { return absl::DeadlineExceededError("the deadline has passed"); }

}  // namespace

StreamRelay::StreamRelay(const RelayEnvironment& environment, RelayRequest request,
                         RelayClient* client)
    : env_(environment),
      client_(client),
      call_(std::move(request)),
      received_(ReceivedBefore(call_.request)),
      retry_(env_.options.retry, env_.budget, call_.seed, env_.clock->Elapsed()),
      outbox_(env_.options.outbox, client),
      stats_(call_.request.model(), received_, env_.observer, env_.clock->Elapsed()) {}

void StreamRelay::Replace(StreamRelay& other) {
  awaits_replaced_ = true;
  other.End(
      protocol::WithReason(absl::AbortedError("replaced by a continuation of the same request_id"),
                           protocol::kReasonAborted),
      [self = shared_from_this()] { self->Post(ReplacedEnded{}); });
}

void StreamRelay::Start() {
  if (events_.Open(Started{})) HandleEvents();
}

void StreamRelay::HandleEvents() {
  // Finish may let go of the last other owner.
  const std::shared_ptr<StreamRelay> self = shared_from_this();
  events_.Drain([this](Event& event) {
    if (state_ == State::kFinished) {
      // Somebody may wait for it.
      if (auto* const end = std::get_if<GatewayEnds>(&event)) Handle(*end);
      if (auto* const ended = std::get_if<ReplacedEnded>(&event)) Handle(*ended);
      return;
    }
    std::visit([this](auto& e) { Handle(e); }, event);
    Pump();
  });
}

std::function<void()> StreamRelay::Later(Event event) {
  return [weak = weak_from_this(), event = std::move(event)] {
    if (const auto self = weak.lock()) self->Post(event);
  };
}

void StreamRelay::Handle(ClientWrote& event) {
  outbox_.OnWritten();
  if (!event.ok) Conclude(absl::CancelledError("the client is gone"));
}

void StreamRelay::Handle(ClientCancelled&) {
  // gRPC cancels the server's side of a call whose deadline has passed.
  Conclude(IsDeadlineOver() ? DeadlineOver() : absl::CancelledError("the client cancelled"));
  outbox_.Clear();
}

void StreamRelay::Handle(WorkerAccepted& event) {
  if (!IsCurrent(event.attempt)) return;
  attempt_->OnAccepted();
  stats_.OnAccepted(env_.clock->Elapsed());
}

void StreamRelay::Handle(WorkerResponded& event) {
  if (!IsCurrent(event.attempt)) return;
  const v1::GenerateResponse& response = event.response;
  const bool is_progress = attempt_->OnResponse(response);
  if (const absl::Status status = received_.Add(response); !status.ok()) {
    // The response is not delivered; another worker goes on from the ones before it.
    LeaveWorker(WorkerEnd::kFault, status, /*has_ended=*/false);
    return;
  }
  const absl::Duration now = env_.clock->Elapsed();
  // A worker sends Accepted when prefill begins or, if the client wants progress, when the request
  // is queued.
  Admission::Ticket& ticket = call_.ticket;
  if (!response.has_progress() || response.progress().queue_position() == 0) ticket.MarkRead();
  if (is_progress) {
    retry_.OnProgress();
    ticket.MarkStarted();
  }
  stats_.OnResponse(response, now);
  if (response.has_summary() && stats_.is_whole_answer()) {
    const int64_t sequences = std::max<int64_t>(1, call_.request.sampling().num_sequences());
    if (const auto took = attempt_->DurationsOf(response.summary().timings(), now)) {
      ticket.MarkAnswered(took->first, took->rest, received_.num_tokens() / sequences);
    }
  }
  outbox_.Push(std::move(event.response));
}

void StreamRelay::Handle(WorkerEnded& event) {
  if (!IsCurrent(event.attempt)) return;
  WorkerEnd end = ClassifyWorkerEnd(event.status, received_.has_summary());
  // Workers with a fingerprint are preferred: there is none. A stream that has begun elsewhere may
  // find one.
  if (end == WorkerEnd::kDrained && call_.request.exact_only() && received_.nothing() &&
      protocol::ReasonOf(event.status) == protocol::kReasonNoWorker) {
    end = WorkerEnd::kFinal;
  }
  // It has unloaded the model, and its next report has not come yet.
  if (end == WorkerEnd::kFinal && absl::IsNotFound(event.status) &&
      env_.router->HasOther(attempt_->lease(), retry_.failures())) {
    end = WorkerEnd::kDrained;
  }
  LeaveWorker(end, event.status, /*has_ended=*/true);
}

void StreamRelay::Handle(WorkerLost& event) {
  if (!IsCurrent(event.attempt)) return;
  LeaveWorker(received_.has_summary() ? WorkerEnd::kComplete : WorkerEnd::kSilent,
              absl::UnavailableError("the worker is silent"), /*has_ended=*/false);
}

void StreamRelay::Handle(WaitOver& event) {
  const bool is_waiting = state_ == State::kBackingOff || state_ == State::kWaitingForWorker;
  if (is_waiting && event.wait == wait_) TryNext();
}

void StreamRelay::Handle(WaitTimedOut& event) {
  if (event.due == wait_timer_due_) wait_timer_due_ = absl::InfiniteDuration();
  if (state_ == State::kWaitingForWorker) TryNext();
}

void StreamRelay::Handle(GatewayEnds& event) {
  Conclude(std::move(event.status));
  if (!event.then) return;
  if (awaits_replaced_) {
    on_end_.push_back(std::move(event.then));
  } else {
    event.then();
  }
}

void StreamRelay::Handle(ReplacedEnded&) {
  awaits_replaced_ = false;
  for (const auto& then : std::exchange(on_end_, {})) then();
  if (state_ == State::kNew && is_started_) TryNext();
}

void StreamRelay::Pump() {
  if (state_ == State::kConcluded) {
    if (!outbox_.can_end()) return outbox_.WriteNext();
    state_ = State::kFinished;
    call_.ticket = Admission::Ticket();
    return outbox_.WriteEnd(conclusion_, Report());
  }
  if (state_ != State::kCalling) return outbox_.WriteNext();
  // The summary waits for the status, which follows it at once, so that the client gets both in one
  // write.
  const bool awaits_status = received_.has_summary() && outbox_.num_waiting() == 1;
  if (!awaits_status) outbox_.WriteNext();
  if (!attempt_->is_reading() && (awaits_status || outbox_.has_room())) attempt_->StartRead();
}

void StreamRelay::TryNext() {
  if (IsDeadlineOver()) return Conclude(DeadlineOver());
  const absl::Duration now = env_.clock->Elapsed();
  const absl::Duration time_left = call_.context.deadline - env_.clock->Now();
  RetryDecision decision = retry_.BeforeCall(now, time_left, [this](const SuspectedCrash& crash) {
    return env_.router->CheckProcess(crash.address, crash.incarnation, crash.last_seen);
  });
  if (decision.action != RetryDecision::Action::kRetry) return Follow(decision);

  ++wait_;
  absl::StatusOr<Lease> lease = Pick(now);
  if (!lease.ok() && absl::IsUnavailable(lease.status())) {
    // Ask for the next change first, then pick again: no change in between is missed.
    env_.router->WaitForChange(weak_from_this(), Later(WaitOver{wait_}));
    lease = Pick(now);
  }
  if (lease.ok()) return StartAttempt(*std::move(lease));
  decision = retry_.OnNoWorker(lease.status(), env_.router->IsCold(stats_.model()), now);
  if (decision.action != RetryDecision::Action::kWait) return Follow(decision);
  WaitForWorker(std::min(decision.delay, call_.context.deadline - env_.clock->Now()));
}

absl::StatusOr<Lease> StreamRelay::Pick(absl::Duration now) {
  const v1::Accepted& accepted = received_.accepted();
  const RouteKey key = {
      .model = stats_.model(),
      .fingerprint = accepted.fingerprint(),
      .tokenizer_fingerprint = accepted.tokenizer_fingerprint(),
      .preferred_fingerprint = call_.context.preferred_fingerprint,
      .exact_only = call_.request.exact_only(),
      .allow_inexact = retry_.allows_inexact(now),
      .prompt_tokens = call_.prompt_tokens + received_.num_tokens(),
      .prefix_hash = call_.prefix_hash,
      .session_hash = call_.session_hash,
      .failures = retry_.failures(),
      .rejected_by = retry_.rejected_by(),
      // That worker has the prompt in its cache, and replaces the call where it still computes.
      .last_worker = num_attempts_ == 0 ? std::string_view(accepted.worker()) : "",
  };
  return env_.router->Pick(key, Later(WorkerLost{num_attempts_ + 1}));
}

void StreamRelay::StartAttempt(Lease lease) {
  const absl::Duration now = env_.clock->Elapsed();
  const bool is_migration = retry_.next_is_migration();
  retry_.OnCallStarted(now);
  stats_.OnCallStarted(lease.load(), is_migration, now);
  if (call_.request.output().collect()) {
    // Not every worker reports the begin of prefill before the end.
    call_.ticket.MarkRead();
  } else {
    call_.ticket.SetSent(true);
  }
  if (is_migration) {
    // Everything received so far; that includes what the client brought along.
    v1::Continuation& continuation = *call_.request.mutable_continuation();
    continuation.Clear();
    if (!received_.nothing()) *continuation.mutable_received() = received_.ToProto();
  }
  state_ = State::kCalling;
  attempt_.emplace(++num_attempts_, std::move(lease), now);
  attempt_->Begin(env_.transport->Start(shared_from_this(), num_attempts_, attempt_->lease(),
                                        call_.request, call_.context, is_migration));
  client_->OnSent();
}

void StreamRelay::LeaveWorker(WorkerEnd end, const absl::Status& status, bool has_ended) {
  const absl::Duration now = env_.clock->Elapsed();
  const RetryDecision decision = retry_.OnFailure(attempt_->FailureOf(end, status), now);
  if (!has_ended) attempt_->Abandon();
  EndAttempt(decision.reason, decision.is_migration, now);
  Follow(decision);
}

void StreamRelay::Follow(const RetryDecision& decision) {
  switch (decision.action) {
    case RetryDecision::Action::kRetry:
      return TryNext();
    case RetryDecision::Action::kWait:
      state_ = State::kBackingOff;
      return env_.timer->After(decision.delay, Later(WaitOver{++wait_}));
    case RetryDecision::Action::kConclude:
      return Conclude(decision.status);
  }
}

void StreamRelay::EndAttempt(std::string_view reason, bool migrates, absl::Duration now) {
  attempt_.reset();
  call_.ticket.SetSent(false);
  stats_.OnCallEnded(reason, migrates, now);
}

void StreamRelay::WaitForWorker(absl::Duration delay) {
  state_ = State::kWaitingForWorker;
  const absl::Duration due = env_.clock->Elapsed() + delay;
  if (wait_timer_due_ <= due) return;
  wait_timer_due_ = due;
  env_.timer->After(delay, Later(WaitTimedOut{due}));
}

void StreamRelay::Conclude(absl::Status status) {
  if (state_ == State::kConcluded || state_ == State::kFinished) return;
  const absl::Duration now = env_.clock->Elapsed();
  if (attempt_.has_value()) {
    attempt_->Abandon();
    EndAttempt(/*reason=*/"", /*migrates=*/false, now);
  }
  stats_.OnConcluded(now);
  conclusion_ = std::move(status);
  state_ = State::kConcluded;
}

const RelayReport& StreamRelay::Report() {
  return stats_.Complete(call_.context, call_.prompt_tokens, received_, env_.clock->Elapsed());
}

}  // namespace continuo::gateway
