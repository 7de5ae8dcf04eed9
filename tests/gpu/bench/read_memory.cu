// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/read_memory.h"

#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 512, kLoads = 4;  // 16 bytes each, in flight at once

// A thread takes every grid-th 16 bytes. Bound by memory: a multiprocessor of 2,048 threads has 128
// KiB in flight, several times what its share of the latency needs.
__global__ void CONTINUO_BLOCK_OF(kThreads)
    ReadMemoryKernel(uint32_t* sink, const uint4* __restrict__ data, int64_t n) {
  WaitForPreviousKernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  uint32_t all = 0;
  for (; i + (kLoads - 1) * stride < n; i += kLoads * stride) {
    uint4 words[kLoads];
    CONTINUO_UNROLL
    for (int j = 0; j < kLoads; ++j) words[j] = data[i + j * stride];
    CONTINUO_UNROLL
    for (int j = 0; j < kLoads; ++j) all ^= words[j].x ^ words[j].y ^ words[j].z ^ words[j].w;
  }
  for (; i < n; i += stride) all ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  // The store keeps the loads from being removed. It hardly ever happens, and is harmless.
  if (all == 0x9e3779b9u) *sink = all;
}

}  // namespace

cudaError_t ReadMemory(uint32_t* sink, const void* data, size_t bytes, int num_multiprocessors,
                       KernelStream stream) {
  return Launch("ReadMemory", ReadMemoryKernel,
                dim3(static_cast<unsigned>(4 * num_multiprocessors)), kThreads, 0, stream, sink,
                static_cast<const uint4*>(data), static_cast<int64_t>(bytes / sizeof(uint4)));
}

}  // namespace continuo::kernels::cuda
