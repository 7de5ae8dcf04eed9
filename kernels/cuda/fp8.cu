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
  BeginGrid();
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

// A block takes N · kThreads neighbouring elements of a row; bound by reading sums and writing out.
template <typename T, int N>
__global__ void ScaleRowsKernel(T* out, const float* sum, int64_t stride, const float* x_scales,
                                const float* w_scales, const float* bias, int64_t rows,
                                int64_t cols) {
  BeginGrid();
  const int64_t parts = (cols + N * kThreads - 1) / (N * kThreads);
  for (int64_t block = blockIdx.x; block < rows * parts; block += gridDim.x) {
    const int64_t row = block / parts;
    const int64_t i = (block % parts * kThreads + threadIdx.x) * N;
    if (i >= cols) continue;
    const float x_scale = x_scales[row];
    const Chunk<float, N> sums = LoadChunk<N>(sum + row * stride + i);
    const Chunk<float, N> scales = LoadChunk<N>(w_scales + i);
    Chunk<T, N> results;
    CONTINUO_UNROLL
    for (int j = 0; j < N; ++j) {
      const float value = sums.at[j] * scales.at[j] * x_scale;
      Store(&results.at[j], bias == nullptr ? value : value + bias[i + j]);
    }
    StoreChunk<N>(out + row * cols + i, results);
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

template <typename T>
cudaError_t ScaleRows(T* out, const float* sum, int64_t stride, const float* x_scales,
                      const float* w_scales, const float* bias, int64_t rows, int64_t cols,
                      cudaStream_t stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  constexpr int kN = kChunk<float>;
  const bool in_chunks =
      cols % kN == 0 && stride % kN == 0 && IsAligned(out) && IsAligned(sum) && IsAligned(w_scales);
  const int64_t elements = (in_chunks ? kN : 1) * kThreads;
  return Launch("ScaleRows", in_chunks ? ScaleRowsKernel<T, kN> : ScaleRowsKernel<T, 1>,
                BlocksFor(rows * ((cols + elements - 1) / elements), 1), kThreads, 0, stream, out,
                sum, stride, x_scales, w_scales, bias, rows, cols);
}

template cudaError_t ScaleRows(float*, const float*, int64_t, const float*, const float*,
                               const float*, int64_t, int64_t, cudaStream_t);
template cudaError_t ScaleRows(uint16_t*, const float*, int64_t, const float*, const float*,
                               const float*, int64_t, int64_t, cudaStream_t);

}  // namespace continuo::cuda
