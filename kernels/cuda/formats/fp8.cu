// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/formats/fp8.h"

#include <algorithm>

#include "kernels/cuda/formats/fp8_row.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// One block per row finds the largest magnitude, then rounds the row, which its threads have kept.
// Bound by reading the row.
__global__ void CONTINUO_BLOCK_OF(kMostRowThreads)
    QuantiseHeldRowsKernel(Fp8Rows out, const uint16_t* x, int64_t rows, int k) {
  WaitForPreviousKernel();
  const int step = static_cast<int>(blockDim.x) * 8;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const uint16_t* const from = x + row * k;
    HeldChunk held[kMostHeldChunks];
    CONTINUO_UNROLL
    for (int j = 0; j < kMostHeldChunks; ++j) {
      const int i = j * step + static_cast<int>(threadIdx.x) * 8;
      held[j] = i < k ? LoadHeld(from + i) : HeldChunk{};
    }
    uint32_t largest = 0;
    CONTINUO_UNROLL
    for (int j = 0; j < kMostHeldChunks; ++j) Include(largest, held[j]);
    StoreHeldRowInFp8(out, row, held, k, largest, reinterpret_cast<float*>(SharedMemory()));
  }
}

// The same for rows that are longer or not aligned, which it reads again from a cache.
__global__ void QuantiseRowsKernel(Fp8Rows out, const uint16_t* x, int64_t rows, int64_t k) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const uint16_t* const from = x + row * k;
    uint32_t largest = 0;
    for (int64_t i = threadIdx.x; i < k; i += blockDim.x) Include(largest, from[i]);
    StoreRowInFp8<1>(out, row, from, k, largest, reinterpret_cast<float*>(SharedMemory()));
  }
}

// A block takes N · kThreads neighbouring elements of a row. Bound by reading sums and writing out.
template <typename T, int N>
__global__ void ScaleRowsKernel(T* out, const float* sum, int64_t stride, const float* x_scales,
                                const float* w_scales, const float* bias, int64_t rows,
                                int64_t cols) {
  WaitForPreviousKernel();
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

cudaError_t QuantiseRows(const Fp8Rows& out, const uint16_t* x, int64_t rows, int64_t k,
                         KernelStream stream) {
  if (rows == 0 || k == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 20));
  const int threads = RowThreadsFor(rows, k);
  const auto shared = static_cast<size_t>(ExtentFloats(threads)) * sizeof(float);
  if (HoldsRow(k, threads) && IsAligned(x) && IsAligned(out.numbers)) {
    return Launch("QuantiseRows", QuantiseHeldRowsKernel, blocks, threads, shared, stream, out, x,
                  rows, k);
  }
  return Launch("QuantiseRows", QuantiseRowsKernel, blocks, threads, shared, stream, out, x, rows,
                k);
}

template <typename T>
cudaError_t ScaleRows(T* out, const float* sum, int64_t stride, const float* x_scales,
                      const float* w_scales, const float* bias, int64_t rows, int64_t cols,
                      KernelStream stream) {
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
                               const float*, int64_t, int64_t, KernelStream);
template cudaError_t ScaleRows(uint16_t*, const float*, int64_t, const float*, const float*,
                               const float*, int64_t, int64_t, KernelStream);

}  // namespace continuo::kernels::cuda
