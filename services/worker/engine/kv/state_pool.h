// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/engine/kv/block_pool.h"

namespace continuo::engine {

// The number of a slot, which holds one state of every layer with state.
using StateSlot = int32_t;
inline constexpr StateSlot kNoState = -1;

// Names a state that the pool keeps until it needs the slot.
struct KeptState {
  StateSlot slot = kNoState;
  uint32_t generation = 0;
};

// Hands out the slots of states by reference count, and keeps states for later sequences
// (snapshots): those behind published KV blocks, and those behind prompts that siblings share.
// Deals in numbers; the bytes belong to the state cache. Not thread-safe.
//
// A slot is used (referenced), kept (free but known as a snapshot) or empty. Allocate takes empty
// slots first, then kept ones, least recently released first.
class StatePool {
 public:
  // No slots: the model has no layers with state. `num_blocks` is that of the KV blocks.
  StatePool(int num_slots, int num_blocks);

  int num_slots() const { return static_cast<int>(slots_.size()); }
  int num_kept() const { return num_kept_; }
  int num_used() const { return num_slots() - num_free(); }
  // Returns how many slots Allocate can still hand out: empty and kept ones.
  int num_free() const { return static_cast<int>(empty_.size()) + num_kept_; }
  // Returns the number of references to all slots.
  int64_t num_references() const { return num_references_; }

  // Returns a slot with one reference, which is no snapshot. Requires num_free() > 0.
  StateSlot Allocate();
  void AddReference(StateSlot slot);
  void Release(StateSlot slot);
  // Returns whether the holder of one reference may change the state: nobody else can find it.
  bool IsExclusive(StateSlot slot) const {
    return slots_[slot].references == 1 && !IsSnapshot(slots_[slot]);
  }

  // `slot`, which is referenced, holds the state behind the prefix that ends with `block`. Does
  // nothing where the block has a snapshot.
  void KeepForBlock(BlockId block, StateSlot slot);
  bool HasSnapshot(BlockId block) const { return of_block_[block] != kNoState; }
  // Returns the block's snapshot, which it has, with a new reference.
  StateSlot AcquireOfBlock(BlockId block);
  // Forgets the block's snapshot, if it has one. Callers do so whenever a block is handed out anew.
  void DropBlock(BlockId block);

  // Keeps the state in `slot`, which is referenced, until DropPrompt. Several requests may keep
  // one.
  KeptState KeepForPrompt(StateSlot slot);
  // Returns whether the state is still there.
  bool IsThere(const KeptState& kept) const {
    return kept.slot != kNoState && slots_[kept.slot].num_prompts > 0 &&
           slots_[kept.slot].generation == kept.generation;
  }
  // Returns the slot of a state that is there, with a new reference.
  StateSlot AcquireOfPrompt(const KeptState& kept);
  void DropPrompt(const KeptState& kept);

  // Walks the whole state. Returns Internal with the first broken invariant. For tests.
  absl::Status CheckInvariants() const;

 private:
  struct Slot {
    int32_t references = 0;
    uint32_t generation = 0;  // counts how often the slot was handed out
    BlockId block = kNoBlock;
    int32_t num_prompts = 0;                       // requests that keep it behind their prompts
    StateSlot older = kNoState, newer = kNoState;  // neighbours in the list of kept slots
  };

  static bool IsSnapshot(const Slot& slot) {
    return slot.block != kNoBlock || slot.num_prompts > 0;
  }
  void PushKept(StateSlot slot);
  void RemoveKept(StateSlot slot);
  // A slot without references that is a snapshot no more becomes empty.
  void ForgetIfUnknown(StateSlot slot);

  std::vector<Slot> slots_;
  std::vector<StateSlot> of_block_;  // [num_blocks]
  std::vector<StateSlot> empty_;
  StateSlot oldest_ = kNoState, newest_ = kNoState;  // the list of kept slots
  int num_kept_ = 0;
  int64_t num_references_ = 0;
};

}  // namespace continuo::engine
