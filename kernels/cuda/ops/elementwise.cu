// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/ops/elementwise.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/formats/fp8_row.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct Silu {
  __device__ static float Of(float gate) { return gate / (1.0f + expf(-gate)); }
};

// Gelu in its tanh form, with tanh written by the exponential.
struct Gelu {
  __device__ static float Of(float gate) {
    constexpr float kTwoRoots = 1.5957691216057308f;  // 2 √(2 / π)
    const float inner = gate + 0.044715f * (gate * gate * gate);
    return gate / (1.0f + expf(-kTwoRoots * inner));
  }
};

template <typename Activation, typename T, int N>
__device__ Chunk<T, N> ActivateMul(const Chunk<T, N>& gates, const Chunk<T, N>& ups) {
  Chunk<T, N> result;
  CONTINUO_UNROLL
  for (int j = 0; j < N; ++j) {
    Store(&result.at[j], Activation::Of(Widen(gates.at[j])) * Widen(ups.at[j]));
  }
  return result;
}

// A thread computes a chunk of N elements. Bound by two reads and a write of memory.
template <typename Activation, typename T, int N>
__global__ void ActivateMulKernel(T* out, const T* gate, const T* up, int64_t n) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * N;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N; i < n;
       i += step) {
    StoreChunk<N>(out + i, ActivateMul<Activation>(LoadChunk<N>(gate + i), LoadChunk<N>(up + i)));
  }
}

// The same for bf16, one block per row, which then rounds the row to e4m3. There are enough threads
// for few iterations, since a single row is bound by latency.
constexpr int kMostRowThreads = 1024;
template <typename Activation, int N>
__global__ void CONTINUO_BLOCK_OF(kMostRowThreads)
    ActivateMulInFp8Kernel(uint16_t* out, Fp8Rows fp8, const uint16_t* gate, const uint16_t* up,
                           int64_t rows, int64_t cols) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(blockDim.x) * N;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t begin = row * cols;
    RowExtent extent;
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < cols; i += step) {
      const Chunk<uint16_t, N> result =
          ActivateMul<Activation>(LoadChunk<N>(gate + begin + i), LoadChunk<N>(up + begin + i));
      CONTINUO_UNROLL
      for (int j = 0; j < N; ++j) Include(extent, Widen(result.at[j]));
      StoreChunk<N>(out + begin + i, result);
    }
    StoreRowInFp8<N>(fp8, row, out + begin, cols, extent, reinterpret_cast<float*>(SharedMemory()));
  }
}

__global__ void SoftCapKernel(float* x, float cap, int64_t n) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    x[i] = cap * tanhf(x[i] / cap);
  }
}

template <typename Activation, typename T>
cudaError_t LaunchActivateMul(const char* name, T* out, const T* gate, const T* up, int64_t n,
                              KernelStream stream) {
  if (n == 0) return cudaSuccess;
  const bool in_chunks = n % kChunk<T> == 0 && IsAligned(out) && IsAligned(gate) && IsAligned(up);
  return Launch(
      name,
      in_chunks ? ActivateMulKernel<Activation, T, kChunk<T>> : ActivateMulKernel<Activation, T, 1>,
      BlocksFor(n / (in_chunks ? kChunk<T> : 1), kThreads), kThreads, 0, stream, out, gate, up, n);
}

template <typename Activation>
cudaError_t ActivateMulInFp8(const char* name, uint16_t* out, const Fp8Rows& fp8,
                             const uint16_t* gate, const uint16_t* up, int64_t rows, int64_t cols,
                             KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  const bool in_chunks =
      cols % 8 == 0 && IsAligned(out) && IsAligned(gate) && IsAligned(up) && IsAligned(fp8.numbers);
  const int64_t chunks = cols / (in_chunks ? 8 : 1);
  const int threads = chunks > 2 * kThreads ? kMostRowThreads : kThreads;
  return Launch(
      name,
      in_chunks ? ActivateMulInFp8Kernel<Activation, 8> : ActivateMulInFp8Kernel<Activation, 1>,
      static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 20)), threads,
      static_cast<size_t>(ExtentFloats(threads)) * sizeof(float), stream, out, fp8, gate, up, rows,
      cols);
}

}  // namespace

template <typename T>
cudaError_t SiluMul(T* out, const T* gate, const T* up, int64_t n, KernelStream stream) {
  return LaunchActivateMul<Silu>("SiluMul", out, gate, up, n, stream);
}

template <typename T>
cudaError_t GeluMul(T* out, const T* gate, const T* up, int64_t n, KernelStream stream) {
  return LaunchActivateMul<Gelu>("GeluMul", out, gate, up, n, stream);
}

cudaError_t SiluMulInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                         const uint16_t* up, int64_t rows, int64_t cols, KernelStream stream) {
  return ActivateMulInFp8<Silu>("SiluMulInFp8", out, fp8, gate, up, rows, cols, stream);
}

cudaError_t GeluMulInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                         const uint16_t* up, int64_t rows, int64_t cols, KernelStream stream) {
  return ActivateMulInFp8<Gelu>("GeluMulInFp8", out, fp8, gate, up, rows, cols, stream);
}

cudaError_t SoftCap(float* x, float cap, int64_t n, KernelStream stream) {
  if (n == 0) return cudaSuccess;
  return Launch("SoftCap", SoftCapKernel, BlocksFor(n, kThreads), kThreads, 0, stream, x, cap, n);
}

#define INSTANTIATE(T)                                                         \
  template cudaError_t SiluMul(T*, const T*, const T*, int64_t, KernelStream); \
  template cudaError_t GeluMul(T*, const T*, const T*, int64_t, KernelStream)
INSTANTIATE(float);
INSTANTIATE(uint16_t);
INSTANTIATE(Half);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
