// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/adapters/adapter_ops.h"
#include "kernels/cpu/runtime/cpu_context.h"

namespace continuo::kernels::cpu {

// AdapterOps of the CPU. Threads share entries and columns, which do not depend on each other. The
// weights of an adapter are read once for kEntries rows, which bounds the cost of many adapters.
class CpuAdapterOps : public AdapterOps {
 public:
  // `context` outlives this.
  explicit CpuAdapterOps(CpuContext& context) : context_(context), kernels_(context.kernels()) {}

 private:
  // Some entries and columns of a group, which one thread computes.
  struct Item {
    size_t group;
    int64_t begin, end;  // entries
    int64_t column, column_end;
  };

  void DoShrink(Tensor inner, Tensor x, Tensor rows, std::span<const ShrinkGroup> groups,
                std::span<const int64_t> split_begin) override;
  void DoExpand(Tensor out, Tensor inner, Tensor rows,
                std::span<const ExpandGroup> groups) override;
  void AddItems(size_t group, int64_t begin, int64_t end, int64_t columns, int64_t column_block);

  CpuContext& context_;
  const KernelTable& kernels_;
  std::vector<Item> items_;  // of the current op
};

}  // namespace continuo::kernels::cpu
