// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/kv_ops.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// One warp writes one row of a head as bytes and a scale (docs/arithmetic.md, int8 keys and
// values). The largest magnitude becomes 127, or 448 in e4m3, whose numbers are rounded to nearest,
// ties to even. Rows of tiny numbers are zeros with scale 0; NaN or infinity makes the row zeros
// whose scale is NaN.
template <typename Element, typename T>
__device__ void WriteBytes(Element* to, void* scale_to, const T* from, int head_dim, int lane) {
  constexpr bool kIsE4M3 = std::is_same_v<Element, uint8_t>;
  constexpr float kLargest = kIsE4M3 ? kLargestE4M3 : 127.0f;
  constexpr float kSmallestScaled = 0x1p-100f;  // below it everything is zero
  constexpr float kRoundShift = 0x1.8p+23f;     // adding it leaves an integer in the low bits
  float top = 0;
  bool finite = true;
  for (int i = lane; i < head_dim; i += kWarp) {
    const float value = Widen(from[i]);
    finite = finite && fabsf(value) < INFINITY;
    top = fmaxf(top, fabsf(value));
  }
  float broken = finite ? 0.0f : 1.0f;
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    top = fmaxf(top, ShuffleXor(top, mask));
    broken = fmaxf(broken, ShuffleXor(broken, mask));
  }
  const bool zero = broken != 0 || top < kSmallestScaled;
  const float inverse = kLargest / top;
  for (int i = lane; i < head_dim; i += kWarp) {
    const float scaled = Widen(from[i]) * inverse;
    if constexpr (kIsE4M3) {
      to[i] = zero ? uint8_t{0} : ToE4M3(scaled);
    } else {
      const float shifted = scaled + kRoundShift;
      int32_t bits = 0;
      memcpy(&bits, &shifted, sizeof(bits));
      to[i] = zero ? int8_t{0} : static_cast<int8_t>(bits);
    }
  }
  if (lane != 0) return;
  const float scale = broken != 0 ? NAN : zero ? 0.0f : top / kLargest;
  memcpy(scale_to, &scale, sizeof(scale));
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
__global__ void RotateAndWriteKvKernel(KvLayout<Element> kv, T* q, T* k, const T* v,
                                       const int32_t* slots, int64_t rows, int num_heads,
                                       HeadRotationArrays how) {
  WaitForPreviousKernel();
  constexpr int N = kChunk<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head_dim = kv.head_dim, n = how.num_frequencies, first = lane * N;
  float* const head = reinterpret_cast<float*>(SharedMemory()) +
                      threadIdx.x / kWarp * static_cast<unsigned>(head_dim);
  const int per_row = num_heads + 2 * kv.num_heads;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       i < rows * per_row; i += num_warps) {
    const int64_t row = i / per_row;
    const int number = static_cast<int>(i % per_row), kv_head = number - num_heads;
    if (kv_head >= kv.num_heads) {
      const int64_t value = row * kv.num_heads + kv_head - kv.num_heads;
      WriteRow(kv, v + value * head_dim, slots[row], kv_head - kv.num_heads, 1, lane);
      continue;
    }
    const bool is_query = kv_head < 0;
    T* const at = (is_query ? q + (row * num_heads + number) * head_dim
                            : k + (row * kv.num_heads + kv_head) * head_dim) +
                  first;
    Chunk<T, N> chunk = {};
    if (first < head_dim) chunk = LoadChunk<N>(at);
    if (how.q_gain != nullptr) {
      NormHead(chunk, is_query ? how.q_gain : how.k_gain, head_dim, how.eps, lane);
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
      RotateChunk<kInChunks>(chunk, head, how.angles + row * 2 * n, first, n);
      StoreChunk<N>(at, chunk);
    }
    SyncWarp();  // `head` is filled again, and others read `at`
    if (!is_query) WriteRow(kv, at - first, slots[row], kv_head, 0, lane);
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

template <typename T, typename Element>
cudaError_t RotateAndWriteKv(const KvLayout<Element>& kv, T* q, T* k, const T* v,
                             const int32_t* slots, int64_t rows, int num_heads,
                             const HeadRotationArrays& how, KernelStream stream) {
  const int64_t n = rows * (num_heads + 2 * kv.num_heads);
  if (n == 0 || kv.head_dim == 0) return cudaSuccess;
  const size_t shared = kThreads / kWarp * static_cast<size_t>(kv.head_dim) * sizeof(float);
  const bool in_chunks = how.num_frequencies % kChunk<T> == 0 && IsAligned(how.angles);
  const auto kernel = in_chunks ? RotateAndWriteKvKernel<true, T, Element>
                                : RotateAndWriteKvKernel<false, T, Element>;
  return Launch("RotateAndWriteKv", kernel, BlocksFor(n, kThreads / kWarp), kThreads, shared,
                stream, kv, q, k, v, slots, rows, num_heads, how);
}

cudaError_t CopyKvBlocks(void* cache, int64_t block_bytes, const int32_t* pairs, int64_t num_pairs,
                         KernelStream stream) {
  const int64_t words = block_bytes / static_cast<int64_t>(sizeof(uint32_t));
  if (words == 0 || num_pairs == 0) return cudaSuccess;
  return Launch("CopyKvBlocks", CopyKvBlocksKernel, BlocksFor(words, kThreads), kThreads, 0, stream,
                static_cast<uint32_t*>(cache), words, pairs, num_pairs);
}

#define INSTANTIATE(T, Element)                                                                  \
  template cudaError_t WriteKv(const KvLayout<Element>&, const T*, const T*, const int32_t*,     \
                               int64_t, KernelStream);                                           \
  template cudaError_t RotateAndWriteKv(const KvLayout<Element>&, T*, T*, const T*,              \
                                        const int32_t*, int64_t, int, const HeadRotationArrays&, \
                                        KernelStream)
INSTANTIATE(float, float);
INSTANTIATE(float, uint16_t);
INSTANTIATE(float, int8_t);
INSTANTIATE(float, uint8_t);
INSTANTIATE(uint16_t, float);
INSTANTIATE(uint16_t, uint16_t);
INSTANTIATE(uint16_t, int8_t);
INSTANTIATE(uint16_t, uint8_t);
INSTANTIATE(Half, Half);
INSTANTIATE(Half, int8_t);
INSTANTIATE(Half, uint8_t);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
