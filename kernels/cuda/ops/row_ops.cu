// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/ops/row_ops.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/formats/fp8_row.h"
#include "kernels/cuda/formats/held_chunk.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

// Returns the number of blocks, each of which loops over rows.
unsigned RowBlocks(int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 20));
}

// One block per row. Bound by reading and writing it.
template <typename T, typename W>
__global__ void EmbedKernel(T* out, const W* table, const int32_t* ids, int64_t rows, int64_t cols,
                            int64_t table_rows, int first_id, float scale) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t id = static_cast<int64_t>(ids[row]) - first_id;
    const bool mine = id >= 0 && id < table_rows;
    for (int64_t i = threadIdx.x; i < cols; i += kRowThreads) {
      Store(out + row * cols + i, mine ? Widen(table[id * cols + i]) * scale : -0.0f);
    }
  }
}

// One block per row.
template <bool kFour, typename T>
__global__ void EmbedQuantisedKernel(T* out,
                                     const CONTINUO_READ_IN_PLACE QuantisedMatrix<kFour> table,
                                     const int32_t* ids, int64_t rows, int64_t table_rows,
                                     int first_id, float scale) {
  WaitForPreviousKernel();
  const int64_t cols = table.groups.k();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t id = static_cast<int64_t>(ids[row]) - first_id;
    const bool mine = id >= 0 && id < table_rows;
    for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) {
      Store(out + row * cols + i, mine ? table.ValueOf(id, i) * scale : -0.0f);
    }
  }
}

// N floats that go with a chunk of a row, loaded 16 bytes at a time where possible.
template <int N>
struct Floats {
  float at[N];
};
template <int N>
__device__ Floats<N> LoadFloats(const float* from) {
  constexpr int kAtOnce = N < 4 ? N : 4;
  Floats<N> all;
  CONTINUO_UNROLL
  for (int i = 0; i < N; i += kAtOnce) {
    const Chunk<float, kAtOnce> chunk = LoadChunk<kAtOnce>(from + i);
    CONTINUO_UNROLL
    for (int j = 0; j < kAtOnce; ++j) all.at[i + j] = chunk.at[j];
  }
  return all;
}

// x += round(sum + bias) for a chunk of a row. bias may be null.
template <typename T, int N>
__device__ void AddTo(Chunk<T, N>& x, const float* sum, const float* bias) {
  Floats<N> addends = LoadFloats<N>(sum);
  if (bias != nullptr) {
    const Floats<N> biases = LoadFloats<N>(bias);
    CONTINUO_UNROLL
    for (int j = 0; j < N; ++j) addends.at[j] += biases.at[j];
  }
  CONTINUO_UNROLL
  for (int j = 0; j < N; ++j) {
    T addend;
    Store(&addend, addends.at[j]);
    Store(&x.at[j], Widen(x.at[j]) + Widen(addend));
  }
}

template <typename T, int N>
__device__ float AddSquares(float sum, const Chunk<T, N>& chunk) {
  CONTINUO_UNROLL
  for (int j = 0; j < N; ++j) {
    const float value = Widen(chunk.at[j]);
    sum = fmaf(value, value, sum);
  }
  return sum;
}

// Adds the threads' sums in a tree: the lanes of a warp first. All threads get the result.
__device__ inline float SumOfBlock(float sum) {
  constexpr int kWarps = kRowThreads / kWarp;
  float* const sums = reinterpret_cast<float*>(SharedMemory());  // [kWarps]
  const int thread = static_cast<int>(threadIdx.x);
  for (int half = kWarp / 2; half > 0; half /= 2) sum += ShuffleXor(sum, half);
  if (thread % kWarp == 0) sums[thread / kWarp] = sum;
  SyncBlock();
  sum = sums[thread % kWarps];
  for (int half = kWarps / 2; half > 0; half /= 2) sum += ShuffleXor(sum, half);
  SyncBlock();  // before sums is filled again
  return sum;
}

// Returns the factor of a row's norm from its threads' sums of squares.
__device__ inline float NormFactor(float sum, int64_t cols, float eps) {
  return 1.0f / sqrtf(SumOfBlock(sum) / static_cast<float>(cols) + eps);
}

// Returns the largest magnitude of bf16 numbers that the thread has written.
template <typename T, int N>
__device__ uint32_t ScaleRow(T* out, const T* x, const float* gain, int64_t cols, float factor) {
  uint32_t largest = 0;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < cols; i += kRowThreads * N) {
    const Chunk<T, N> chunk = LoadChunk<N>(x + i);
    const Floats<N> gains = LoadFloats<N>(gain + i);
    Chunk<T, N> result;
    CONTINUO_UNROLL
    for (int j = 0; j < N; ++j) {
      Store(&result.at[j], Widen(chunk.at[j]) * factor * gains.at[j]);
      if constexpr (std::is_same_v<T, uint16_t>) Include(largest, result.at[j]);
    }
    StoreChunk<N>(out + i, result);
  }
  return largest;
}

// One block per row sums squares, then passes over x again, which is still in the L2 cache. Bound
// by one read and one write of memory. N: elements of a chunk.
template <typename T, int N>
__global__ void RmsNormKernel(T* out, const T* x, const float* gain, int64_t rows, int64_t cols,
                              float eps) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from = x + row * cols;
    float sum = 0;
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < cols; i += kRowThreads * N) {
      sum = AddSquares(sum, LoadChunk<N>(from + i));
    }
    ScaleRow<T, N>(out + row * cols, from, gain, cols, NormFactor(sum, cols, eps));
  }
}

// One block per row sums elements, then squares of their distances from the mean, then writes the
// row; the second and third pass read from a cache.
template <typename T>
__global__ void LayerNormKernel(T* out, const T* x, const float* gain, const float* bias,
                                int64_t rows, int64_t cols, float eps) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from = x + row * cols;
    float sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < cols; i += kRowThreads) sum += Widen(from[i]);
    const float mean = SumOfBlock(sum) / static_cast<float>(cols);
    for (int64_t i = threadIdx.x; i < cols; i += kRowThreads) {
      const float centred = Widen(from[i]) - mean;
      squares = fmaf(centred, centred, squares);
    }
    const float factor = NormFactor(squares, cols, eps);
    for (int64_t i = threadIdx.x; i < cols; i += kRowThreads) {
      const float value = (Widen(from[i]) - mean) * factor * gain[i];
      Store(out + row * cols + i, bias == nullptr ? value : value + bias[i]);
    }
  }
}

// One warp per group.
template <typename T>
__global__ void SumSquaresKernel(float* out, const T* x, int64_t rows, int64_t cols, int64_t groups,
                                 int64_t width) {
  WaitForPreviousKernel();
  constexpr int kWarps = kRowThreads / kWarp;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + thread / kWarp; i < rows * groups;
       i += static_cast<int64_t>(gridDim.x) * kWarps) {
    const T* const from = x + i / groups * cols + i % groups * width;
    float sum = 0;
    for (int64_t j = lane; j < width; j += kWarp) {
      const float value = Widen(from[j]);
      sum = fmaf(value, value, sum);
    }
    for (int half = kWarp / 2; half > 0; half /= 2) sum += ShuffleXor(sum, half);
    if (lane == 0) out[i] = sum;
  }
}

// One block per row, whose threads all add the few squares. A group has `sharing` heads, whose
// first is first_head where the rows begin, of `width` elements each.
template <typename T>
__global__ void RmsNormBySquaresKernel(T* x, const float* squares, const float* gain, int64_t rows,
                                       int64_t cols, int64_t heads, int64_t sharing,
                                       int64_t first_head, int64_t width, float eps) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const to = x + row * cols;
    int64_t group = first_head / sharing;
    for (int64_t begin = 0, end = 0; begin < cols; begin = end, ++group) {
      end = ((group + 1) * sharing - first_head) * width;
      end = end < cols ? end : cols;
      float sum = 0;
      for (int64_t i = 0; i < sharing; ++i) sum += squares[row * heads + group * sharing + i];
      const float factor = 1.0f / sqrtf(sum / static_cast<float>(sharing * width) + eps);
      ScaleRow<T, 1>(to + begin, to + begin, gain + begin, end - begin, factor);
    }
  }
}

// The same as RmsNormKernel for x += sum, whose chunks the threads write themselves before they
// read them again. It also rounds out to e4m3 where `fp8` has memory.
template <typename T, int N>
__global__ void AddSumNormKernel(T* out, Fp8Rows fp8, T* x, const float* sum, const float* bias,
                                 const float* gain, int64_t rows, int64_t cols, float eps) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const to = x + row * cols;
    float squares = 0;
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < cols; i += kRowThreads * N) {
      Chunk<T, N> chunk = LoadChunk<N>(to + i);
      AddTo(chunk, sum + row * cols + i, bias == nullptr ? nullptr : bias + i);
      StoreChunk<N>(to + i, chunk);
      squares = AddSquares(squares, chunk);
    }
    T* const scaled = out + row * cols;
    const uint32_t largest = ScaleRow<T, N>(scaled, to, gain, cols, NormFactor(squares, cols, eps));
    if constexpr (std::is_same_v<T, uint16_t>) {
      if (fp8.numbers == nullptr) continue;
      StoreRowInFp8<N>(fp8, row, scaled, cols, largest, reinterpret_cast<float*>(SharedMemory()));
    }
  }
}

// The same for rows that stay in registers, up to kHeld chunks of a thread. It prefetches the
// gains before it waits, since no kernel writes them.
template <typename T, int kHeld>
__global__ void CONTINUO_BLOCK_OF(kRowThreads)
    AddSumNormHeldKernel(T* out, Fp8Rows fp8, T* x, const float* sum, const float* bias,
                         const float* gain, int64_t rows, int cols, float eps) {
  constexpr int N = kChunk<T>, kStep = kRowThreads * N;
  const int first = static_cast<int>(threadIdx.x) * N;
  CONTINUO_UNROLL
  for (int j = 0; j < kHeld; ++j) {
    if (first + j * kStep < cols) Prefetch(gain + first + j * kStep);
  }
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const to = x + row * cols + first;
    const float* const from = sum + row * cols + first;
    HeldChunk held[kHeld];
    Floats<N> sums[kHeld];
    CONTINUO_UNROLL
    for (int j = 0; j < kHeld; ++j) {
      held[j] = {};
      sums[j] = {};
      if (first + j * kStep >= cols) continue;
      held[j] = LoadHeld(to + j * kStep);
      sums[j] = LoadFloats<N>(from + j * kStep);
    }
    float squares = 0;
    CONTINUO_UNROLL
    for (int j = 0; j < kHeld; ++j) {
      const int i = first + j * kStep;
      if (i >= cols) continue;
      Floats<N>& addends = sums[j];
      if (bias != nullptr) {
        const Floats<N> biases = LoadFloats<N>(bias + i);
        CONTINUO_UNROLL
        for (int e = 0; e < N; ++e) addends.at[e] += biases.at[e];
      }
      const HeldChunk rounded = HeldValues<T>(addends.at).Rounded();
      held[j] = (HeldValues<T>(held[j]) + HeldValues<T>(rounded)).Rounded();
      StoreHeld(to + j * kStep, held[j]);
      const HeldValues<T> values(held[j]);
      CONTINUO_UNROLL
      for (int e = 0; e < N; ++e) squares = fmaf(values.at[e], values.at[e], squares);
    }
    const float factor = NormFactor(squares, cols, eps);
    uint32_t largest = 0;
    CONTINUO_UNROLL
    for (int j = 0; j < kHeld; ++j) {
      const int i = first + j * kStep;
      if (i >= cols) continue;
      const Floats<N> gains = LoadFloats<N>(gain + i);
      HeldValues<T> values(held[j]);
      CONTINUO_UNROLL
      for (int e = 0; e < N; ++e) values.at[e] = values.at[e] * factor * gains.at[e];
      held[j] = values.Rounded();
      StoreHeld(out + row * cols + i, held[j]);
      if constexpr (std::is_same_v<T, uint16_t>) Include(largest, held[j]);
    }
    if constexpr (std::is_same_v<T, uint16_t>) {
      if (fp8.numbers == nullptr) continue;
      StoreHeldRowInFp8(fp8, row, held, cols, largest, reinterpret_cast<float*>(SharedMemory()));
    }
  }
}

// A thread computes a chunk of a row. Bound by reading sum and x and writing x.
template <typename T, int N>
__global__ void AddSumKernel(T* x, const float* sum, const float* bias, int64_t n, int64_t cols) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowThreads * N;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x) * N; i < n;
       i += step) {
    Chunk<T, N> values = LoadChunk<N>(x + i);
    AddTo(values, sum + i, bias == nullptr ? nullptr : bias + i % cols);
    StoreChunk<N>(x + i, values);
  }
}

template <typename T>
__global__ void AddBiasKernel(T* out, const float* sum, int64_t stride, const float* bias,
                              int64_t n, int64_t cols) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x; i < n; i += step) {
    const float value = stride == cols ? sum[i] : sum[i / cols * stride + i % cols];
    Store(out + i, bias == nullptr ? value : value + bias[i % cols]);
  }
}

template <typename T>
__global__ void GatherRowsKernel(T* out, const T* x, const int32_t* rows, int64_t n, int64_t cols) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    for (int64_t i = threadIdx.x; i < cols; i += kRowThreads) {
      out[row * cols + i] = x[rows[row] * cols + i];
    }
  }
}

// One block per row; threads take neighbouring elements. Bound by memory.
template <typename T>
__global__ void CopyHeadsKernel(T* out, const T* x, int64_t rows, int64_t out_cols, int64_t x_cols,
                                HeadPlaces places) {
  WaitForPreviousKernel();
  const int count = places.count, n = places.num_heads * count;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const to = out + row * out_cols + places.out_begin;
    const T* const from = x + row * x_cols + places.x_begin;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kRowThreads) {
      const int head = i / count, element = i - head * count;
      to[head * places.out_stride + element] = from[head * places.x_stride + element];
    }
  }
}

__global__ void ToFloatsKernel(float* out, const uint16_t* x, int64_t n) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x; i < n; i += step) {
    out[i] = Widen(x[i]);
  }
}

}  // namespace

template <typename T, typename W>
cudaError_t Embed(T* out, const W* table, const int32_t* ids, int64_t rows, int64_t cols,
                  int64_t table_rows, int first_id, float scale, KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return Launch("Embed", EmbedKernel<T, W>, RowBlocks(rows), kRowThreads, 0, stream, out, table,
                ids, rows, cols, table_rows, first_id, scale);
}

template <bool kFour, typename T>
cudaError_t EmbedQuantised(T* out, const QuantisedMatrix<kFour>& table, const int32_t* ids,
                           int64_t rows, int64_t table_rows, int first_id, float scale,
                           KernelStream stream) {
  return Launch("EmbedQuantised", EmbedQuantisedKernel<kFour, T>, RowBlocks(rows), kRowThreads, 0,
                stream, out, table, ids, rows, table_rows, first_id, scale);
}

template <typename T>
cudaError_t RmsNorm(T* out, const T* x, const float* gain, int64_t rows, int64_t cols, float eps,
                    KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  const bool in_chunks = cols % kChunk<T> == 0 && IsAligned(x) && IsAligned(out) && IsAligned(gain);
  return Launch("RmsNorm", in_chunks ? RmsNormKernel<T, kChunk<T>> : RmsNormKernel<T, 1>,
                RowBlocks(rows), kRowThreads, kRowThreads / kWarp * sizeof(float), stream, out, x,
                gain, rows, cols, eps);
}

template <typename T>
cudaError_t LayerNorm(T* out, const T* x, const float* gain, const float* bias, int64_t rows,
                      int64_t cols, float eps, KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return Launch("LayerNorm", LayerNormKernel<T>, RowBlocks(rows), kRowThreads,
                kRowThreads / kWarp * sizeof(float), stream, out, x, gain, bias, rows, cols, eps);
}

template <typename T>
cudaError_t SumSquares(float* out, const T* x, int64_t rows, int64_t cols, int64_t groups,
                       int64_t width, KernelStream stream) {
  if (rows * groups == 0) return cudaSuccess;
  return Launch("SumSquares", SumSquaresKernel<T>, BlocksFor(rows * groups, kRowThreads / kWarp),
                kRowThreads, 0, stream, out, x, rows, cols, groups, width);
}

template <typename T>
cudaError_t RmsNormBySquares(T* x, const float* squares, const float* gain, int64_t rows,
                             int64_t cols, int64_t heads, int64_t count, float eps,
                             const NormGroups& groups, KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return Launch("RmsNormBySquares", RmsNormBySquaresKernel<T>, RowBlocks(rows), kRowThreads, 0,
                stream, x, squares, gain, rows, cols, heads, heads / groups.num_groups,
                groups.first_head, count / heads, eps);
}

template <typename T>
cudaError_t AddSum(T* x, const float* sum, const float* bias, int64_t rows, int64_t cols,
                   KernelStream stream) {
  const int64_t n = rows * cols;
  if (n == 0) return cudaSuccess;
  const bool in_chunks = cols % kChunk<T> == 0 && IsAligned(x) && IsAligned(sum) && IsAligned(bias);
  return Launch("AddSum", in_chunks ? AddSumKernel<T, kChunk<T>> : AddSumKernel<T, 1>,
                BlocksFor(n / (in_chunks ? kChunk<T> : 1), kRowThreads), kRowThreads, 0, stream, x,
                sum, bias, n, cols);
}

template <typename T>
cudaError_t AddSumNorm(T* out, const Fp8Rows& fp8, T* x, const float* sum, const float* bias,
                       const float* gain, int64_t rows, int64_t cols, float eps,
                       KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  const bool in_chunks = cols % kChunk<T> == 0 && IsAligned(x) && IsAligned(out) &&
                         IsAligned(sum) && IsAligned(bias) && IsAligned(gain) &&
                         IsAligned(fp8.numbers);
  constexpr size_t kShared = kRowThreads / kWarp * sizeof(float);
  static_assert(ExtentFloats(kRowThreads) * sizeof(float) <= kShared);
  // A row in e4m3 may be filled up with a chunk.
  const int64_t chunks = (fp8.numbers == nullptr ? cols : Fp8Layout::Padded(cols)) / kChunk<T>;
  if (in_chunks && chunks <= 4 * kRowThreads) {
    const bool short_rows = chunks <= 2 * kRowThreads;
    return Launch("AddSumNorm",
                  short_rows ? AddSumNormHeldKernel<T, 2> : AddSumNormHeldKernel<T, 4>,
                  RowBlocks(rows), kRowThreads, kShared, stream, out, fp8, x, sum, bias, gain, rows,
                  cols, eps);
  }
  return Launch("AddSumNorm", in_chunks ? AddSumNormKernel<T, kChunk<T>> : AddSumNormKernel<T, 1>,
                RowBlocks(rows), kRowThreads, kShared, stream, out, fp8, x, sum, bias, gain, rows,
                cols, eps);
}

template <typename T>
cudaError_t AddBias(T* out, const float* sum, int64_t stride, const float* bias, int64_t rows,
                    int64_t cols, KernelStream stream) {
  const int64_t n = rows * cols;
  if (n == 0) return cudaSuccess;
  return Launch("AddBias", AddBiasKernel<T>, BlocksFor(n, kRowThreads), kRowThreads, 0, stream, out,
                sum, stride, bias, n, cols);
}

template <typename T>
cudaError_t GatherRows(T* out, const T* x, const int32_t* rows, int64_t n, int64_t cols,
                       KernelStream stream) {
  if (n == 0 || cols == 0) return cudaSuccess;
  return Launch("GatherRows", GatherRowsKernel<T>, RowBlocks(n), kRowThreads, 0, stream, out, x,
                rows, n, cols);
}

template <typename T>
cudaError_t CopyHeads(T* out, const T* x, int64_t rows, int64_t out_cols, int64_t x_cols,
                      const HeadPlaces& places, KernelStream stream) {
  return Launch("CopyHeads", CopyHeadsKernel<T>, RowBlocks(rows), kRowThreads, 0, stream, out, x,
                rows, out_cols, x_cols, places);
}

cudaError_t ToFloats(float* out, const uint16_t* x, int64_t n, KernelStream stream) {
  if (n == 0) return cudaSuccess;
  return Launch("ToFloats", ToFloatsKernel, BlocksFor(n, kRowThreads), kRowThreads, 0, stream, out,
                x, n);
}

#define INSTANTIATE(T)                                                                             \
  template cudaError_t RmsNorm(T*, const T*, const float*, int64_t, int64_t, float, KernelStream); \
  template cudaError_t LayerNorm(T*, const T*, const float*, const float*, int64_t, int64_t,       \
                                 float, KernelStream);                                             \
  template cudaError_t SumSquares(float*, const T*, int64_t, int64_t, int64_t, int64_t,            \
                                  KernelStream);                                                   \
  template cudaError_t RmsNormBySquares(T*, const float*, const float*, int64_t, int64_t, int64_t, \
                                        int64_t, float, const NormGroups&, KernelStream);          \
  template cudaError_t AddSum(T*, const float*, const float*, int64_t, int64_t, KernelStream);     \
  template cudaError_t AddSumNorm(T*, const Fp8Rows&, T*, const float*, const float*,              \
                                  const float*, int64_t, int64_t, float, KernelStream);            \
  template cudaError_t AddBias(T*, const float*, int64_t, const float*, int64_t, int64_t,          \
                               KernelStream);                                                      \
  template cudaError_t GatherRows(T*, const T*, const int32_t*, int64_t, int64_t, KernelStream);   \
  template cudaError_t CopyHeads(T*, const T*, int64_t, int64_t, int64_t, const HeadPlaces&,       \
                                 KernelStream)
INSTANTIATE(float);
INSTANTIATE(uint16_t);
INSTANTIATE(Half);
#undef INSTANTIATE

#define INSTANTIATE(T, W)                                                                         \
  template cudaError_t Embed(T*, const W*, const int32_t*, int64_t, int64_t, int64_t, int, float, \
                             KernelStream)
INSTANTIATE(float, float);
INSTANTIATE(float, uint16_t);
INSTANTIATE(uint16_t, float);
INSTANTIATE(uint16_t, uint16_t);
INSTANTIATE(float, Half);
INSTANTIATE(Half, Half);
#undef INSTANTIATE

#define INSTANTIATE(kFour, T)                                                                     \
  template cudaError_t EmbedQuantised(T*, const QuantisedMatrix<kFour>&, const int32_t*, int64_t, \
                                      int64_t, int, float, KernelStream);
INSTANTIATE(false, float)
INSTANTIATE(false, uint16_t)
INSTANTIATE(true, float)
INSTANTIATE(true, uint16_t)
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
