// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/stream_relay.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

// How often the fate of processes that may have died is asked for.
constexpr absl::Duration kFatePoll = absl::Milliseconds(50);

int NewTokens(const v1::GenerateResponse& response) {
  int tokens = 0;
  for (const v1::Delta& delta : response.deltas()) tokens += delta.token_ids_size();
  return tokens;
}

// Something that the next worker need not compute again.
bool IsProgress(const v1::GenerateResponse& response) {
  return response.deltas_size() > 0 || response.prompt_logprobs_size() > 0 ||
         response.has_summary();
}

}  // namespace

StreamRelay::StreamRelay(const RelayEnvironment& environment, RelayRequest request,
                         RelayClient* client)
    : env_(environment),
      client_(client),
      request_(std::move(request.request)),
      context_(std::move(request.context)),
      prompt_tokens_(request.prompt_tokens),
      prefix_hash_(request.prefix_hash),
      session_hash_(request.session_hash),
      random_state_(request.seed),
      ticket_(std::move(request.ticket)),
      start_time_(env_.clock->Elapsed()),
      wait_begin_(start_time_) {
  if (request_.continuation().has_received()) received_.Begin(request_.continuation().received());
  tokens_before_ = received_.num_tokens();
  report_.model = request_.model().empty() ? received_.accepted().model() : request_.model();
}

void StreamRelay::Start() {
  if (env_.budget != nullptr) env_.budget->Earn();
  Post({.kind = Event::Kind::kStart});
}
void StreamRelay::OnWritten(bool ok) { Post({.kind = Event::Kind::kWritten, .id = ok}); }
void StreamRelay::OnCancelled() { Post({.kind = Event::Kind::kCancelled}); }
void StreamRelay::OnAccepted(int attempt) { Post({.kind = Event::Kind::kAccepted, .id = attempt}); }
void StreamRelay::OnResponse(int attempt, v1::GenerateResponse response) {
  Post({.kind = Event::Kind::kResponse, .id = attempt, .response = std::move(response)});
}
void StreamRelay::OnWorkerEnd(int attempt, absl::Status status) {
  Post({.kind = Event::Kind::kWorkerEnd, .id = attempt, .status = std::move(status)});
}
void StreamRelay::End(absl::Status status) {
  Post({.kind = Event::Kind::kEnd, .status = std::move(status)});
}
void StreamRelay::GiveUp() { Post({.kind = Event::Kind::kGiveUp}); }

void StreamRelay::Post(Event event) {
  {
    absl::MutexLock lock(&mutex_);
    started_ = started_ || event.kind == Event::Kind::kStart;
    inbox_.push_back(std::move(event));
    if (!started_ || draining_) return;
    draining_ = true;
  }
  // Finish may let go of the last other owner.
  const std::shared_ptr<StreamRelay> self = shared_from_this();
  std::vector<Event> batch;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      batch.clear();
      if (inbox_.empty()) {
        draining_ = false;
        return;
      }
      batch.swap(inbox_);
    }
    for (Event& e : batch) Handle(e);
  }
}

void StreamRelay::Handle(Event& event) {
  if (finished_) return;
  switch (event.kind) {
    case Event::Kind::kStart:
      TryNext();
      break;
    case Event::Kind::kWritten:
      writing_ = false;
      if (event.id == 0) {
        Conclude(absl::CancelledError("the client is gone"));
      }
      break;
    case Event::Kind::kCancelled:
      // gRPC cancels the server's side of a call whose deadline has passed.
      Conclude(env_.clock->Now() >= context_.deadline
                   ? absl::DeadlineExceededError("the deadline has passed")
                   : absl::CancelledError("the client cancelled"));
      to_client_.clear();
      break;
    case Event::Kind::kAccepted:
      if (event.id == attempt_ && call_ != nullptr) HandleAccepted(env_.clock->Elapsed());
      break;
    case Event::Kind::kResponse:
      if (event.id == attempt_ && call_ != nullptr) HandleResponse(std::move(event.response));
      break;
    case Event::Kind::kWorkerEnd:
      if (event.id == attempt_ && call_ != nullptr) HandleWorkerEnd(event.status);
      break;
    case Event::Kind::kWorkerLost:
      if (event.id == attempt_ && call_ != nullptr && !conclusion_.has_value()) {
        if (received_.has_summary()) {
          Conclude(absl::OkStatus());
        } else {
          if (accepted_here_ && !progress_here_) {
            deaths_.push_back({lease_->address(), lease_->incarnation(), env_.clock->Elapsed()});
          }
          Move("silent", absl::UnavailableError("the worker is silent"));
        }
      }
      break;
    case Event::Kind::kRetry:
      if (event.id == wait_ && waiting_) TryNext();
      break;
    case Event::Kind::kLook:
      if (event.id == look_) look_time_ = absl::InfiniteDuration();
      if (waiting_ && looking_) TryNext();
      break;
    case Event::Kind::kEnd:
      Conclude(std::move(event.status));
      break;
    case Event::Kind::kGiveUp:
      if (!conclusion_.has_value()) break;
      CompleteReport();
      client_->OnGivenUp(*conclusion_, report_);
      break;
  }
  Pump();
}

void StreamRelay::TryNext() {
  if (conclusion_.has_value()) return;
  const absl::Duration now = env_.clock->Elapsed();
  if (env_.clock->Now() >= context_.deadline) {
    Conclude(absl::DeadlineExceededError("the deadline has passed"));
    return;
  }
  if (const std::optional<bool> poison = IsPoison(); !poison.has_value()) {
    if (waited_ + (now - wait_begin_) < options_.no_worker_wait) {
      RetryAfter(kFatePoll);
    } else {
      // Another worker would hang as well.
      Conclude(protocol::WithReason(absl::UnavailableError("worker after worker hangs"),
                                    protocol::kReasonWorkerLost));
    }
    return;
  } else if (*poison) {
    Conclude(protocol::WithReason(
        absl::InternalError(absl::StrCat("the request ended ", deaths_.size(),
                                         " workers in a row, each before a new token")),
        protocol::kReasonPoison));
    return;
  }

  if (!MayTry()) {
    if (waited_ + (now - wait_begin_) >= options_.no_worker_wait) {
      Conclude(protocol::WithReason(absl::UnavailableError("worker after worker was lost"),
                                    protocol::kReasonWorkerLost));
    } else {
      RetryAfter(Backoff());
    }
    return;
  }
  absl::StatusOr<Lease> lease = Pick();
  if (!lease.ok() && absl::IsUnavailable(lease.status())) {
    // Ask for the next change first, then look again: nothing is missed in between.
    const int64_t wait = wait_ + 1;
    env_.router->WaitForChange(weak_from_this(), [weak = weak_from_this(), wait] {
      if (auto self = weak.lock()) self->Post({.kind = Event::Kind::kRetry, .id = wait});
    });
    lease = Pick();
  }
  if (lease.ok()) {
    StartCall(*std::move(lease));
    return;
  }
  if (!absl::IsUnavailable(lease.status())) {
    Conclude(lease.status());
    return;
  }
  if (!refused_.empty() && !admitted_) {
    Conclude(last_error_);
    return;
  }
  const absl::Duration left = options_.no_worker_wait - waited_ - (now - wait_begin_);
  if (left <= absl::ZeroDuration()) {
    Conclude(lease.status());
    return;
  }
  // At the latest when one of the limits is reached; before, at the next change.
  absl::Duration delay = std::min(left, context_.deadline - env_.clock->Now());
  const absl::Duration exact_left = wait_begin_ + options_.exact_wait - now;
  if (exact_left > absl::ZeroDuration()) delay = std::min(delay, exact_left);
  AwaitChange(delay);
}

std::optional<bool> StreamRelay::IsPoison() {
  if (static_cast<int>(deaths_.size()) < options_.max_deaths) return false;
  bool unknown = false;
  const absl::Duration now = env_.clock->Elapsed();
  std::erase_if(deaths_, [&](Death& death) {
    const Fate fate = env_.router->FateOf(death.address, death.incarnation, death.time);
    if (fate == Fate::kHung) death.time = now;
    if (fate == Fate::kAlive ||
        (fate == Fate::kUnknown && now - death.time >= options_.fate_wait)) {
      return true;
    }
    unknown = unknown || fate != Fate::kGone;
    return false;
  });
  if (static_cast<int>(deaths_.size()) < options_.max_deaths) return false;
  if (unknown) return std::nullopt;
  return true;
}

bool StreamRelay::MayTry() {
  if (fruitless_ <= 1 || env_.budget == nullptr) return true;
  may_try_ = may_try_ || env_.budget->Take();
  return may_try_;
}

absl::StatusOr<Lease> StreamRelay::Pick() {
  const v1::Accepted& accepted = received_.accepted();
  const RouteKey key = {
      .model = model(),
      .fingerprint = accepted.fingerprint(),
      .tokenizer_fingerprint = accepted.tokenizer_fingerprint(),
      .exact_only = request_.exact_only(),
      .allow_inexact = env_.clock->Elapsed() - wait_begin_ >= options_.exact_wait,
      .prompt_tokens = prompt_tokens_ + received_.num_tokens(),
      .prefix_hash = prefix_hash_,
      .session_hash = session_hash_,
      .failures = failures_,
      .refused = refused_,
  };
  return env_.router->Pick(key, [weak = weak_from_this(), attempt = attempt_ + 1] {
    if (auto self = weak.lock()) self->Post({.kind = Event::Kind::kWorkerLost, .id = attempt});
  });
}

void StreamRelay::StartCall(Lease lease) {
  ++attempt_;
  ++wait_;
  waiting_ = false;
  const absl::Duration now = call_time_ = env_.clock->Elapsed();
  waited_ += now - wait_begin_;
  report_.without_worker += now - wait_begin_;
  lease_ = std::move(lease);
  if (report_.attempts.size() < RelayReport::kMaxAttempts) {
    report_.attempts.push_back({.worker = lease_->load().worker, .begin = now - start_time_});
  }
  accepted_here_ = progress_here_ = may_try_ = false;
  report_.worker = lease_->load().worker;
  if (report_.model.empty()) report_.model = lease_->load().model;

  const bool is_move = admitted_;
  if (is_move) {
    report_.moves += 1;
    env_.observer->OnMove(model(), move_reason_);
    v1::GenerateRequest request = request_;
    request.mutable_continuation()->Clear();
    if (!received_.nothing()) {
      *request.mutable_continuation()->mutable_received() = received_.ToProto();
    }
    call_ = env_.transport->Start(shared_from_this(), attempt_, *lease_, request, context_, true);
  } else {
    call_ = env_.transport->Start(shared_from_this(), attempt_, *lease_, request_, context_, false);
  }
  admitted_ = true;
  if (request_.output().collect()) {
    // Not every worker tells before the end when it begins to read the prompt.
    ticket_.MarkRead();
  } else {
    ticket_.SetSent(true);
  }
  reading_ = true;
  call_->StartRead();
}

void StreamRelay::HandleAccepted(absl::Duration now) {
  accepted_here_ = true;
  if (accepted_time_.has_value()) return;
  accepted_time_ = now;
  report_.queue = now - start_time_ - report_.without_worker;
}

void StreamRelay::HandleResponse(v1::GenerateResponse response) {
  reading_ = false;
  if (const absl::Status status = received_.Add(response); !status.ok()) {
    // What it said is not delivered; another worker goes on from what was.
    if (++suspects_ >= options_.max_suspects) {
      DropCall(/*abandon=*/true);
      Conclude(status);
    } else {
      Move("fault", status);
    }
    return;
  }
  const absl::Duration now = env_.clock->Elapsed();
  // Accepted is sent when a worker begins to read the prompt; where progress is asked for, already
  // when it is queued.
  if (!response.has_progress() || response.progress().queue_position() == 0) ticket_.MarkRead();
  if (response.has_accepted()) {
    HandleAccepted(now);
    report_.model = response.accepted().model();
    if (!response.accepted().request_id().empty()) {
      report_.request_id = response.accepted().request_id();
    }
  }
  if (lost_at_.has_value()) {
    env_.observer->OnStall(model(), now - *lost_at_);
    report_.stall += now - *lost_at_;
    lost_at_.reset();
  }
  if (IsProgress(response)) {
    progress_here_ = true;
    fruitless_ = suspects_ = 0;
    waited_ = absl::ZeroDuration();
    failures_.clear();
    deaths_.clear();
    ticket_.MarkStarted();
  }
  if (const int tokens = NewTokens(response); tokens > 0) {
    if (last_token_time_.has_value()) {
      env_.observer->OnTokens(model(), now - *last_token_time_, tokens);
      report_.longest_gap = std::max(report_.longest_gap, now - *last_token_time_);
    } else {
      report_.time_to_first_token = now - start_time_;
      report_.prefill = now - accepted_time_.value_or(now);
      env_.observer->OnFirstToken(model(), now - start_time_);
    }
    last_token_time_ = now;
  }
  if (response.has_summary()) {
    report_.prompt_tokens = response.summary().usage().prompt_tokens();
    // What a worker tells of a part of the generation says nothing of the whole.
    if (report_.moves == 0 && tokens_before_ == 0) NoteAnswerTime(response.summary().timings());
  }
  if (conclusion_.has_value()) return;
  to_client_bytes_ += response.ByteSizeLong();
  to_client_.push_back(std::move(response));
}

void StreamRelay::NoteAnswerTime(const v1::Timings& timings) {
  const auto seconds = [](const google::protobuf::Duration& duration) {
    return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
  };
  const absl::Duration first = seconds(timings.prefill_duration());
  const absl::Duration rest =
      seconds(timings.total_duration()) - seconds(timings.queue_duration()) - first;
  // What did not take so long by this side's clock is not believed.
  if (first < absl::ZeroDuration() || rest < absl::ZeroDuration() ||
      first + rest > env_.clock->Elapsed() - call_time_) {
    return;
  }
  const int64_t sequences = std::max<int64_t>(1, request_.sampling().num_sequences());
  ticket_.MarkAnswered(first, rest, received_.num_tokens() / sequences);
}

void StreamRelay::HandleWorkerEnd(const absl::Status& status) {
  switch (ClassifyWorkerEnd(status, received_.has_summary())) {
    case WorkerEnd::kComplete:
      DropCall(/*abandon=*/false);
      Conclude(absl::OkStatus());
      return;
    case WorkerEnd::kDrained:
      // Workers with a fingerprint are preferred: there is none. What has begun elsewhere may find
      // one.
      if (request_.exact_only() && received_.nothing() &&
          protocol::ReasonOf(status) == protocol::kReasonNoWorker) {
        break;
      }
      Move("drained", status);
      return;
    case WorkerEnd::kLost:
      if (absl::IsUnavailable(status) && accepted_here_ && !progress_here_) {
        deaths_.push_back({lease_->address(), lease_->incarnation(), env_.clock->Elapsed()});
      }
      Move("lost", status);
      return;
    case WorkerEnd::kSuspect:
      if (++suspects_ < options_.max_suspects) {
        Move("fault", status);
        return;
      }
      break;
    case WorkerEnd::kOverloaded:
      if (report_.moves > 0 || accepted_here_) {
        Move("overloaded", status);
        return;
      }
      // Nothing has begun: the next worker gets it as new, so that it may refuse it as well.
      refused_.push_back(lease_->address());
      last_error_ = protocol::RetryDelayOf(status).has_value()
                        ? status
                        : protocol::WithRetryInfo(status, absl::Seconds(1));
      if (static_cast<int>(refused_.size()) < options_.max_refusals &&
          (env_.budget == nullptr || env_.budget->Take())) {
        DropCall(/*abandon=*/false, "refused");
        admitted_ = false;
        TryNext();
        return;
      }
      DropCall(/*abandon=*/false);
      Conclude(last_error_);
      return;
    case WorkerEnd::kFinal:
      break;
  }
  DropCall(/*abandon=*/false);
  Conclude(status);
}

void StreamRelay::Move(std::string_view reason, const absl::Status& status) {
  const std::string address = lease_->address();
  DropCall(/*abandon=*/true, reason);
  if (conclusion_.has_value()) return;
  const auto failure =
      std::ranges::find_if(failures_, [&](const Failure& f) { return f.address == address; });
  if (failure == failures_.end()) {
    failures_.push_back({address, 1});
  } else {
    failure->count += 1;
  }
  refused_.clear();
  move_reason_ = reason;
  last_error_ = status;
  if (!lost_at_.has_value()) lost_at_ = env_.clock->Elapsed();
  const absl::Duration delay = Backoff();
  // The first move after progress is always tried.
  if (fruitless_++ > 0 && waited_ + delay > options_.no_worker_wait) {
    // Workers are there, but none brings it further.
    Conclude(absl::IsResourceExhausted(status)
                 ? status
                 : protocol::WithReason(absl::UnavailableError("worker after worker was lost"),
                                        protocol::kReasonWorkerLost));
    return;
  }
  RetryAfter(delay);
}

void StreamRelay::DropCall(bool abandon, std::string_view reason) {
  if (call_ == nullptr) return;
  const absl::Duration now = env_.clock->Elapsed();
  if (static_cast<size_t>(attempt_) <= report_.attempts.size()) {
    report_.attempts.back().end = now - start_time_;
    report_.attempts.back().reason = reason;
  }
  if (abandon) call_->Abandon();
  call_ = nullptr;
  ticket_.SetSent(false);
  lease_.reset();
  reading_ = false;
  waiting_ = true;
  wait_begin_ = now;
}

void StreamRelay::AwaitChange(absl::Duration delay) {
  ++wait_;
  looking_ = true;
  const absl::Duration time = env_.clock->Elapsed() + delay;
  if (look_time_ <= time) return;
  look_time_ = time;
  env_.timer->After(delay, [weak = weak_from_this(), look = ++look_] {
    if (auto self = weak.lock()) self->Post({.kind = Event::Kind::kLook, .id = look});
  });
}

void StreamRelay::RetryAfter(absl::Duration delay) {
  looking_ = false;
  env_.timer->After(delay, [weak = weak_from_this(), wait = ++wait_] {
    if (auto self = weak.lock()) self->Post({.kind = Event::Kind::kRetry, .id = wait});
  });
}

void StreamRelay::Pump() {
  if (finished_) return;
  if (!writing_ && !to_client_.empty()) {
    writing_ = true;
    const v1::GenerateResponse response = std::move(to_client_.front());
    to_client_.pop_front();
    to_client_bytes_ -= response.ByteSizeLong();
    client_->Write(response);
  }
  if (conclusion_.has_value()) {
    if (writing_ || !to_client_.empty()) return;
    finished_ = true;
    ticket_ = Admission::Ticket();
    CompleteReport();
    client_->Finish(*conclusion_, report_);
    return;
  }
  if (call_ != nullptr && !reading_ && to_client_.size() < options_.max_buffered_responses &&
      to_client_bytes_ < options_.max_buffered_bytes) {
    reading_ = true;
    call_->StartRead();
  }
}

void StreamRelay::CompleteReport() {
  report_.tenant = context_.tenant;
  if (report_.request_id.empty()) report_.request_id = context_.request_id;
  report_.completion_tokens = received_.num_tokens() - tokens_before_;
  if (!received_.has_summary() && accepted_time_.has_value())
    report_.prompt_tokens = prompt_tokens_;
  report_.duration = env_.clock->Elapsed() - start_time_;
}

void StreamRelay::Conclude(absl::Status status) {
  if (conclusion_.has_value()) return;
  if (call_ == nullptr) report_.without_worker += env_.clock->Elapsed() - wait_begin_;
  DropCall(/*abandon=*/true);
  conclusion_ = std::move(status);
}

absl::Duration StreamRelay::Backoff() {
  // SplitMix64: one word of state for each stream.
  uint64_t x = (random_state_ += 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  const double uniform = static_cast<double>(x >> 11) * 0x1.0p-53;
  absl::Duration limit = options_.backoff_base;
  for (int i = 0; i < fruitless_ && limit < options_.backoff_max; ++i) limit *= 2;
  return std::min(limit, options_.backoff_max) * (0.5 + uniform / 2);
}

std::string_view StreamRelay::model() const {
  if (!request_.model().empty()) return request_.model();
  return report_.model;
}

}  // namespace continuo::gateway
