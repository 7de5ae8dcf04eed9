// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/collectives/tree_sum.h"

#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// A thread adds one element, and neighbours read neighbours. Bound by memory, (num_parts + 1) · n
// floats.
__global__ void AddTreesKernel(float* out, const float* parts, int num_parts, int64_t n) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    out[i] = AddTree(parts + i, n, num_parts);
  }
}

}  // namespace

cudaError_t AddTrees(float* out, const float* parts, int num_parts, int64_t n,
                     KernelStream stream) {
  if (n == 0) return cudaSuccess;
  return Launch("AddTrees", AddTreesKernel, BlocksFor(n, kThreads), kThreads, 0, stream, out, parts,
                num_parts, n);
}

}  // namespace continuo::kernels::cuda
