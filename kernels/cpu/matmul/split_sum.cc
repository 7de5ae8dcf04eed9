// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/split_sum.h"

#include "kernels/cpu/runtime/rows.h"

namespace continuo::kernels::cpu {

void FinishSplits(const KernelTable& kernels, const ResultBlock& block, float* sums,
                  int64_t num_splits, int64_t stride) {
  const int64_t split_size = block.num_rows * stride;
  const Tensor& out = block.out;
  // Row by row, so that what is added stays in the L1 cache.
  for (int64_t i = 0; i < block.num_rows; ++i) {
    float* values = sums + i * stride;
    for (int64_t step = 1; step < num_splits; step *= 2) {
      for (int64_t split = 0; split < num_splits; split += 2 * step) {
        float* sum = values + split * split_size;
        kernels.add(sum, sum, sum + step * split_size, stride);
      }
    }
    if (block.bias.size() > 0) {
      kernels.add(values, values, static_cast<const float*>(block.bias.data) + block.column,
                  block.num_columns);
    }
    kernels.narrow[ElementOf(out.dtype)](At(out, (block.row + i) * out.cols() + block.column),
                                         values, block.num_columns);
  }
}

}  // namespace continuo::kernels::cpu
