// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// Returns the sum of the values at `parts`, `parts + stride`, … of `num_parts` (1, 2, 4 or 8)
// ranks, added in a balanced binary tree, neighbours first: the order of
// Communicator::AllReduceSum.
CONTINUO_HOST_DEVICE inline float AddTree(const float* parts, int64_t stride, int num_parts) {
  float sums[8] = {};
  for (int i = 0; i < num_parts; ++i) sums[i] = parts[i * stride];
  for (int n = num_parts / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}

// out[i] = AddTree of parts[0][i], parts[1][i], …: out f32 [n], parts f32 [num_parts, n]. Returns
// the launch's error.
cudaError_t AddTrees(float* out, const float* parts, int num_parts, int64_t n, KernelStream stream);

}  // namespace continuo::kernels::cuda
