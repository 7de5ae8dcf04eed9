// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// Returns the sum of n values, a power of two, that lie `stride` apart. A kernel keeps them in
// registers, since n is a constant.
template <int n>
CONTINUO_HOST_DEVICE inline float AddTreeOf(const float* parts, int64_t stride) {
  if constexpr (n == 1) {
    return *parts;
  } else {
    return AddTreeOf<n / 2>(parts, stride) + AddTreeOf<n / 2>(parts + n / 2 * stride, stride);
  }
}

// Returns the sum of the values at `parts`, `parts + stride`, … of `num_parts` (1, 2, 4 or 8)
// ranks, added in a balanced binary tree, neighbours first: the order of
// Communicator::AllReduceSum.
CONTINUO_HOST_DEVICE inline float AddTree(const float* parts, int64_t stride, int num_parts) {
  switch (num_parts) {
    case 1:
      return AddTreeOf<1>(parts, stride);
    case 2:
      return AddTreeOf<2>(parts, stride);
    case 4:
      return AddTreeOf<4>(parts, stride);
    default:
      return AddTreeOf<8>(parts, stride);
  }
}

// out[i] = AddTree of parts[0][i], parts[1][i], …: out f32 [n], parts f32 [num_parts, n]. Returns
// the launch's error.
cudaError_t AddTrees(float* out, const float* parts, int num_parts, int64_t n, KernelStream stream);

}  // namespace continuo::kernels::cuda
