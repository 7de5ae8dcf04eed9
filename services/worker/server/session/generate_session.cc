// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/generate_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/protocol/error.h"
#include "services/protocol/proto_time.h"

namespace continuo::server {

std::shared_ptr<GenerateSession> GenerateSession::Create(
    Generation& generation, ResponseWriter* writer, SessionHooks hooks, WorkPool* pool,
    std::shared_ptr<const ServedModel> model, const Clock* clock, size_t max_unread_bytes) {
  return std::shared_ptr<GenerateSession>(new GenerateSession(
      generation, writer, std::move(hooks), pool, std::move(model), clock, max_unread_bytes));
}

GenerateSession::GenerateSession(Generation& generation, ResponseWriter* writer, SessionHooks hooks,
                                 WorkPool* pool, std::shared_ptr<const ServedModel> model,
                                 const Clock* clock, size_t max_unread_bytes)
    : model_(std::move(model)),
      writer_(writer),
      hooks_(std::move(hooks)),
      pool_(pool),
      clock_(clock),
      max_unread_bytes_(max_unread_bytes),
      needs_engine_(!generation.complete && !generation.replay.all_finished()),
      collect_(generation.collect),
      start_(generation.start),
      rules_(std::move(generation.rules)),
      format_(std::move(generation.format)),
      sequences_(std::move(generation.replay.sequences)),
      endings_(std::move(generation.replay.endings)),
      prompt_tokens_(static_cast<int>(generation.request.prompt.size())),
      next_prompt_token_(generation.want_prompt_tokens ? generation.replay.num_prompt_tokens
                                                       : prompt_tokens_),
      next_prompt_logprob_(1 + generation.replay.num_prompt_logprobs),
      completion_tokens_(generation.replay.num_tokens()),
      migrations_(generation.accepted.migrations()),
      inexact_(generation.accepted.inexact()),
      queue_(std::move(generation.accepted), generation.next_sequence,
             static_cast<int>(sequences_.size()), generation.collect, model_.get()) {
  if (generation.request.num_prompt_logprobs >= 0 || generation.want_prompt_tokens) {
    prompt_ = generation.request.prompt;
  }
  if (generation.complete) status_ = absl::OkStatus();
  report_.prompt_tokens = prompt_tokens_;
}

void GenerateSession::AnswerFromReceived() {
  CONTINUO_CHECK(!needs_engine_);
  {
    absl::MutexLock lock(&mutex_);
    busy_ = true;
  }
  if (!status_.has_value()) {
    ProcessEndings();
    Complete(0, {.total = clock_->Now() - start_});
  }
  Deliver();
}

size_t GenerateSession::BytesOf(const engine::RequestEvent& event) {
  const auto score_bytes = [](const std::vector<model::TokenScore>& scores) {
    size_t bytes = scores.size() * sizeof(model::TokenScore);
    if (!scores.empty()) {
      bytes += scores.size() * scores.front().alternatives.size() * sizeof(model::TokenAlternative);
    }
    return bytes;
  };
  size_t bytes = sizeof(engine::RequestEvent) + score_bytes(event.prompt_scores);
  for (const engine::SequenceDelta& delta : event.deltas) {
    bytes += sizeof(delta) + delta.tokens.size() * sizeof(int32_t) + score_bytes(delta.scores);
  }
  return bytes;
}

void GenerateSession::OnEvent(engine::RequestEvent event) {
  bool give_up = false;
  {
    absl::MutexLock lock(&mutex_);
    event_bytes_ += BytesOf(event);
    events_.push_back(std::move(event));
    if (event_bytes_ + queued_bytes_ > max_unread_bytes_ && !gave_up_) give_up = gave_up_ = true;
  }
  if (give_up) {
    const absl::Status why =
        protocol::WithReason(absl::ResourceExhaustedError(
                                 absl::StrCat("the stream is not read: over ", max_unread_bytes_,
                                              " bytes wait; go on with a continuation")),
                             protocol::kReasonSlowReader);
    hooks_.cancel(why);
    // It runs on the pool, because text work follows the cut.
    pool_->Post([self = shared_from_this(), why] { self->hooks_.cut(why); });
  }
  Wake();
}

void GenerateSession::Wake() {
  {
    absl::MutexLock lock(&mutex_);
    if (busy_ || events_.empty()) return;
    busy_ = true;
  }
  pool_->Post([self = shared_from_this()] { self->Deliver(); });
}

void GenerateSession::WriteDone(bool ok) {
  // A reader who is gone gets nothing more; the request ends when the engine reports its end.
  if (!ok && !reader_gone_) {
    reader_gone_ = true;
    hooks_.cancel(absl::CancelledError("the client is gone"));
  }
  Deliver();
}

// Runs with busy_ set; leaves it set where a write is in flight or the stream has finished.
void GenerateSession::Deliver() {
  while (true) {
    std::deque<engine::RequestEvent> events;
    size_t taken_bytes = 0;
    {
      absl::MutexLock lock(&mutex_);
      events.swap(events_);
      taken_bytes = event_bytes_;
      if (events.empty() && !queue_.ready() && !status_.has_value()) {
        busy_ = false;
        return;
      }
    }
    for (engine::RequestEvent& event : events) {
      if (!status_.has_value()) Process(std::move(event));
    }
    while (reader_gone_ && queue_.ready()) queue_.Pop();
    std::optional<v1::GenerateResponse> response;
    if (queue_.ready()) response = queue_.Pop();
    {
      absl::MutexLock lock(&mutex_);
      event_bytes_ -= taken_bytes;
      queued_bytes_ = queue_.bytes();
    }
    if (response.has_value()) {
      if (status_.has_value() && !queue_.ready()) {
        writer_->WriteLast(*std::move(response), *std::move(status_));
      } else {
        writer_->Write(*std::move(response));
      }
      return;
    }
    if (status_.has_value()) {
      if (reader_gone_ && status_->ok()) status_ = absl::CancelledError("the client is gone");
      writer_->Finish(*std::move(status_));
      return;
    }
  }
}

void GenerateSession::Process(engine::RequestEvent event) {
  if (event.started) {
    queue_.AddStart();
    if (collect_) writer_->SendAccepted();
    while (next_prompt_token_ < prompt_tokens_) {
      queue_.AddPromptToken(prompt_[next_prompt_token_++]);
    }
    ProcessEndings();
  }
  if (event.progress.has_value()) queue_.AddProgress(*event.progress);
  for (const model::TokenScore& score : event.prompt_scores) {
    CONTINUO_CHECK(next_prompt_logprob_ < static_cast<int>(prompt_.size()));
    queue_.AddPromptLogprob(prompt_[next_prompt_logprob_++], score);
  }
  for (engine::SequenceDelta& delta : event.deltas) ProcessDelta(std::move(delta));
  if (event.ended.has_value()) ProcessEnd(event);
}

// Sends the ends that a continuation's received ids imply but its client did not receive.
void GenerateSession::ProcessEndings() {
  for (size_t i = 0; i < endings_.size(); ++i) {
    if (endings_[i].has_value()) queue_.AddEnd(static_cast<int>(i), *endings_[i], *rules_);
  }
  endings_.clear();
}

void GenerateSession::ProcessDelta(engine::SequenceDelta delta) {
  AnswerSequence& sequence = sequences_[delta.index];
  if (sequence.finished()) return;  // a stop string was met before
  const size_t count = delta.tokens.size();
  for (size_t i = 0; i < count; ++i) {
    const int32_t token = delta.tokens[i];
    AnswerSequence::Output output = sequence.Push(token);
    // The last token before a limit, the held-back text and the reason are one delta.
    if (i + 1 == count && delta.finish != engine::FinishReason::kNone && !sequence.finished()) {
      AnswerSequence::Output end = sequence.End(ToProto(delta.finish));
      output.Append(end);
      output.finish = end.finish;
    }
    const model::TokenScore* score = i < delta.scores.size() ? &delta.scores[i] : nullptr;
    queue_.AddToken(delta.index, token, score, output, *rules_);
    ++completion_tokens_;
    ++report_.completion_tokens;
    if (!sequence.finished()) continue;
    const bool engine_knows = i + 1 == count && delta.finish != engine::FinishReason::kNone;
    if (!engine_knows) hooks_.finish_sequence(delta.index);
    return;
  }
  if (delta.finish != engine::FinishReason::kNone) {
    queue_.AddEnd(delta.index, sequence.End(ToProto(delta.finish)), *rules_);
  }
}

void GenerateSession::ProcessEnd(const engine::RequestEvent& event) {
  report_.cached_prompt_tokens = event.cached_prompt_tokens;
  report_.timings = event.timings;
  const bool all_finished = std::all_of(sequences_.begin(), sequences_.end(),
                                        [](const AnswerSequence& s) { return s.finished(); });
  // A whole answer is never spoilt by a later error.
  if (all_finished) {
    Complete(event.cached_prompt_tokens, event.timings);
    return;
  }
  status_ = *event.ended;
  if (status_->ok()) {
    status_ = absl::InternalError("the engine ended a request with unfinished sequences");
  }
}

void GenerateSession::Complete(int cached_prompt_tokens, const engine::RequestTimings& timings) {
  v1::Summary summary;
  v1::Usage& usage = *summary.mutable_usage();
  usage.set_prompt_tokens(static_cast<uint32_t>(prompt_tokens_));
  usage.set_cached_prompt_tokens(static_cast<uint32_t>(cached_prompt_tokens));
  usage.set_completion_tokens(static_cast<uint32_t>(completion_tokens_));
  int reasoning_tokens = 0;
  for (const AnswerSequence& sequence : sequences_) {
    reasoning_tokens += sequence.num_reasoning_tokens();
  }
  usage.set_reasoning_tokens(static_cast<uint32_t>(reasoning_tokens));
  v1::Timings& proto = *summary.mutable_timings();
  *proto.mutable_queue_duration() = protocol::ToProto(timings.queue);
  *proto.mutable_prefill_duration() = protocol::ToProto(timings.prefill);
  *proto.mutable_total_duration() = protocol::ToProto(timings.total);
  summary.set_migrations(migrations_);
  summary.set_inexact(inexact_);
  queue_.AddSummary(std::move(summary));
  status_ = absl::OkStatus();
}

}  // namespace continuo::server
