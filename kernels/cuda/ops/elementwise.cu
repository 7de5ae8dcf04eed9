// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/ops/elementwise.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/formats/fp8_row.h"
#include "kernels/cuda/formats/held_chunk.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/row_ops.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Returns gate / (1 + e^-x). With kExactly it costs four times the instructions. Without, e^-x is
// wrong by up to 2^-24 |x| of itself, which rounding to 16 bits hides.
template <bool kExactly>
__device__ float TimesSigmoid(float gate, float x) {
  if constexpr (kExactly) return gate / (1.0f + expf(-x));
  constexpr float kLog2OfE = 1.4426950408889634f;
  return gate * Reciprocal(1.0f + Exp2(x * -kLog2OfE));
}

struct Silu {
  template <bool kExactly>
  __device__ static float Of(float gate, float up) {
    return TimesSigmoid<kExactly>(gate, gate) * up;
  }
};

// Gelu in its tanh form, with tanh written by the exponential.
struct Gelu {
  template <bool kExactly>
  __device__ static float Of(float gate, float up) {
    constexpr float kTwoRoots = 1.5957691216057308f;  // 2 √(2 / π)
    return TimesSigmoid<kExactly>(gate, kTwoRoots * (gate + 0.044715f * (gate * gate * gate))) * up;
  }
};

// NaN stays.
struct Swiglu {
  template <bool kExactly>
  __device__ static float Of(float gate, float up) {
    gate = gate > kSwigluLimit ? kSwigluLimit : gate;
    up = up > kSwigluLimit ? kSwigluLimit : up < -kSwigluLimit ? -kSwigluLimit : up;
    return TimesSigmoid<kExactly>(gate, kSwigluSlope * gate) * (up + 1);
  }
};

// NaN stays.
struct ReluSquared {
  template <bool kExactly>
  __device__ static float Of(float gate, float up) {
    gate = gate < 0 ? 0 : gate;
    return gate * gate * up;
  }
};

struct ProductGate {
  template <bool kExactly>
  __device__ static float Of(float gate, float up) {
    return gate * up;
  }
};

struct SigmoidGate {
  template <bool kExactly>
  __device__ static float Of(float gate, float up) {
    return TimesSigmoid<kExactly>(up, gate);
  }
};

template <typename Activation, typename T>
__device__ float ActivateMul(float gate, float up) {
  return Activation::template Of<sizeof(T) == 4>(gate, up);
}

template <typename Activation, typename T>
__device__ HeldChunk ActivateMul(const HeldChunk& gates, const HeldChunk& ups) {
  HeldValues<T> values(gates);
  const HeldValues<T> factors(ups);
  CONTINUO_UNROLL
  for (int j = 0; j < values.kNumber; ++j) {
    values.at[j] = ActivateMul<Activation, T>(values.at[j], factors.at[j]);
  }
  return values.Rounded();
}

// A thread computes a chunk of N elements. Bound by two reads and a write of memory. Without `up`
// the factor is 1.
template <typename Activation, typename T, int N>
__global__ void ActivateMulKernel(T* out, const T* gate, const T* up, int64_t n) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * N;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N; i < n;
       i += step) {
    if constexpr (N == 1) {
      const float factor = up == nullptr ? 1.0f : Widen(up[i]);
      Store(out + i, ActivateMul<Activation, T>(Widen(gate[i]), factor));
    } else if (up == nullptr) {
      HeldValues<T> values(LoadHeld(gate + i));
      CONTINUO_UNROLL
      for (int j = 0; j < values.kNumber; ++j) {
        values.at[j] = ActivateMul<Activation, T>(values.at[j], 1.0f);
      }
      StoreHeld(out + i, values.Rounded());
    } else {
      StoreHeld(out + i, ActivateMul<Activation, T>(LoadHeld(gate + i), LoadHeld(up + i)));
    }
  }
}

// The same for bf16, one block per row, which then rounds the row to e4m3. Its threads keep what
// they have computed until its largest magnitude is known. Bound by memory.
template <typename Activation>
__global__ void CONTINUO_BLOCK_OF(kMostRowThreads)
    ActivateMulInFp8Kernel(uint16_t* out, Fp8Rows fp8, const uint16_t* gate, const uint16_t* up,
                           int64_t rows, int cols) {
  WaitForPreviousKernel();
  constexpr int kAtOnce = 2;  // chunks whose loads are in flight
  const int step = static_cast<int>(blockDim.x) * 8, first = static_cast<int>(threadIdx.x) * 8;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t begin = row * cols;
    HeldChunk held[kMostHeldChunks];
    uint32_t largest = 0;
    CONTINUO_UNROLL
    for (int j = 0; j < kMostHeldChunks; j += kAtOnce) {
      if (j * step >= cols) break;
      HeldChunk gates[kAtOnce] = {}, ups[kAtOnce] = {};
      CONTINUO_UNROLL
      for (int c = 0; c < kAtOnce; ++c) {
        const int i = (j + c) * step + first;
        if (i >= cols) continue;
        gates[c] = LoadHeld(gate + begin + i);
        ups[c] = LoadHeld(up + begin + i);
      }
      CONTINUO_UNROLL
      for (int c = 0; c < kAtOnce; ++c) {
        const int i = (j + c) * step + first;
        held[j + c] = ActivateMul<Activation, uint16_t>(gates[c], ups[c]);  // zeros give zeros
        Include(largest, held[j + c]);
        if (i < cols) StoreHeld(out + begin + i, held[j + c]);
      }
    }
    StoreHeldRowInFp8(fp8, row, held, cols, largest, reinterpret_cast<float*>(SharedMemory()));
  }
}

// The same for rows that are longer or not aligned, which it reads again from a cache.
template <typename Activation>
__global__ void ActivateMulInFp8TwiceKernel(uint16_t* out, Fp8Rows fp8, const uint16_t* gate,
                                            const uint16_t* up, int64_t rows, int64_t cols) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t begin = row * cols;
    uint32_t largest = 0;
    for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) {
      uint16_t* const to = out + begin + i;
      Store(to, ActivateMul<Activation, uint16_t>(Widen(gate[begin + i]), Widen(up[begin + i])));
      Include(largest, *to);
    }
    StoreRowInFp8<1>(fp8, row, out + begin, cols, largest,
                     reinterpret_cast<float*>(SharedMemory()));
  }
}

__global__ void ScaleKernel(float* x, float factor, int64_t n) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    x[i] *= factor;
  }
}

// A thread scales elements. Bound by reading and writing them.
template <typename T>
__global__ void ScaleByKernel(T* x, const float* factor, int64_t n) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    Store(x + i, Widen(x[i]) * *factor);
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
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 20));
  const int threads = RowThreadsFor(rows, cols);
  const auto shared = static_cast<size_t>(ExtentFloats(threads)) * sizeof(float);
  if (HoldsRow(cols, threads) && IsAligned(out) && IsAligned(gate) && IsAligned(up) &&
      IsAligned(fp8.numbers)) {
    return Launch(name, ActivateMulInFp8Kernel<Activation>, blocks, threads, shared, stream, out,
                  fp8, gate, up, rows, cols);
  }
  return Launch(name, ActivateMulInFp8TwiceKernel<Activation>, blocks, threads, shared, stream, out,
                fp8, gate, up, rows, cols);
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

template <typename T>
cudaError_t ClampedSwiglu(T* out, const T* gate, const T* up, int64_t n, KernelStream stream) {
  return LaunchActivateMul<Swiglu>("ClampedSwiglu", out, gate, up, n, stream);
}

template <typename T>
cudaError_t ReluSquaredMul(T* out, const T* gate, const T* up, int64_t n, KernelStream stream) {
  return LaunchActivateMul<ReluSquared>("ReluSquaredMul", out, gate, up, n, stream);
}

template <typename T>
cudaError_t Multiply(T* out, const T* gate, const T* up, int64_t n, KernelStream stream) {
  return LaunchActivateMul<ProductGate>("Multiply", out, gate, up, n, stream);
}

template <typename T>
cudaError_t SigmoidMul(T* out, const T* gate, const T* up, int64_t n, KernelStream stream) {
  return LaunchActivateMul<SigmoidGate>("SigmoidMul", out, gate, up, n, stream);
}

cudaError_t SiluMulInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                         const uint16_t* up, int64_t rows, int64_t cols, KernelStream stream) {
  return ActivateMulInFp8<Silu>("SiluMulInFp8", out, fp8, gate, up, rows, cols, stream);
}

cudaError_t GeluMulInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                         const uint16_t* up, int64_t rows, int64_t cols, KernelStream stream) {
  return ActivateMulInFp8<Gelu>("GeluMulInFp8", out, fp8, gate, up, rows, cols, stream);
}

cudaError_t ClampedSwigluInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                               const uint16_t* up, int64_t rows, int64_t cols,
                               KernelStream stream) {
  return ActivateMulInFp8<Swiglu>("ClampedSwigluInFp8", out, fp8, gate, up, rows, cols, stream);
}

cudaError_t Scale(float* x, float factor, int64_t n, KernelStream stream) {
  if (n == 0) return cudaSuccess;
  return Launch("Scale", ScaleKernel, BlocksFor(n, kThreads), kThreads, 0, stream, x, factor, n);
}

template <typename T>
cudaError_t ScaleBy(T* x, const float* factor, int64_t n, KernelStream stream) {
  if (n == 0) return cudaSuccess;
  return Launch("ScaleBy", ScaleByKernel<T>, BlocksFor(n, kThreads), kThreads, 0, stream, x, factor,
                n);
}

template cudaError_t ScaleBy(float*, const float*, int64_t, KernelStream);
template cudaError_t ScaleBy(uint16_t*, const float*, int64_t, KernelStream);
template cudaError_t ScaleBy(Half*, const float*, int64_t, KernelStream);

cudaError_t SoftCap(float* x, float cap, int64_t n, KernelStream stream) {
  if (n == 0) return cudaSuccess;
  return Launch("SoftCap", SoftCapKernel, BlocksFor(n, kThreads), kThreads, 0, stream, x, cap, n);
}

#define INSTANTIATE(T)                                                                \
  template cudaError_t SiluMul(T*, const T*, const T*, int64_t, KernelStream);        \
  template cudaError_t GeluMul(T*, const T*, const T*, int64_t, KernelStream);        \
  template cudaError_t ClampedSwiglu(T*, const T*, const T*, int64_t, KernelStream);  \
  template cudaError_t ReluSquaredMul(T*, const T*, const T*, int64_t, KernelStream); \
  template cudaError_t Multiply(T*, const T*, const T*, int64_t, KernelStream);       \
  template cudaError_t SigmoidMul(T*, const T*, const T*, int64_t, KernelStream)
INSTANTIATE(float);
INSTANTIATE(uint16_t);
INSTANTIATE(Half);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
