// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv/state_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::engine {

StatePool::StatePool(int num_slots, int num_blocks) {
  CONTINUO_CHECK(num_slots >= 0 && num_blocks >= 1);
  slots_.resize(num_slots);
  of_block_.assign(num_blocks, kNoState);
  empty_.reserve(num_slots);
  for (StateSlot s = num_slots - 1; s >= 0; --s) empty_.push_back(s);  // slot 0 goes first
}

StateSlot StatePool::Allocate() {
  CONTINUO_CHECK(num_free() > 0);
  StateSlot slot = oldest_;
  if (!empty_.empty()) {
    slot = empty_.back();
    empty_.pop_back();
  } else {
    RemoveKept(slot);
    if (slots_[slot].block != kNoBlock) of_block_[slots_[slot].block] = kNoState;
  }
  slots_[slot].block = kNoBlock;
  slots_[slot].num_prompts = 0;
  ++slots_[slot].generation;
  slots_[slot].references = 1;
  ++num_references_;
  return slot;
}

void StatePool::AddReference(StateSlot slot) {
  if (slots_[slot].references == 0) {
    CONTINUO_CHECK(IsSnapshot(slots_[slot]));
    RemoveKept(slot);
  }
  ++slots_[slot].references;
  ++num_references_;
}

void StatePool::Release(StateSlot slot) {
  CONTINUO_CHECK(slots_[slot].references > 0);
  --num_references_;
  if (--slots_[slot].references > 0) return;
  if (IsSnapshot(slots_[slot])) {
    PushKept(slot);
  } else {
    empty_.push_back(slot);
  }
}

void StatePool::KeepForBlock(BlockId block, StateSlot slot) {
  CONTINUO_CHECK(slots_[slot].references > 0);
  if (of_block_[block] != kNoState || slots_[slot].block != kNoBlock) return;
  of_block_[block] = slot;
  slots_[slot].block = block;
}

StateSlot StatePool::AcquireOfBlock(BlockId block) {
  const StateSlot slot = of_block_[block];
  CONTINUO_CHECK(slot != kNoState);
  AddReference(slot);
  return slot;
}

void StatePool::DropBlock(BlockId block) {
  const StateSlot slot = of_block_[block];
  if (slot == kNoState) return;
  of_block_[block] = kNoState;
  slots_[slot].block = kNoBlock;
  ForgetIfUnknown(slot);
}

KeptState StatePool::KeepForPrompt(StateSlot slot) {
  CONTINUO_CHECK(slots_[slot].references > 0);
  ++slots_[slot].num_prompts;
  return {.slot = slot, .generation = slots_[slot].generation};
}

StateSlot StatePool::AcquireOfPrompt(const KeptState& kept) {
  CONTINUO_CHECK(IsThere(kept));
  AddReference(kept.slot);
  return kept.slot;
}

void StatePool::DropPrompt(const KeptState& kept) {
  if (!IsThere(kept)) return;
  --slots_[kept.slot].num_prompts;
  ForgetIfUnknown(kept.slot);
}

void StatePool::ForgetIfUnknown(StateSlot slot) {
  if (slots_[slot].references > 0 || IsSnapshot(slots_[slot])) return;
  RemoveKept(slot);
  empty_.push_back(slot);
}

void StatePool::PushKept(StateSlot slot) {
  slots_[slot].older = newest_;
  slots_[slot].newer = kNoState;
  (newest_ == kNoState ? oldest_ : slots_[newest_].newer) = slot;
  newest_ = slot;
  ++num_kept_;
}

void StatePool::RemoveKept(StateSlot slot) {
  const auto [older, newer] = std::pair(slots_[slot].older, slots_[slot].newer);
  (older == kNoState ? oldest_ : slots_[older].newer) = newer;
  (newer == kNoState ? newest_ : slots_[newer].older) = older;
  --num_kept_;
}

absl::Status StatePool::CheckInvariants() const {
  int64_t references = 0;
  int free_snapshots = 0, unknown = 0;
  for (StateSlot s = 0; s < num_slots(); ++s) {
    const Slot& slot = slots_[s];
    references += slot.references;
    if (slot.references == 0) ++(IsSnapshot(slot) ? free_snapshots : unknown);
    if (slot.block != kNoBlock && of_block_[slot.block] != s) {
      return absl::InternalError(absl::StrCat("block ", slot.block, " does not know its state"));
    }
  }
  int listed = 0;
  StateSlot before = kNoState;
  for (StateSlot s = oldest_; s != kNoState; before = s, s = slots_[s].newer) {
    if (slots_[s].older != before || slots_[s].references != 0 || !IsSnapshot(slots_[s]) ||
        ++listed > num_kept_) {
      return absl::InternalError(absl::StrCat("state slot ", s, " is not kept"));
    }
  }
  for (size_t b = 0; b < of_block_.size(); ++b) {
    if (of_block_[b] != kNoState && slots_[of_block_[b]].block != static_cast<BlockId>(b)) {
      return absl::InternalError(absl::StrCat("block ", b, " has another's state"));
    }
  }
  if (references != num_references_ || listed != num_kept_ || free_snapshots != num_kept_ ||
      unknown != static_cast<int>(empty_.size())) {
    return absl::InternalError("state slots are miscounted");
  }
  return absl::OkStatus();
}

}  // namespace continuo::engine
