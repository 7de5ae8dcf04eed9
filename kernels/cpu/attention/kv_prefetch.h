// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_ops.h"
#include "kernels/cpu/attention/attention_plan.h"
#include "kernels/cpu/isa/kernel_table.h"

namespace continuo::kernels::cpu {

// The memory that one thread of a PagedAttention reads after its current KV chunk: the rest of its
// work item, then the items that are likely its next. As much is prefetched as is read, across
// chunks and items, so that short chunks between long ones do not shorten the prefetch distance.
// Any thread, one at a time.
class alignas(64) KvPrefetch {
 public:
  // Tells that work item number `index`, in the order of claiming, begins. The last of `items` is
  // claimed first, and every `step`th goes to the same thread. All arguments outlive the calls of
  // Next.
  void Begin(const std::vector<AttentionItem>& items, int index, int step, const PagedKv& kv,
             const AttentionParams& params);

  // Writes the memory of the next n positions, from where the last call ended, to `out`: up to 2 n
  // ranges. Returns their end.
  MemoryRange* Next(int n, MemoryRange* out);

  // Called after the last chunk of the item.
  void End() { index_ += step_; }
  // Called before the first PagedAttention and between any two.
  void Reset() { index_ = -1; }

 private:
  const AttentionItem& item() const { return (*items_)[items_->size() - 1 - at_index_]; }
  // Moves to the first position that an item sees.
  void Enter(int index);

  const std::vector<AttentionItem>* items_ = nullptr;
  const PagedKv* kv_ = nullptr;
  const AttentionParams* params_ = nullptr;
  int64_t row_bytes_ = 0;
  int step_ = 1;
  int index_ = -1;  // the item that is expected next; -1: none
  // The next item and position to prefetch; beyond the last item there is nothing.
  int64_t at_index_ = 0, position_ = 0, end_ = 0;
};

}  // namespace continuo::kernels::cpu
