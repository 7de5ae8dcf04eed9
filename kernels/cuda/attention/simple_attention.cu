// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/simple_attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/math/arithmetic.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = kKvChunk;  // one for each position of a chunk
constexpr float kLowest = -std::numeric_limits<float>::infinity();

__device__ inline float WidenElement(float value) { return value; }
__device__ inline float WidenElement(uint16_t bits) { return Widen(bits); }
__device__ inline float WidenElement(Half half) { return Widen(half); }
__device__ inline float WidenElement(int8_t value) { return static_cast<float>(value); }
__device__ inline float WidenElement(uint8_t bits) { return FromE4M3(bits); }

// Returns 1, or the scale of a row of bytes.
template <typename Element>
__device__ float ScaleOf(const KvLayout<const Element>& kv, int64_t slot, int64_t head, int which) {
  float scale = 1;
  if constexpr (KvLayout<const Element>::kHasScales) {
    memcpy(&scale, kv.Scale(slot, head, which), sizeof(scale));
  }
  return scale;
}

// Reduces the block's maximum, or sum, in a tree; `shared` is [kThreads].
template <typename Join>
__device__ float Reduce(float* shared, float value, Join join) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    SyncBlock();
    if (thread < half) shared[thread] = join(shared[thread], shared[thread + half]);
  }
  SyncBlock();
  const float result = shared[0];
  SyncBlock();
  return result;
}

// Block (x, y) computes row x, query head y. It reads keys and values once for each head and is
// bound by that.
template <typename T, typename Element>
__global__ void SimpleAttentionKernel(T* out, const T* q, KvLayout<const Element> kv,
                                      AttentionStep step) {
  WaitForPreviousKernel();
  const int thread = static_cast<int>(threadIdx.x), dim = step.head_dim;
  auto* const slots = reinterpret_cast<int64_t*>(SharedMemory());  // [kKvChunk]
  auto* const query = reinterpret_cast<float*>(slots + kKvChunk);  // [dim]
  float* const sums = query + dim;                                 // [dim]
  float* const weights = sums + dim;                               // [kKvChunk]
  float* const reduced = weights + kKvChunk;                       // [kThreads]

  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int seq = SequenceOf(step, row);
  const int kv_head = (step.first_head + head) / step.heads_per_kv_head - step.first_kv_head;
  const int64_t position = step.kv_len[seq] - (step.query_begin[seq + 1] - row);
  const int64_t first = FirstSeen(position, step);
  const int32_t* const table = step.block_tables + seq * step.max_blocks;
  const int64_t at = (row * step.num_heads + head) * dim;
  for (int d = thread; d < dim; d += kThreads) {
    query[d] = Widen(q[at + d]);
    sums[d] = 0;
  }
  SyncBlock();

  float all_max = kLowest, all_weight = 0;
  for (int64_t chunk = first / kKvChunk * kKvChunk; chunk <= position; chunk += kKvChunk) {
    const int64_t p = chunk + thread;
    const bool seen = p >= first && p <= position;
    float score = kLowest;
    if (seen) {
      const int64_t slot = int64_t{table[p / kv.block_size]} * kv.block_size + p % kv.block_size;
      slots[thread] = slot;
      const Element* const key = kv.Row(slot, kv_head, 0);
      float dot = 0;
      for (int d = 0; d < dim; ++d) dot = fmaf(query[d], WidenElement(key[d]), dot);
      score = dot * ScaleOf(kv, slot, kv_head, 0) * step.scale;
      if (step.softcap > 0) score = step.softcap * tanhf(score / step.softcap);
    }
    const float max = Reduce(reduced, score, [](float a, float b) { return fmaxf(a, b); });
    const float weight = seen ? expf(score - (max == kLowest ? 0.0f : max)) : 0.0f;
    weights[thread] = seen ? weight * ScaleOf(kv, slots[thread], kv_head, 1) : 0.0f;
    const float chunk_weight = Reduce(reduced, weight, [](float a, float b) { return a + b; });

    const float both = fmaxf(all_max, max), origin = both == kLowest ? 0.0f : both;
    const float keep = expf(all_max - origin), add = expf(max - origin);
    all_max = both;
    all_weight = all_weight * keep + chunk_weight * add;
    const int begin = static_cast<int>(Max(first - chunk, 0));
    const int end = static_cast<int>(Min(position + 1 - chunk, kKvChunk));
    for (int d = thread; d < dim; d += kThreads) {
      float sum = 0;
      for (int i = begin; i < end; ++i) {
        sum = fmaf(weights[i], WidenElement(kv.Row(slots[i], kv_head, 1)[d]), sum);
      }
      sums[d] = sums[d] * keep + sum * add;
    }
    SyncBlock();  // weights and slots are filled again
  }
  if (step.sinks != nullptr) all_weight += expf(step.sinks[head] - all_max);
  for (int d = thread; d < dim; d += kThreads) Store(out + at + d, sums[d] / all_weight);
}

}  // namespace

template <typename T, typename Element>
cudaError_t SimpleAttention(T* out, const T* q, const KvLayout<const Element>& kv,
                            const AttentionStep& step, KernelStream stream) {
  if (step.rows == 0 || step.num_heads == 0 || step.head_dim == 0) return cudaSuccess;
  const size_t shared =
      kKvChunk * sizeof(int64_t) +
      (2 * static_cast<size_t>(step.head_dim) + kKvChunk + kThreads) * sizeof(float);
  return Launch("SimpleAttention", SimpleAttentionKernel<T, Element>,
                dim3(static_cast<unsigned>(step.rows), static_cast<unsigned>(step.num_heads)),
                kThreads, shared, stream, out, q, kv, step);
}

#define INSTANTIATE(T, Element)                                                      \
  template cudaError_t SimpleAttention(T*, const T*, const KvLayout<const Element>&, \
                                       const AttentionStep&, KernelStream)
CONTINUO_KV_TYPES(INSTANTIATE);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
