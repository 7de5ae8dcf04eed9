// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/fp8.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/chunk.h"
#include "kernels/cuda/launch.h"

namespace continuo::cuda {
namespace {

constexpr int kThreads = 256;

// A block a row, N elements of it a thread at a time: the largest size, then the numbers, when the
// row still is in a cache. Bound by reading it.
template <int N>
__global__ void QuantiseRowsKernel(uint8_t* out, float* scales, const uint16_t* x, int64_t rows,
                                   int64_t k) {
  auto* const largest = reinterpret_cast<float*>(SharedMemory());  // [kThreads]
  float* const strange = largest + kThreads;                       // [kThreads]
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t padded = Fp8Layout::Padded(k);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const uint16_t* const from = x + row * k;
    float most = 0, odd = 0;
    for (int64_t i = static_cast<int64_t>(thread) * N; i < k; i += kThreads * N) {
      const Chunk<uint16_t, N> chunk = LoadChunk<N>(from + i);
      CONTINUO_UNROLL
      for (int j = 0; j < N; ++j) {
        const float value = Widen(chunk.at[j]);
        most = fmaxf(most, fabsf(value));
        odd += value - value;
      }
    }
    largest[thread] = most;
    strange[thread] = odd;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      SyncBlock();
      if (thread < half) {
        largest[thread] = fmaxf(largest[thread], largest[thread + half]);
        strange[thread] += strange[thread + half];
      }
    }
    SyncBlock();
    const Fp8Scale scale = Fp8ScaleOf(largest[0], strange[0]);
    if (thread == 0) scales[row] = scale.scale;
    for (int64_t i = static_cast<int64_t>(thread) * N; i < padded; i += kThreads * N) {
      Chunk<uint16_t, N> chunk = {};
      if (i < k) chunk = LoadChunk<N>(from + i);
      Chunk<uint8_t, N> numbers;
      CONTINUO_UNROLL
      for (int j = 0; j < N; ++j) {
        numbers.at[j] = i < k ? ToE4M3(Widen(chunk.at[j]) * scale.factor) : uint8_t{0};
      }
      StoreChunk<N>(out + row * padded + i, numbers);
    }
    SyncBlock();  // before the sums are filled again
  }
}

}  // namespace

cudaError_t QuantiseRows(uint8_t* out, float* scales, const uint16_t* x, int64_t rows, int64_t k,
                         cudaStream_t stream) {
  if (rows == 0 || k == 0) return cudaSuccess;
  const bool in_chunks = k % 8 == 0 && IsAligned(x) && IsAligned(out);
  return Launch("QuantiseRows", in_chunks ? QuantiseRowsKernel<8> : QuantiseRowsKernel<1>,
                static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 20)), kThreads,
                2 * kThreads * sizeof(float), stream, out, scales, x, rows, k);
}

}  // namespace continuo::cuda
