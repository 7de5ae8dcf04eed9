// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/sequence_states.h"

#include <algorithm>

#include "services/base/check.h"

namespace continuo::engine {
namespace {

// Returns the slot with the state behind `position` tokens of `s`, or kNoState if it has none or a
// later row overwrites it.
StateSlot StateThatStays(const Sequence& s, int position) {
  const auto at = std::ranges::find(s.states, position, &PlacedState::position);
  if (at == s.states.end()) return kNoState;
  const bool is_overwritten =
      std::any_of(at + 1, s.states.end(), [&](const PlacedState& p) { return p.slot == at->slot; });
  return is_overwritten ? kNoState : at->slot;
}

bool SiblingWaits(const Sequence& s) {
  return std::ranges::any_of(s.request->sequences, [&s](const Sequence& sibling) {
    return &sibling != &s &&
           (sibling.state == SequenceState::kPending || sibling.state == SequenceState::kWaiting);
  });
}

}  // namespace

void SequenceStates::BeginAtBlock(Sequence& s) {
  CONTINUO_CHECK(s.states.empty());
  const auto position = static_cast<int>(s.blocks.size()) * block_size_;
  s.states.push_back({.position = position, .slot = pool_.AcquireOfBlock(s.blocks.back())});
}

void SequenceStates::BeginAtPrompt(Sequence& s) {
  CONTINUO_CHECK(s.states.empty());
  const LiveRequest& r = *s.request;
  s.states.push_back(
      {.position = r.prompt_tokens(), .slot = pool_.AcquireOfPrompt(r.prompt_state)});
}

bool SequenceStates::BeginLike(Sequence& s, const Sequence& from, int position) {
  if (const StateSlot slot = StateThatStays(from, position); slot != kNoState) {
    pool_.AddReference(slot);
    s.states.push_back({.position = position, .slot = slot});
    return true;
  }
  if (position != s.request->prompt_tokens() || !HasPrompt(*s.request)) return false;
  BeginAtPrompt(s);
  return true;
}

void SequenceStates::PlaceScheduled(const PlannedStep& step) {
  if (!has_slots()) return;
  for (const ScheduledTokens& t : step.scheduled) {
    Sequence& s = *t.sequence;
    const int end = t.begin + t.num_tokens;
    CONTINUO_CHECK(t.begin == 0 ? s.states.empty()
                                : s.states.size() == 1 && s.states[0].position == t.begin);
    if (t.begin > 0 && pool_.IsExclusive(s.states[0].slot)) {
      pool_.AddReference(s.states[0].slot);
      s.states.push_back({.position = end, .slot = s.states[0].slot});
    } else {
      Place(s, end);
    }
  }
}

void SequenceStates::PlaceDrafts(Sequence& s, int end, int count) {
  if (!has_slots()) return;
  for (int i = 1; i <= count; ++i) Place(s, end + i);
}

void SequenceStates::PlaceSnapshots(const ScheduledTokens& t) {
  if (!has_slots()) return;
  Sequence& s = *t.sequence;
  const LiveRequest& r = *s.request;
  const int end = t.begin + t.num_tokens, prompt = r.prompt_tokens();
  const auto place = [&](int position) {
    if (position <= t.begin || position >= end || pool_.num_free() == 0) return;
    const bool has =
        std::ranges::find(s.states, position, &PlacedState::position) != s.states.end();
    if (!has) Place(s, position);
  };
  if (t.begin < prompt && prompt < end && SiblingWaits(s)) place(prompt);
  if (r.request.cache_bypass || !s.publishes) return;
  place(end / block_size_ * block_size_);
  if (prompt <= end) place((prompt - 1) / block_size_ * block_size_);
  place(s.branch_at);
}

void SequenceStates::Place(Sequence& s, int position) {
  const auto at = std::ranges::upper_bound(s.states, position, {}, &PlacedState::position);
  s.states.insert(at, {.position = position, .slot = pool_.Allocate()});
}

void SequenceStates::Commit(Sequence& s) {
  if (!has_slots()) return;
  const auto is_current = [&s](const PlacedState& p) { return p.position == s.num_computed; };
  for (const PlacedState& state : s.states) {
    if (state.position <= s.num_computed &&
        (is_current(state) || StateThatStays(s, state.position) != kNoState)) {
      Keep(s, state);
    }
  }
  for (const PlacedState& state : s.states) {
    if (!is_current(state)) pool_.Release(state.slot);
  }
  std::erase_if(s.states, [&](const PlacedState& p) { return !is_current(p); });
  CONTINUO_CHECK(s.states.size() == 1);
}

// Keeps a state of `s` as far as later sequences may begin with it. Of an answer the last one
// suffices: the next turn of a conversation begins there.
void SequenceStates::Keep(Sequence& s, const PlacedState& state) {
  LiveRequest& r = *s.request;
  if (state.position == r.prompt_tokens() && SiblingWaits(s) && !HasPrompt(r)) {
    r.prompt_state = pool_.KeepForPrompt(state.slot);
  }
  const int num_blocks = state.position / block_size_;
  if (state.position % block_size_ != 0 || num_blocks > s.num_published) return;
  const BlockId block = s.blocks[num_blocks - 1];
  if (pool_.HasSnapshot(block)) return;
  pool_.KeepForBlock(block, state.slot);
  if (state.position <= r.prompt_tokens()) return;
  if (s.num_answer_blocks > 0 && s.num_answer_blocks != num_blocks) {
    pool_.DropBlock(s.blocks[s.num_answer_blocks - 1]);
  }
  s.num_answer_blocks = num_blocks;
}

void SequenceStates::Release(Sequence& s) {
  for (const PlacedState& state : s.states) pool_.Release(state.slot);
  s.states.clear();
  s.branch_at = s.num_answer_blocks = 0;
}

}  // namespace continuo::engine
