// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/isa/kernel_table.h"

namespace continuo::kernels::cpu {

// What one thread of a PagedAttention reads after its current span: the rest of the item, then the
// items that are likely its next. It asks for as much as it reads, across spans and items, so that
// short spans between long ones do not shorten the way ahead. Any thread, one at a time.
class alignas(64) ReadAhead {
 public:
  // Before an item that is number `index` of those handed out; of `items` the last is handed out
  // first, and every `step`th goes to the same thread. All outlive the calls of Next.
  void Begin(const std::vector<AttentionItem>& items, int index, int step, const PagedKv& kv,
             const AttentionParams& params);

  // The memory of so many positions, from where the last call ended, as up to 2 n pieces at `out`;
  // their end.
  MemoryPiece* Next(int n, MemoryPiece* out);

  // After the last span of the item.
  void End() { index_ += step_; }
  // Before the first PagedAttention and between any two.
  void Reset() { index_ = -1; }

 private:
  const AttentionItem& item() const { return (*items_)[items_->size() - 1 - at_index_]; }
  // To the first position that an item sees.
  void Enter(int index);

  const std::vector<AttentionItem>* items_ = nullptr;
  const PagedKv* kv_ = nullptr;
  int window_ = 0;
  int64_t row_bytes_ = 0;
  int step_ = 1;
  int index_ = -1;  // the item that is expected next; -1: none
  // What is asked for next; beyond the last item: nothing.
  int64_t at_index_ = 0, position_ = 0, end_ = 0;
};

}  // namespace continuo::kernels::cpu
