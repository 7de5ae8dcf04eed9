// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/step_commit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace continuo::engine {

absl::Status StepCommit::Check(const PlannedStep& step, const model::StepResult& result,
                               bool was_overlapped) const {
  const auto samples = step.plan.samples();
  if (result.token_ids.size() != samples.size() || result.scores.size() != samples.size()) {
    return absl::InternalError(absl::StrCat("a step with ", samples.size(), " samples gave ",
                                            result.token_ids.size(), " tokens and ",
                                            result.scores.size(), " scores"));
  }
  for (size_t k = 0; k < samples.size(); ++k) {
    if (samples[k].reads_state && (k >= result.states.size() || result.states[k].empty())) {
      return absl::InternalError("a step gave no state where one is read");
    }
    const int32_t id = result.token_ids[k];
    const bool is_lost = id == -1 && was_overlapped && !samples[k].scores_prompt;
    if (!is_lost && (id < 0 || id >= vocab_size_)) {
      return absl::InternalError(
          absl::StrCat("a step gave token ", id, ", the vocabulary has ", vocab_size_));
    }
  }
  return absl::OkStatus();
}

void StepCommit::TakeSamples(const PlannedStep& step, model::StepResult& result,
                             const Moment& now) {
  finished_.clear();
  failed_.clear();
  sampled_tokens_ = 0;
  const auto samples = step.plan.samples();
  for (size_t k = 0; k < samples.size(); ++k) {
    if (samples[k].reads_state) {
      LiveRequest& r = *samples[k].sequence->request;
      if (!r.has_ended) book_.live().AddState(r, std::move(result.states[k]));
      continue;
    }
    TakeSample(samples[k], result.token_ids[k], std::move(result.scores[k]), now);
  }
  metrics_.generated_tokens.fetch_add(sampled_tokens_, std::memory_order_relaxed);
}

void StepCommit::TakeSample(const PlannedSample& sample, int32_t token, model::TokenScore score,
                            const Moment& now) {
  Sequence& s = *sample.sequence;
  if (sample.scores_prompt) {
    // It counts even if the sequence that computed it has finished: siblings go on from there.
    if (s.request->has_ended) return;
    book_.live().AddScore(*s.request, std::move(score));
    ++s.request->num_scored;
    return;
  }
  // The sequence may have finished since, or have been rolled back.
  if (s.state == SequenceState::kFinished || sample.epoch != s.epoch) return;
  if (sample.draft >= 0) {
    // The sample counts if the one before it counts and is that draft.
    const bool follows = s.finish == FinishReason::kNone && s.num_computed == sample.position &&
                         s.answer.back() == sample.draft;
    if (!follows) return;
    ++s.num_computed;
  } else {
    --s.num_in_flight;
  }
  s.answer.push_back(token);
  if (s.constraint != nullptr && !TakeConstrained(s, sample)) return;
  ++sampled_tokens_;
  s.num_synchronous_samples = std::max(0, s.num_synchronous_samples - 1);
  if (s.seen_is_built) model::AddSeen(s.seen, token);
  book_.live().AddToken(s, token, std::move(score), now);
  s.finish = WhyFinished(s);
  if (s.finish == FinishReason::kNone) return;
  book_.live().AddFinish(s, s.finish);
  finished_.push_back(&s);
}

bool StepCommit::TakeConstrained(Sequence& s, const PlannedSample& sample) {
  absl::Status failure = sample.failure;
  if (failure.ok()) {
    if (EndsByStopId(s)) return true;
    const bool accepted = s.constraint->Accept(s.answer.back());
    failure = s.constraint->status();
    if (accepted && failure.ok()) return true;
  }
  if (failure.ok()) {
    failure = absl::InternalError(
        absl::StrCat("the constraint refuses token ", s.answer.back(), ", which was sampled"));
  }
  s.answer.pop_back();
  ++s.epoch;  // the samples of its drafts are void
  failed_.emplace_back(&s, std::move(failure));
  return false;
}

void StepCommit::TakePrefill(const ScheduledTokens& t) {
  Sequence* const s = t.sequence;
  LiveRequest& r = *s->request;
  if (r.prefill_leader != s) return;
  const int done = std::min({t.begin + t.num_tokens, s->num_computed, r.prompt_tokens()});
  if (r.request.want_progress && !r.has_token) {
    book_.live().AddProgress(r, {.prompt_tokens = r.prompt_tokens(),
                                 .prompt_tokens_done = done,
                                 .cached_prompt_tokens = r.cached_prompt_tokens});
  }
  if (done < r.prompt_tokens()) return;
  if (!std::exchange(r.prompt_counted, true)) {
    metrics_.prompt_tokens.fetch_add(r.prompt_tokens(), std::memory_order_relaxed);
  }
  if (r.request.max_tokens == 0) {
    for (Sequence& sibling : r.sequences) {
      if (sibling.state == SequenceState::kFinished) continue;
      sibling.finish = FinishReason::kLength;
      book_.live().AddFinish(sibling, sibling.finish);
      finished_.push_back(&sibling);
    }
  }
  book_.OnPrefillDone(r);
}

}  // namespace continuo::engine
