// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "services/worker/engine/kv/state_pool.h"
#include "services/worker/engine/requests/sequence.h"
#include "services/worker/engine/schedule/planned_step.h"

namespace continuo::engine {

// Owns the slots of states, for models with layers that have one: says from which slot each
// sequence of a step goes on, which rows of the step leave a state and where, and which states stay
// behind as snapshots. A sequence that has computed something holds one slot between steps. Does
// nothing where there are no slots. Not thread-safe.
class SequenceStates {
 public:
  SequenceStates(int num_slots, int num_blocks, int block_size)
      : pool_(num_slots, num_blocks), block_size_(block_size) {}

  bool has_slots() const { return pool_.num_slots() > 0; }
  const StatePool& pool() const { return pool_; }
  // Returns how many sequences can run at a time: in a step each may read one slot and write
  // another.
  int most_running() const {
    return has_slots() ? pool_.num_slots() / 2 : std::numeric_limits<int>::max();
  }

  // A KV block has been handed out anew: what was known of it is void.
  void OnAllocated(BlockId block) {
    if (has_slots()) pool_.DropBlock(block);
  }
  // Returns whether a sequence can begin behind the prefix that ends with `block`.
  bool CanBeginAt(BlockId block) const { return pool_.HasSnapshot(block); }
  // `s`, which holds no slot, begins behind its last block, whose state is there.
  void BeginAtBlock(Sequence& s);
  // Returns whether the state behind the prompt is there for siblings.
  bool HasPrompt(const LiveRequest& r) const { return pool_.IsThere(r.prompt_state); }
  // `s`, which holds no slot, begins behind its prompt, whose state is there.
  void BeginAtPrompt(Sequence& s);
  // Lets `s`, which holds no slot, begin where `from` has computed `position` tokens. Returns false
  // if that state is not there.
  bool BeginLike(Sequence& s, const Sequence& from, int position);

  // Gives every scheduled sequence the slot for the state behind its scheduled tokens.
  void PlaceScheduled(const PlannedStep& step);
  // Returns for how many drafts there are slots.
  int RoomForDrafts() const {
    return has_slots() ? pool_.num_free() : std::numeric_limits<int>::max();
  }
  // Gives `s` slots for the states behind `count` drafts, which come after `end` tokens.
  void PlaceDrafts(Sequence& s, int end, int count);
  // Gives `s` slots for the states that later sequences may begin with, as far as there are any:
  // behind the last full block of what is scheduled, the last full block of the prompt, the cached
  // blocks that `s` could not use for want of a state, and the prompt, if siblings wait for it.
  void PlaceSnapshots(const ScheduledTokens& t);

  // The step that scheduled `s` has been committed, and its full blocks have been published: keeps
  // snapshots and releases all slots but that behind the computed tokens.
  void Commit(Sequence& s);
  // `s` gives back its blocks.
  void Release(Sequence& s);
  // The request ends: nobody will begin behind its prompt.
  void OnEnded(LiveRequest& r) { pool_.DropPrompt(r.prompt_state); }

 private:
  void Place(Sequence& s, int position);
  void Keep(Sequence& s, const PlacedState& state);

  StatePool pool_;
  const int block_size_;
};

}  // namespace continuo::engine
