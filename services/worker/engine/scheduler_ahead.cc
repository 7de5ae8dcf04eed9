// SPDX-License-Identifier: Apache-2.0
// Steps planned before the tokens of the one under way are known.
#include <algorithm>

#include "services/worker/engine/scheduler.h"

namespace continuo::engine {
namespace {

// A draw that the device leaves to the host is likely followed by more of the kind.
constexpr int kAwaitedAfterLost = 32;

// No step is begun behind one that takes longer than this part of `target_step`: the gap that it
// would close is small beside that, and who arrives meanwhile would wait for both.
constexpr int kShortPart = 4;

}  // namespace

// What a draw depends on is known but for the tokens before it, which only the device reads: not so
// with drafts, and after scores and draws that the host has to make. Who gives blocks or places to
// others is decided when it is known who ends.
bool Scheduler::MayGoAhead() {
  if (num_under_way() != 1 || idle() || MayPreempt()) return false;
  if (next_->predicted > options_.target_step / kShortPart) return false;
  if (options_.drafter != nullptr && steps_ahead_ <= 0) return false;
  for (const Chosen& c : next_->chosen) {
    if (c.num_drafts > 0) return false;
  }
  for (const PlannedSample& sample : next_->plan.samples()) {
    if (sample.scores_prompt) return false;
    const Sequence& s = *sample.sequence;
    if (s.state == SequenceState::kFinished) continue;
    if (s.draws_awaited > 0) return false;
  }
  return std::ranges::count_if(running_, [this](const Sequence* s) { return NeedsBlock(*s); }) <=
         pool_.num_free();
}

// From here on the step counts as done, but that its tokens are not known.
void Scheduler::Presume() {
  for (const Chosen& c : next_->chosen) c.sequence->num_computed += c.rows;
  const auto samples = next_->plan.samples();
  for (size_t k = 0; k < samples.size(); ++k) {
    if (samples[k].scores_prompt || samples[k].draft >= 0) continue;
    Sequence& s = *samples[k].sequence;
    ++s.num_presumed;
    s.presumed_by = static_cast<int32_t>(k);
  }
}

// The token was not drawn, and the step planned ahead has gone on without it: the row that draws it
// is computed again, and what came after it is dropped.
void Scheduler::TakeBack(const PlannedSample& sample) {
  Sequence& s = *sample.sequence;
  if (s.state == SequenceState::kFinished || sample.generation != s.generation) return;
  if (s.state == SequenceState::kWaiting) waiting_rows_ -= s.num_presumed;
  s.num_presumed = 0;
  ++s.generation;
  s.draws_awaited = kAwaitedAfterLost;
  if (s.state == SequenceState::kRunning) {
    s.num_computed = std::min(s.num_computed, NumTokens(s) - 1);
  }
}

}  // namespace continuo::engine
