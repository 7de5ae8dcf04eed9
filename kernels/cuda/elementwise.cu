// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/elementwise.h"

#include <cmath>

#include "kernels/cuda/chunk.h"
#include "kernels/cuda/launch.h"

namespace continuo::cuda {
namespace {

constexpr int kThreads = 256;

struct Silu {
  __device__ static float Of(float gate) { return gate / (1.0f + expf(-gate)); }
};

// The tanh form, tanh written by the exponential.
struct Gelu {
  __device__ static float Of(float gate) {
    constexpr float kTwoRoots = 1.5957691216057308f;  // 2 √(2 / π)
    const float inner = gate + 0.044715f * (gate * gate * gate);
    return gate / (1.0f + expf(-kTwoRoots * inner));
  }
};

// A thread a chunk of N elements; bound by two reads and a write of memory.
template <typename Activation, typename T, int N>
__global__ void ActivateMulKernel(T* out, const T* gate, const T* up, int64_t n) {
  BeginGrid();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * N;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N; i < n;
       i += step) {
    const Chunk<T, N> gates = LoadChunk<N>(gate + i), ups = LoadChunk<N>(up + i);
    Chunk<T, N> result;
    for (int j = 0; j < N; ++j) {
      Store(&result.at[j], Activation::Of(Widen(gates.at[j])) * Widen(ups.at[j]));
    }
    StoreChunk<N>(out + i, result);
  }
}

__global__ void SoftCapKernel(float* x, float cap, int64_t n) {
  BeginGrid();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    x[i] = cap * tanhf(x[i] / cap);
  }
}

template <typename Activation, typename T>
cudaError_t ActivateMul(const char* name, T* out, const T* gate, const T* up, int64_t n,
                        cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const bool in_chunks = n % kChunk<T> == 0 && IsAligned(out) && IsAligned(gate) && IsAligned(up);
  return Launch(
      name,
      in_chunks ? ActivateMulKernel<Activation, T, kChunk<T>> : ActivateMulKernel<Activation, T, 1>,
      BlocksFor(n / (in_chunks ? kChunk<T> : 1), kThreads), kThreads, 0, stream, out, gate, up, n);
}

}  // namespace

template <typename T>
cudaError_t SiluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream) {
  return ActivateMul<Silu>("SiluMul", out, gate, up, n, stream);
}

template <typename T>
cudaError_t GeluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream) {
  return ActivateMul<Gelu>("GeluMul", out, gate, up, n, stream);
}

cudaError_t SoftCap(float* x, float cap, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return Launch("SoftCap", SoftCapKernel, BlocksFor(n, kThreads), kThreads, 0, stream, x, cap, n);
}

#define INSTANTIATE(T)                                                         \
  template cudaError_t SiluMul(T*, const T*, const T*, int64_t, cudaStream_t); \
  template cudaError_t GeluMul(T*, const T*, const T*, int64_t, cudaStream_t)
INSTANTIATE(float);
INSTANTIATE(uint16_t);
INSTANTIATE(Half);
#undef INSTANTIATE

}  // namespace continuo::cuda
