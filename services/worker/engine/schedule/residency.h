// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "services/worker/engine/kv/block_pool.h"
#include "services/worker/engine/kv/kv_event_recorder.h"
#include "services/worker/engine/requests/request_book.h"
#include "services/worker/engine/schedule/kv_admission.h"
#include "services/worker/engine/schedule/planned_step.h"
#include "services/worker/engine/schedule/sequence_states.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/engine/types/options.h"

namespace continuo::engine {

// Owns the KV blocks and the set of running sequences, which are the ones that hold blocks: admits,
// preempts, publishes and releases. Does not decide who yields to whom (Preemption) or who computes
// how much (StepFiller). Not thread-safe.
class Residency {
 public:
  // All arguments outlive this object.
  Residency(const EngineOptions* options, RequestBook* book, EngineMetrics* metrics);

  // They are in preemption order (preemption_order.h): the last one is preempted first.
  std::span<Sequence* const> running() const { return running_; }
  int num_running() const { return static_cast<int>(running_.size()); }
  // At most so many sequences run at a time.
  int max_running() const { return std::min(options_.max_running, states_.most_running()); }
  const BlockPool& pool() const { return pool_; }
  // Tells what becomes of the pool's prefixes.
  KvEventRecorder& kv_events() { return kv_events_; }
  SequenceStates& states() { return states_; }
  const SequenceStates& states() const { return states_; }
  // Grows with every release of blocks. What did not fit is tried again after the next one.
  uint64_t num_releases() const { return num_releases_; }
  // Returns how many tokens running sequences have to compute before all of them decode.
  int64_t pending_prompt_tokens() const;
  // Returns how far the references of the pool differ from those of running sequences: always 0.
  int64_t unaccounted_blocks() const;
  // Does the same for the slots of states.
  int64_t unaccounted_states() const;

  // Returns whether the head of the queue, `s`, cannot run before another releases something.
  bool IsBlocked(const Sequence& s) const;
  // Returns whether `s` fits beside those running sequences for which `stays` holds.
  bool FitsBeside(const Sequence& s, absl::FunctionRef<bool(const Sequence&)> stays) {
    return admission_.Fits(s, running_, pool_.num_used(), stays);
  }
  bool Fits(const Sequence& s) {
    return FitsBeside(s, [](const Sequence&) { return true; });
  }
  // Returns a running sibling whose computed prompt `s` can share, or null.
  const Sequence* FindDonor(const Sequence& s, const PlannedStep& step) const;
  // Takes `s` out of the queue and lets it run, if there is room.
  bool TryAdmit(Sequence& s, PlannedStep& step);
  // Moves `s` back to the queue. Its blocks are released, and it is guaranteed from now on.
  void Preempt(Sequence& s, PlannedStep& step);
  // `s` has finished: its length is recorded and its blocks are released. Returns whether its
  // computed prompt was transferred to a sibling that waits for it.
  bool Retire(Sequence& s, uint64_t last_step);
  // `s` ends with its request: its blocks are released.
  void Remove(Sequence& s);

  // Returns for how many tokens after the first `begin` `s` has blocks or could get them.
  int64_t RoomAfter(const Sequence& s, int64_t begin) const {
    return (static_cast<int64_t>(s.blocks.size()) + pool_.num_free()) * options_.block_size - begin;
  }
  bool HasBlockForNextToken(const Sequence& s) const {
    return static_cast<int>(s.blocks.size()) * options_.block_size > s.num_computed;
  }
  // Gives `s` blocks for `num_tokens` tokens in all; there must be room.
  void Grow(Sequence& s, int num_tokens) {
    const int need = BlocksFor(num_tokens, options_.block_size);
    while (static_cast<int>(s.blocks.size()) < need) s.blocks.push_back(Allocate());
  }
  // Releases the blocks of `s` that are not needed for `num_tokens` tokens.
  void Shrink(Sequence& s, int num_tokens);
  // Gives every running sequence a block for its next token. A sequence that decodes may take it
  // from those behind it in preemption order; one in prefill only from those that it outranks.
  void ReserveNextTokens(PlannedStep& step);
  // Returns whether ReserveNextTokens would find a block for everyone without preempting.
  bool CanReserveNextTokens() const;
  // Publishes full blocks of the first `end` tokens, which must be known, as far as computed.
  void Publish(Sequence& s, int end);

 private:
  bool NeedsBlock(const Sequence& s) const { return !IsEnding(s) && !HasBlockForNextToken(s); }
  BlockId Allocate();
  void AcquireKnown(Sequence& s, const Sequence* donor);
  // Leaves `s` the cached blocks behind whose last one its state is there.
  void CutToSnapshot(Sequence& s);
  void JoinRunning(Sequence& s);
  void LeaveRunning(Sequence& s);
  void ReleaseBlocks(Sequence& s);
  bool TransferBlocks(Sequence& from, uint64_t last_step);

  const EngineOptions& options_;
  RequestBook& book_;
  EngineMetrics& metrics_;
  BlockPool pool_;
  KvEventRecorder kv_events_{&pool_};
  SequenceStates states_;
  KvAdmission admission_;
  std::vector<Sequence*> running_;
  uint64_t num_releases_ = 0;
  // The last sequence that did not fit, by its queue ticket, and num_releases_ then.
  uint64_t blocked_ticket_ = 0, blocked_at_ = 0;
  std::vector<int32_t> block_tokens_;  // reused memory: the tokens of one block
};

}  // namespace continuo::engine
