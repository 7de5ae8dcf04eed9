// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "services/worker/engine/draft/mtp_drafter.h"
#include "services/worker/engine/schedule/scheduler.h"
#include "tests/testing/fake_executor.h"
#include "tests/testing/manual_clock.h"

namespace continuo::engine {

// The events that the sink of one request has received.
struct Received {
  bool started = false;
  int num_events = 0;
  std::vector<std::vector<int32_t>> answers;
  std::vector<FinishReason> finish;
  std::vector<model::TokenScore> prompt_scores;
  std::vector<PromptProgress> progress;
  std::optional<absl::Status> ended;
  int cached_prompt_tokens = 0;
  RequestTimings timings;
};

// A scheduler with a fake model and a clock that only steps advance, driven by hand.
class Harness {
 public:
  explicit Harness(
      EngineOptions options = {},
      std::function<absl::Duration(const model::StepPlan&)> cost =
          [](const model::StepPlan&) { return absl::Milliseconds(10); },
      bool has_mtp = false)  // its module drafts
      : options_(Filled(options)),
        executor_({.num_blocks = options_.num_blocks,
                   .block_size = options_.block_size,
                   .num_state_slots = options_.num_state_slots,
                   .vocab_size = options_.vocab_size,
                   .has_mtp = has_mtp,
                   .clock = &clock_,
                   .cost = std::move(cost),
                   .is_asynchronous = true,
                   .leaves_sample = [this] { return leaves_samples; }}),
        scheduler_(has_mtp ? WithModule() : options_, &metrics_) {}

  // Adds a request; ids count from 1 if none is given.
  RequestId Add(Request request) {
    if (request.id == 0) request.id = received_.size() + 1;
    const RequestId id = request.id;
    Received& received = received_[id];
    received.answers.resize(request.num_sequences);
    received.finish.resize(request.num_sequences);
    requests_[id] = request;
    scheduler_.Add(
        std::move(request),
        [&received](RequestEvent event) { Receive(received, std::move(event)); }, clock_.Elapsed(),
        now());
    scheduler_.Deliver();
    return id;
  }

  // Runs one step and returns its plan.
  model::StepPlan Step() {
    scheduler_.Expire(now());
    const model::StepPlan plan = Begin();
    if (plan.num_rows() > 0) Finish();
    return plan;
  }
  // The two halves of a step. An overlapped step may begin between them; its plan has no tokens if
  // there is none.
  model::StepPlan Begin() {
    const model::StepPlan& plan = scheduler_.Schedule(now());
    status_.Update(scheduler_.CheckInvariants());
    scheduler_.Deliver();
    if (plan.num_rows() == 0) return plan;
    begun_.push_back(clock_.Elapsed());
    tokens_ += plan.num_rows();
    ++steps_;
    status_.Update(
        executor_.Start(plan, [this](std::span<uint32_t> mask) { scheduler_.FillMask(mask); }));
    return plan;
  }
  void Finish() {
    auto result = executor_.Finish();
    status_.Update(result.status());
    if (!result.ok()) return;
    const absl::Duration begun = begun_.front();
    begun_.pop_front();
    status_.Update(scheduler_.Commit(*std::move(result), now(), clock_.Elapsed() - begun));
    scheduler_.Describe(record_);
    scheduler_.Deliver();
    status_.Update(scheduler_.CheckInvariants());
  }
  void RunToEnd() {
    while (!scheduler_.idle() && status_.ok() && steps_ < 100000) Step();
  }

  // Overlaps steps whenever the scheduler allows it.
  void RunOverlappedToEnd() {
    while ((!scheduler_.idle() || scheduler_.num_steps_in_flight() > 0) && status_.ok() &&
           steps_ < 100000) {
      if (scheduler_.num_steps_in_flight() == 0) Begin();
      if (scheduler_.CanOverlap()) Begin();
      Finish();
    }
  }

  bool leaves_samples = false;  // the fake device leaves samples to the host

  const Received& received(RequestId id) { return received_[id]; }
  // Returns the answer that the request has if it runs alone.
  std::vector<int32_t> Expected(RequestId id, int index = 0) {
    return FakeAnswer(requests_[id], index, options_.vocab_size);
  }
  Moment now() const { return {clock_.Now(), clock_.Elapsed()}; }
  ManualClock& clock() { return clock_; }
  Scheduler& scheduler() { return scheduler_; }
  const StepRecord& record() const { return record_; }  // of the last step
  const EngineMetrics& metrics() const { return metrics_; }
  const EngineOptions& options() const { return options_; }
  // Returns the first error of the fake model, a commit or an invariant.
  const absl::Status& status() const { return status_; }
  int64_t tokens() const { return tokens_; }
  int64_t steps() const { return steps_; }
  FakeExecutor& executor() { return executor_; }

 private:
  EngineOptions WithModule() {
    EngineOptions options = options_;
    options.drafter =
        std::make_shared<MtpDrafter>(options.block_size, options.vocab_size, &executor_, &clock_);
    return options;
  }
  static EngineOptions Filled(EngineOptions options) {
    if (options.num_blocks == 0) options.num_blocks = 256;
    if (options.vocab_size == 0) options.vocab_size = 50;
    if (options.block_size == 16) options.block_size = 4;
    return options;
  }
  static void Receive(Received& received, RequestEvent event) {
    ++received.num_events;
    received.started |= event.started;
    if (event.progress) received.progress.push_back(*event.progress);
    for (model::TokenScore& score : event.prompt_scores)
      received.prompt_scores.push_back(std::move(score));
    for (SequenceDelta& delta : event.deltas) {
      auto& answer = received.answers[delta.index];
      answer.insert(answer.end(), delta.tokens.begin(), delta.tokens.end());
      if (delta.finish != FinishReason::kNone) received.finish[delta.index] = delta.finish;
    }
    if (!event.ended) return;
    received.ended = std::move(event.ended);
    received.cached_prompt_tokens = event.cached_prompt_tokens;
    received.timings = event.timings;
  }

  const EngineOptions options_;
  ManualClock clock_;
  EngineMetrics metrics_;
  FakeExecutor executor_;
  std::map<RequestId, Received> received_;
  std::map<RequestId, Request> requests_;
  Scheduler scheduler_;
  StepRecord record_;
  absl::Status status_;
  std::deque<absl::Duration> begun_;  // of the steps in flight
  int64_t tokens_ = 0, steps_ = 0;
};

// Returns `n` tokens that differ between values of `salt`.
inline std::vector<int32_t> Tokens(int n, int salt = 0) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 7 + salt * 13 + i * i % 5) % 50);
  return tokens;
}

inline Request RequestOf(std::vector<int32_t> prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

}  // namespace continuo::engine
