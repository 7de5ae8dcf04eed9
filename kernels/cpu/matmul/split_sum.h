// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cpu {

// The place of a block of a product's results: rows [row, row + num_rows) and columns
// [column, column + num_columns) of `out`, with `bias` (f32 [out's columns], or empty) added.
struct ResultBlock {
  Tensor out;
  Tensor bias;
  int64_t row, num_rows;
  int64_t column, num_columns;
};

// Adds the splits' sums [num_splits, num_rows, stride] in a balanced tree, then the bias, and
// writes the first num_columns of each row to the block, rounded to out's type. `sums` is scratch.
void FinishSplits(const KernelTable& kernels, const ResultBlock& block, float* sums,
                  int64_t num_splits, int64_t stride);

}  // namespace continuo::kernels::cpu
