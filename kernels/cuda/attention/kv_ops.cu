// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/kv_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/formats/held_chunk.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/divisor.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// How a row of a head becomes bytes and a scale (docs/arithmetic.md, int8 keys and values). The
// largest magnitude becomes 127, or 448 in e4m3, whose numbers are rounded to nearest, ties to
// even. Rows of tiny numbers are zeros with scale 0; NaN or infinity makes the row zeros whose
// scale is NaN.
template <typename Element>
struct ByteRow {
  static constexpr bool kIsE4M3 = std::is_same_v<Element, uint8_t>;
  static constexpr float kLargest = kIsE4M3 ? kLargestE4M3 : 127.0f;

  // `largest` is of the row's magnitudes that are numbers; `broken` is 1 if one is not finite.
  __device__ ByteRow(float largest, float broken) {
    constexpr float kSmallestScaled = 0x1p-100f;  // below it everything is zero
    const bool is_zero = broken != 0 || largest < kSmallestScaled;
    inverse = is_zero ? 0.0f : kLargest / largest;
    scale = broken != 0 ? NAN : is_zero ? 0.0f : largest / kLargest;
  }
  // Returns two elements, the first in the low byte.
  __device__ uint16_t Pair(float first, float second) const {
    if (inverse == 0) return 0;
    if constexpr (kIsE4M3) {
      return ToE4M3Pair(first * inverse, second * inverse);
    } else {
      constexpr float kRoundShift = 0x1.8p+23f;  // adding it leaves an integer in the low bits
      const auto low = std::bit_cast<uint32_t>(first * inverse + kRoundShift);
      const auto high = std::bit_cast<uint32_t>(second * inverse + kRoundShift);
      return static_cast<uint16_t>((low & 255) | high << 8);
    }
  }

  float inverse, scale;  // inverse is 0 where all elements are
};

// Magnitudes of a row that a thread has seen.
struct Magnitudes {
  float largest = 0, broken = 0;

  __device__ void Include(float value) {
    const float size = fabsf(value);
    if (!(size < INFINITY)) broken = 1;
    largest = fmaxf(largest, size);
  }
  // Takes in those of `lanes` neighbouring lanes, a power of two.
  __device__ void IncludeLanes(int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
      largest = fmaxf(largest, ShuffleXor(largest, mask));
      broken = fmaxf(broken, ShuffleXor(broken, mask));
    }
  }
};

// One warp writes one row of a head as bytes and a scale.
template <typename Element, typename T>
__device__ void WriteBytes(Element* to, void* scale_to, const T* from, int head_dim, int lane) {
  Magnitudes all;
  for (int i = lane; i < head_dim; i += kWarp) all.Include(Widen(from[i]));
  all.IncludeLanes(kWarp);
  const ByteRow<Element> row(all.largest, all.broken);
  for (int i = lane; i < head_dim; i += kWarp) {
    to[i] = static_cast<Element>(row.Pair(Widen(from[i]), 0) & 255);
  }
  if (lane == 0) memcpy(scale_to, &row.scale, sizeof(row.scale));
}

// One warp writes a row of a head to its place in the cache.
template <typename T, typename Element>
__device__ void WriteRow(const KvLayout<Element>& kv, const T* from, int64_t slot, int64_t head,
                         int which, int lane) {
  Element* const to = kv.Row(slot, head, which);
  if constexpr (KvLayout<Element>::kHasScales) {
    WriteBytes(to, kv.Scale(slot, head, which), from, kv.head_dim, lane);
  } else {
    for (int d = lane; d < kv.head_dim; d += kWarp) Store(to + d, Widen(from[d]));
  }
}

// A warp takes a head's key or value of a row. Bound by reading and writing them.
template <typename T, typename Element>
__global__ void WriteKvKernel(KvLayout<Element> kv, const T* k, const T* v, const int32_t* slots,
                              int64_t rows) {
  WaitForPreviousKernel();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  const int64_t n = rows * kv.num_heads * 2;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       i < n; i += num_warps) {
    const int64_t row = i / 2 / kv.num_heads, head = i / 2 % kv.num_heads;
    const int which = static_cast<int>(i % 2);
    const int64_t slot = slots[row];
    WriteRow(kv, (which == 0 ? k : v) + (row * kv.num_heads + head) * kv.head_dim, slot, head,
             which, lane);
  }
}

// RmsNorm of a head of which each thread of the warp has N elements. The sum has the order of
// RmsNormKernel. Threads beyond the head have zeros.
template <typename T, int N>
__device__ void NormHead(Chunk<T, N>& chunk, const float* gain, int head_dim, float eps, int lane) {
  float sum = 0;
  CONTINUO_UNROLL
  for (int j = 0; j < N; ++j) {
    const float value = Widen(chunk.at[j]);
    sum = fmaf(value, value, sum);
  }
  for (int half = kWarp / 2; half > 0; half /= 2) sum += ShuffleXor(sum, half);
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(head_dim) + eps);
  if (lane * N >= head_dim) return;
  CONTINUO_UNROLL
  for (int j = 0; j < N; ++j) {
    Store(&chunk.at[j], Widen(chunk.at[j]) * factor * gain[lane * N + j]);
  }
}

// Rotates a thread's elements of a head, from `first` on; `head` has all elements. It reads chunks:
// pairs are a multiple of N apart, so a thread's elements are all first or all second ones, and 16
// bytes of them and of the angles are read at a time, without bank conflicts.
template <bool kInChunks, typename T, int N>
__device__ void RotateChunk(Chunk<T, N>& chunk, const float* head, const float* angles, int first,
                            int n) {
  if constexpr (kInChunks) {
    if (first >= 2 * n) return;
    const bool is_first = first < n;
    const int pair = is_first ? first : first - n, other = is_first ? first + n : first - n;
    CONTINUO_UNROLL
    for (int j = 0; j < N; j += 4) {
      const Chunk<float, 4> own = LoadChunk<4>(head + first + j);
      const Chunk<float, 4> theirs = LoadChunk<4>(head + other + j);
      const Chunk<float, 4> cosines = LoadChunk<4>(angles + pair + j);
      const Chunk<float, 4> sines = LoadChunk<4>(angles + n + pair + j);
      CONTINUO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float a = own.at[i] * cosines.at[i], b = theirs.at[i] * sines.at[i];
        Store(&chunk.at[j + i], is_first ? a - b : a + b);
      }
    }
  } else {
    CONTINUO_UNROLL
    for (int j = 0; j < N; ++j) {
      const int d = first + j;
      if (d < n) {
        Store(&chunk.at[j], head[d] * angles[d] - head[d + n] * angles[d + n]);
      } else if (d < 2 * n) {
        Store(&chunk.at[j], head[d] * angles[d - n] + head[d - n] * angles[d]);
      }
    }
  }
}

// A warp takes a query, a key or a value of a row and head. Rotated pairs meet in shared memory,
// [warps, head_dim].
template <bool kInChunks, typename T, typename Element>
__global__ void RotateAndWriteKvKernel(KvLayout<Element> kv, HeadArrays<T> heads,
                                       const int32_t* slots, int64_t rows,
                                       HeadRotationArrays rotation) {
  WaitForPreviousKernel();
  constexpr int N = kChunk<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head_dim = kv.head_dim, n = rotation.num_frequencies, first = lane * N;
  float* const head = reinterpret_cast<float*>(SharedMemory()) +
                      threadIdx.x / kWarp * static_cast<unsigned>(head_dim);
  const int per_row = heads.num_heads + 2 * kv.num_heads;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       i < rows * per_row; i += num_warps) {
    const int64_t row = i / per_row;
    const int number = static_cast<int>(i % per_row), kv_head = number - heads.num_heads;
    if (kv_head >= kv.num_heads) {
      const int value = kv_head - kv.num_heads;
      WriteRow(kv, heads.v + row * heads.kv_stride + value * head_dim, slots[row], value, 1, lane);
      continue;
    }
    const bool is_query = kv_head < 0;
    const T* const from = (is_query ? heads.q + row * heads.q_stride + number * head_dim
                                    : heads.k + row * heads.kv_stride + kv_head * head_dim) +
                          first;
    T* const to = is_query ? heads.rotated_q + (row * heads.num_heads + number) * head_dim + first
                           : const_cast<T*>(from);
    Chunk<T, N> chunk = {};
    if (first < head_dim) chunk = LoadChunk<N>(from);
    if (rotation.q_gain != nullptr) {
      NormHead(chunk, is_query ? rotation.q_gain : rotation.k_gain, head_dim, rotation.eps, lane);
    }
    if (first < head_dim) {
      CONTINUO_UNROLL
      for (int j = 0; j < N; j += 4) {
        Chunk<float, 4> wide;
        CONTINUO_UNROLL
        for (int i = 0; i < 4; ++i) wide.at[i] = Widen(chunk.at[j + i]);
        StoreChunk<4>(head + first + j, wide);
      }
    }
    SyncWarp();
    if (first < head_dim) {
      RotateChunk<kInChunks>(chunk, head, rotation.angles + row * 2 * n, first, n);
      StoreChunk<N>(to, chunk);
    }
    SyncWarp();  // `head` is filled again, and others read `to`
    if (!is_query) WriteRow(kv, to - first, slots[row], kv_head, 0, lane);
  }
}

// The numbers of a chunk of T, times gains.
template <typename T>
__device__ HeldValues<T> Scaled(HeldValues<T> values, float factor, const float* gain) {
  constexpr int N = kChunk<T>;
  CONTINUO_UNROLL
  for (int j = 0; j < N; j += 4) {
    const Chunk<float, 4> gains = LoadChunk<4>(gain + j);
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) values.at[j + i] = values.at[j + i] * factor * gains.at[i];
  }
  return HeldValues<T>(values.Rounded());
}

// Rotates N pairs of a head, the chunks of its first and its second half.
template <typename T>
__device__ void RotatePairs(HeldValues<T>& low, HeldValues<T>& high, const float* cosines,
                            const float* sines) {
  CONTINUO_UNROLL
  for (int j = 0; j < kChunk<T>; j += 4) {
    const Chunk<float, 4> cos = LoadChunk<4>(cosines + j), sin = LoadChunk<4>(sines + j);
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float a = low.at[j + i], b = high.at[j + i];
      low.at[j + i] = a * cos.at[i] - b * sin.at[i];
      high.at[j + i] = b * cos.at[i] + a * sin.at[i];
    }
  }
}

// Writes a chunk to a row of the cache, whose bytes `row` rounds.
template <typename T, typename Element>
__device__ void WriteChunk(Element* to, const HeldChunk& held,
                           [[maybe_unused]] const ByteRow<Element>& row) {
  constexpr int N = kChunk<T>;
  if constexpr (std::is_same_v<T, Element>) {
    StoreHeld(to, held);
    return;
  }
  const HeldValues<T> values(held);
  constexpr int kAtOnce = N * sizeof(Element) > 16 ? 4 : N;
  CONTINUO_UNROLL
  for (int j = 0; j < N; j += kAtOnce) {
    Chunk<Element, kAtOnce> part;
    CONTINUO_UNROLL
    for (int i = 0; i < kAtOnce; i += 2) {
      if constexpr (KvLayout<Element>::kHasScales) {
        const uint16_t pair = row.Pair(values.at[j + i], values.at[j + i + 1]);
        part.at[i] = static_cast<Element>(pair & 255);
        part.at[i + 1] = static_cast<Element>(pair >> 8);
      } else {
        Store(&part.at[i], values.at[j + i]);
        Store(&part.at[i + 1], values.at[j + i + 1]);
      }
    }
    StoreChunk<kAtOnce>(to + j, part);
  }
}

// The divisions of RotateHeadsKernel, which are known at launch.
struct HeadsGrid {
  uint32_t num_heads;  // of all rows: queries, keys and values
  Divisor per_row;     // such heads
  Divisor block_size;  // of the cache
  int log2_lanes;      // for a head
};

// Does the same for heads that are rotated as a whole. A few lanes take a query, a key or a value
// of a row and head, and each of them N pairs, so that nothing is exchanged but sums and maxima.
// Bound by memory.
template <typename T, typename Element>
__global__ void CONTINUO_BLOCK_OF(kThreads)
    RotateHeadsKernel(KvLayout<Element> kv, HeadArrays<T> heads, const int32_t* slots,
                      HeadsGrid grid, HeadRotationArrays rotation) {
  WaitForPreviousKernel();
  constexpr int N = kChunk<T>;
  const int head_dim = kv.head_dim, n = head_dim / 2, lanes = 1 << grid.log2_lanes;
  const int pair = (static_cast<int>(threadIdx.x) & (lanes - 1)) * N;
  const auto per_block = static_cast<uint32_t>(kThreads >> grid.log2_lanes);
  const auto per_row = static_cast<uint32_t>(heads.num_heads + 2 * kv.num_heads);
  for (uint32_t begin = blockIdx.x * per_block; begin < grid.num_heads;
       begin += gridDim.x * per_block) {
    const uint32_t i = begin + (threadIdx.x >> grid.log2_lanes);
    const bool is_some = i < grid.num_heads && pair < n;
    const uint32_t row = is_some ? grid.per_row.Divide(i) : 0;
    const int number = is_some ? static_cast<int>(i - row * per_row) : 0;
    const bool is_query = number < heads.num_heads;
    const bool is_value = number >= heads.num_heads + kv.num_heads;
    const int head = number - (is_query   ? 0
                               : is_value ? heads.num_heads + kv.num_heads
                                          : heads.num_heads);
    const T* const from = is_query ? heads.q + row * heads.q_stride
                                   : (is_value ? heads.v : heads.k) + row * heads.kv_stride;
    HeldChunk low = {}, high = {};
    if (is_some) {
      low = LoadHeld(from + head * head_dim + pair);
      high = LoadHeld(from + head * head_dim + pair + n);
    }
    HeldValues<T> a(low), b(high);
    if (rotation.q_gain != nullptr) {
      // The sum has the order of RmsNormKernel.
      float sum = 0, sum_high = 0;
      CONTINUO_UNROLL
      for (int j = 0; j < N; ++j) {
        sum = fmaf(a.at[j], a.at[j], sum);
        sum_high = fmaf(b.at[j], b.at[j], sum_high);
      }
      sum += sum_high;
      for (int half = lanes / 2; half > 0; half /= 2) sum += ShuffleXor(sum, half);
      const float factor = 1.0f / sqrtf(sum / static_cast<float>(head_dim) + rotation.eps);
      if (is_some && !is_value) {
        const float* const gain = (is_query ? rotation.q_gain : rotation.k_gain) + pair;
        a = Scaled<T>(a, factor, gain);
        b = Scaled<T>(b, factor, gain + n);
      }
    }
    if (is_some && !is_value) {
      const float* const cosines = rotation.angles + static_cast<int64_t>(row) * head_dim + pair;
      RotatePairs<T>(a, b, cosines, cosines + n);
      low = a.Rounded();
      high = b.Rounded();
    }
    Magnitudes all;
    if constexpr (KvLayout<Element>::kHasScales) {
      a = HeldValues<T>(low);
      b = HeldValues<T>(high);
      CONTINUO_UNROLL
      for (int j = 0; j < N; ++j) {
        all.Include(a.at[j]);
        all.Include(b.at[j]);
      }
      all.IncludeLanes(lanes);
    }
    if (!is_some) continue;
    if (is_query) {
      T* const to =
          heads.rotated_q + (static_cast<int64_t>(row) * heads.num_heads + head) * head_dim + pair;
      StoreHeld(to, low);
      StoreHeld(to + n, high);
      continue;
    }
    const auto slot = static_cast<uint32_t>(slots[row]);
    const uint32_t block = grid.block_size.Divide(slot);
    const auto offset = static_cast<int>(slot - block * static_cast<uint32_t>(kv.block_size));
    Element* const to = kv.Rows(block, head, is_value ? 1 : 0);
    const ByteRow<Element> row_of_bytes(all.largest, all.broken);
    WriteChunk<T>(to + offset * head_dim + pair, low, row_of_bytes);
    WriteChunk<T>(to + offset * head_dim + pair + n, high, row_of_bytes);
    if constexpr (KvLayout<Element>::kHasScales) {
      if (pair == 0) {
        StoreChunk<4>(to + kv.block_size * head_dim + offset * 4,
                      std::bit_cast<Chunk<Element, 4>>(row_of_bytes.scale));
      }
    }
  }
}

// A thread takes the same words of all pairs, so that pairs are copied in order.
__global__ void CopyKvBlocksKernel(uint32_t* cache, int64_t block_words, const int32_t* pairs,
                                   int64_t num_pairs) {
  WaitForPreviousKernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < block_words;
       i += step) {
    for (int64_t p = 0; p < num_pairs; ++p) {
      cache[pairs[2 * p + 1] * block_words + i] = cache[pairs[2 * p] * block_words + i];
    }
  }
}

}  // namespace

template <typename T, typename Element>
cudaError_t WriteKv(const KvLayout<Element>& kv, const T* k, const T* v, const int32_t* slots,
                    int64_t rows, KernelStream stream) {
  const int64_t n = rows * kv.num_heads * 2;
  if (n == 0 || kv.head_dim == 0) return cudaSuccess;
  return Launch("WriteKv", WriteKvKernel<T, Element>, BlocksFor(n, kThreads / kWarp), kThreads, 0,
                stream, kv, k, v, slots, rows);
}

namespace {

// Returns whether RotateHeadsKernel takes such heads. Sums over them have the order of RmsNorm
// where lanes are a power of two.
template <typename T, typename Element>
bool TakesHeads(const KvLayout<Element>& kv, const HeadArrays<T>& heads, int64_t rows,
                const HeadRotationArrays& rotation) {
  constexpr int64_t N = kChunk<T>;
  const auto in_chunks = [](int64_t elements) { return elements % N == 0; };
  const int64_t lanes = rotation.num_frequencies / N;
  const int64_t stored = std::min<int64_t>(16, N * static_cast<int64_t>(sizeof(Element)));
  return kv.head_dim == 2 * rotation.num_frequencies && in_chunks(rotation.num_frequencies) &&
         lanes <= kWarp &&
         (rotation.q_gain == nullptr ||
          (std::has_single_bit(static_cast<uint64_t>(lanes)) && IsAligned(rotation.q_gain) &&
           IsAligned(rotation.k_gain))) &&
         in_chunks(heads.q_stride) && in_chunks(heads.kv_stride) && IsAligned(heads.q) &&
         IsAligned(heads.rotated_q) && IsAligned(heads.k) && IsAligned(heads.v) &&
         IsAligned(rotation.angles) && IsAligned(kv.cache) &&
         kv.HalfBlock() * static_cast<int64_t>(sizeof(Element)) % stored == 0 &&
         rows * (heads.num_heads + 2 * kv.num_heads) < int64_t{1} << 31;
}

}  // namespace

template <typename T, typename Element>
cudaError_t RotateAndWriteKv(const KvLayout<Element>& kv, const HeadArrays<T>& heads,
                             const int32_t* slots, int64_t rows, const HeadRotationArrays& rotation,
                             KernelStream stream) {
  const int64_t per_row = heads.num_heads + 2 * kv.num_heads, n = rows * per_row;
  if (n == 0 || kv.head_dim == 0) return cudaSuccess;
  if (TakesHeads(kv, heads, rows, rotation)) {
    const auto lanes = static_cast<unsigned>(rotation.num_frequencies / kChunk<T>);
    const int log2_lanes = std::bit_width(lanes - 1);
    const HeadsGrid grid = {.num_heads = static_cast<uint32_t>(n),
                            .per_row = Divisor::Of(static_cast<uint32_t>(per_row)),
                            .block_size = Divisor::Of(static_cast<uint32_t>(kv.block_size)),
                            .log2_lanes = log2_lanes};
    return Launch("RotateAndWriteKv", RotateHeadsKernel<T, Element>,
                  BlocksFor(n, kThreads >> log2_lanes), kThreads, 0, stream, kv, heads, slots, grid,
                  rotation);
  }
  const size_t shared = kThreads / kWarp * static_cast<size_t>(kv.head_dim) * sizeof(float);
  const bool in_chunks = rotation.num_frequencies % kChunk<T> == 0 && IsAligned(rotation.angles);
  const auto kernel = in_chunks ? RotateAndWriteKvKernel<true, T, Element>
                                : RotateAndWriteKvKernel<false, T, Element>;
  return Launch("RotateAndWriteKv", kernel, BlocksFor(n, kThreads / kWarp), kThreads, shared,
                stream, kv, heads, slots, rows, rotation);
}

cudaError_t CopyKvBlocks(void* cache, int64_t block_bytes, const int32_t* pairs, int64_t num_pairs,
                         KernelStream stream) {
  const int64_t words = block_bytes / static_cast<int64_t>(sizeof(uint32_t));
  if (words == 0 || num_pairs == 0) return cudaSuccess;
  return Launch("CopyKvBlocks", CopyKvBlocksKernel, BlocksFor(words, kThreads), kThreads, 0, stream,
                static_cast<uint32_t*>(cache), words, pairs, num_pairs);
}

#define INSTANTIATE(T, Element)                                                              \
  template cudaError_t WriteKv(const KvLayout<Element>&, const T*, const T*, const int32_t*, \
                               int64_t, KernelStream);                                       \
  template cudaError_t RotateAndWriteKv(const KvLayout<Element>&, const HeadArrays<T>&,      \
                                        const int32_t*, int64_t, const HeadRotationArrays&,  \
                                        KernelStream)
CONTINUO_KV_TYPES(INSTANTIATE);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
