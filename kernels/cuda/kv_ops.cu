// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/kv_ops.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/launch.h"

namespace continuo::cuda {
namespace {

constexpr int kThreads = 256;

// One row of a head, by a warp, as bytes and a scale (kernels/README.md, int8 keys and values).
template <typename T>
__device__ void WriteBytes(int8_t* to, void* scale_to, const T* from, int head_dim, int lane) {
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
  const float inverse = 127.0f / top;
  for (int i = lane; i < head_dim; i += kWarp) {
    const float shifted = Widen(from[i]) * inverse + kRoundShift;
    int32_t bits = 0;
    memcpy(&bits, &shifted, sizeof(bits));
    to[i] = zero ? int8_t{0} : static_cast<int8_t>(bits);
  }
  if (lane != 0) return;
  const float scale = broken != 0 ? NAN : zero ? 0.0f : top / 127.0f;
  memcpy(scale_to, &scale, sizeof(scale));
}

// A warp takes a head's key or value of a row; bound by reading and writing them.
template <typename T, typename Element>
__global__ void WriteKvKernel(KvLayout<Element> kv, const T* k, const T* v, const int32_t* slots,
                              int64_t rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  const int64_t n = rows * kv.num_heads * 2;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       i < n; i += num_warps) {
    const int64_t row = i / 2 / kv.num_heads, head = i / 2 % kv.num_heads;
    const int which = static_cast<int>(i % 2);
    const int64_t slot = slots[row];
    const T* const from = (which == 0 ? k : v) + (row * kv.num_heads + head) * kv.head_dim;
    Element* const to = kv.Row(slot, head, which);
    if constexpr (std::is_same_v<Element, int8_t>) {
      WriteBytes(to, kv.Scale(slot, head, which), from, kv.head_dim, lane);
    } else {
      for (int d = lane; d < kv.head_dim; d += kWarp) Store(to + d, Widen(from[d]));
    }
  }
}

// A thread takes the same words of all pairs, so that they are copied in order.
__global__ void CopyKvBlocksKernel(uint32_t* cache, int64_t block_words, const int32_t* pairs,
                                   int64_t num_pairs) {
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
                    int64_t rows, cudaStream_t stream) {
  const int64_t n = rows * kv.num_heads * 2;
  if (n == 0 || kv.head_dim == 0) return cudaSuccess;
  return Launch("WriteKv", WriteKvKernel<T, Element>, BlocksFor(n, kThreads / kWarp), kThreads, 0,
                stream, kv, k, v, slots, rows);
}

cudaError_t CopyKvBlocks(void* cache, int64_t block_bytes, const int32_t* pairs, int64_t num_pairs,
                         cudaStream_t stream) {
  const int64_t words = block_bytes / static_cast<int64_t>(sizeof(uint32_t));
  if (words == 0 || num_pairs == 0) return cudaSuccess;
  return Launch("CopyKvBlocks", CopyKvBlocksKernel, BlocksFor(words, kThreads), kThreads, 0, stream,
                static_cast<uint32_t*>(cache), words, pairs, num_pairs);
}

#define INSTANTIATE(T, Element)                                                              \
  template cudaError_t WriteKv(const KvLayout<Element>&, const T*, const T*, const int32_t*, \
                               int64_t, cudaStream_t)
INSTANTIATE(float, float);
INSTANTIATE(float, uint16_t);
INSTANTIATE(float, int8_t);
INSTANTIATE(uint16_t, float);
INSTANTIATE(uint16_t, uint16_t);
INSTANTIATE(uint16_t, int8_t);
#undef INSTANTIATE

}  // namespace continuo::cuda
