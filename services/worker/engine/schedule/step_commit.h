// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/engine/requests/request_book.h"
#include "services/worker/engine/schedule/planned_step.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/model/step_plan.h"

namespace continuo::engine {

// Takes the result of a step into its sequences and requests: tokens, scores, prefill progress, and
// which sequences finish by them. Not thread-safe.
class StepCommit {
 public:
  // Both arguments outlive this object.
  StepCommit(int vocab_size, RequestBook* book, EngineMetrics* metrics)
      : vocab_size_(vocab_size), book_(*book), metrics_(*metrics) {}

  // Returns Internal if `result` does not fit the step. A sample may be lost (-1) only if the next
  // step `was_overlapped`.
  absl::Status Check(const PlannedStep& step, const model::StepResult& result,
                     bool was_overlapped) const;
  // Takes all samples of the step, after Check. Scores and states of `result` are moved from.
  void TakeSamples(const PlannedStep& step, model::StepResult& result, const Moment& now);
  // Reports how far the prompt is if the sequence of `t` is the prefill leader, and ends the
  // leading if that was all of it.
  void TakePrefill(const ScheduledTokens& t);

  // Returns the sequences that finish with the step; the caller must finish them.
  std::span<Sequence* const> finished() const { return finished_; }
  // Returns the sequences whose constraint has failed, and why; the caller must end their requests.
  std::span<const std::pair<Sequence*, absl::Status>> failed() const { return failed_; }
  // Returns the number of tokens that the step gave.
  int64_t sampled_tokens() const { return sampled_tokens_; }

 private:
  void TakeSample(const PlannedSample& sample, int32_t token, model::TokenScore score,
                  const Moment& now);

  // Takes the last token of the answer into the constraint. If that fails the token does not count.
  bool TakeConstrained(Sequence& s, const PlannedSample& sample);

  const int vocab_size_;
  RequestBook& book_;
  EngineMetrics& metrics_;
  std::vector<Sequence*> finished_;
  std::vector<std::pair<Sequence*, absl::Status>> failed_;
  int64_t sampled_tokens_ = 0;
};

}  // namespace continuo::engine
