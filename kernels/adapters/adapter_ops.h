// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace continuo::kernels {

// Rows of a step that share an adapter, as entries [begin, end) of a list of rows, and what
// AdapterOps::Shrink multiplies them with.
struct ShrinkGroup {
  int64_t begin = 0, end = 0;
  Tensor a;  // [k, width], f32 or bf16: Aᵀ of one or several matrices, side by side
};

// Likewise for AdapterOps::Expand. An empty b leaves the rows as they are.
struct ExpandGroup {
  int64_t begin = 0, end = 0;
  Tensor b;            // [rank, columns], f32 or bf16: Bᵀ
  int64_t first = 0;   // the column of `inner` at which its `rank` values begin
  float factor = 1;    // of the product
  int64_t column = 0;  // of `out`, at which the product's columns begin
};

// Low-rank adapters (LoRA): out[r] += factor · B (A x[r]), for the rows that have one. `rows`, i32
// [entries], holds the rows' indices, each at most once; groups are ascending and do not overlap.
// Their factors are in the device's memory. Rows that are in no group stay as they are. A row's
// result depends on the row and on its adapter alone, and has the same bits on every instruction
// set of the CPU. Rules of all ops: ops.h.
class AdapterOps {
 public:
  virtual ~AdapterOps() = default;

  // inner[i] = a ᵀ x[rows[i]] of each entry i of a group, zeros behind a's width; inner f32
  // [entries, at least the largest width]. `split_begin` are K splits of x's columns, as
  // MatMulOps::MatMulSplitK takes them, whose sums are added in the same tree.
  void Shrink(Tensor inner, Tensor x, Tensor rows, std::span<const ShrinkGroup> groups,
              std::span<const int64_t> split_begin);
  // out[rows[i]] = round(out[rows[i]] + factor · (bᵀ inner[i])) of each entry i of a group, in b's
  // columns. out is f32 or of the activations' type.
  void Expand(Tensor out, Tensor inner, Tensor rows, std::span<const ExpandGroup> groups);

 private:
  // The arguments have been checked.
  virtual void DoShrink(Tensor inner, Tensor x, Tensor rows, std::span<const ShrinkGroup> groups,
                        std::span<const int64_t> split_begin) = 0;
  virtual void DoExpand(Tensor out, Tensor inner, Tensor rows,
                        std::span<const ExpandGroup> groups) = 0;
};

}  // namespace continuo::kernels
