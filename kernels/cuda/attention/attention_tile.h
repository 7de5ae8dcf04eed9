// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/divisor.h"
#include "kernels/cuda/runtime/launch.h"

// A block's work on a tile of queries and a tile of positions: copies to shared memory, then
// scores, weights and sums in a warp's registers. Only .cu files include this header.
namespace continuo::kernels::cuda {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = 1.44269504088896341f;
// Rows in shared memory are padded by this many elements, so that they are in different banks.
inline constexpr int kPad = 8;

// Returns what a head's sink adds to a sum of weights that are relative to 2^max. `sink` may be
// null.
__device__ inline float SinkWeight(const float* sink, float max) {
  return sink == nullptr ? 0 : Exp2(fmaf(*sink, kLog2E, -max));
}
__device__ inline float SinkWeight(const AttentionStep& step, int head, float max) {
  return SinkWeight(step.sinks == nullptr ? nullptr : step.sinks + head, max);
}

// The shape of a kernel. A block has kQueryWarps warps; each has 16 queries and all of kTile
// positions at a time. kDim is the size of heads, filled up with zeros. Number is the type of
// queries and results, uint16_t (bf16) or Half. Element is the type of keys and values: Number, or
// bytes as KvLayout has them.
template <typename Number_, typename Element_, int kDim_, int kQueryWarps_, int kTile_>
struct Shape {
  using Number = Number_;
  using Element = Element_;
  static constexpr bool kHasScales = KvLayout<Element>::kHasScales;
  static_assert(kHasScales || std::is_same_v<Number, Element>);
  // The type in which values meet weights. A weight times the scale of an 8-bit value may be far
  // below 1, where f16 loses digits and bf16 does not.
  using ValueNumber = std::conditional_t<kHasScales, uint16_t, Number>;
  static constexpr int kDim = kDim_, kTile = kTile_;
  static constexpr int kQueries = 16 * kQueryWarps_;
  static constexpr int kThreads = kWarp * kQueryWarps_;
  static constexpr int kStride = kDim + kPad;  // elements of a row in shared memory
  // The tile that warps compute with: keys in Number and values in ValueNumber, [2, kTile,
  // kStride]; with bytes also their scales, f32 [2, kTile].
  static constexpr size_t kScaleBytes = kHasScales ? 2 * kTile * sizeof(float) : 0;
  static constexpr size_t kTileBytes = 2 * kTile * kStride * sizeof(uint16_t) + kScaleBytes;
  // The tile that arrives: the same, or bytes [2, kTile, kDim] followed by their scales.
  static constexpr size_t kStageBytes = kHasScales ? 2 * kTile * kDim + kScaleBytes : kTileBytes;
  static constexpr size_t kQueryBytes = kQueries * kStride * sizeof(uint16_t);
  // Queries, two stages and, of bytes, a widened tile.
  static constexpr size_t kSharedBytes =
      kQueryBytes + 2 * kStageBytes + (kHasScales ? kTileBytes : 0);
  // Number of blocks that fit a multiprocessor at once: as many as 227 KiB of shared memory hold,
  // and no more than leave each thread enough registers.
  static constexpr size_t kThatFit = (size_t{227} << 10) / (kSharedBytes + 1024);
  static constexpr int kBlocks = kThatFit < 3 ? static_cast<int>(kThatFit) : 3;
  static_assert(kTile % 16 == 0 && kDim % 16 == 0);
};

// Starts the block's copies of its queries. Threads take neighbouring chunks of 16 bytes.
template <typename S>
__device__ void StartQueries(typename S::Number* shared, const typename S::Number* q,
                             const AttentionStep& step, const QueryTile& tile) {
  constexpr int kChunks = S::kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < S::kQueries * kChunks; i += S::kThreads) {
    const int query = i / kChunks, d = i % kChunks * 8;
    const bool wanted = query < tile.num_pairs && d < step.head_dim;
    const typename S::Number* from = q;
    if (wanted) from += (tile.Row(query) * step.num_heads + tile.Head(query)) * step.head_dim + d;
    StartCopy16(shared + query * S::kStride + d, from, wanted);
  }
}

// Addresses of the positions of a sequence, for one key-value head.
template <typename Element>
struct PagedRows {
  const Element* keys;  // of the head, in block 0
  const int32_t* table;
  Divisor by_size;
  uint32_t size;         // positions of a block
  uint32_t block_bytes;  // from a block to the next one
  uint32_t half_bytes;   // from its keys to its values
  int head_dim;

  struct Place {
    const unsigned char* block;  // its keys
    uint32_t row;
  };
  // Returns the place of a position; block 0 where it is not `wanted`, without reading the table.
  __device__ Place PlaceOf(uint32_t position, bool wanted) const {
    const uint32_t number = by_size.Divide(position);
    const auto block = static_cast<uint32_t>(wanted ? table[number] : 0);
    return {reinterpret_cast<const unsigned char*>(keys) + uint64_t{block} * block_bytes,
            position - number * size};
  }
};
template <typename Element>
__device__ PagedRows<Element> RowsOf(const KvLayout<Element>& kv, Divisor by_size,
                                     const int32_t* table, int kv_head) {
  const auto half_bytes = static_cast<uint32_t>(kv.HalfBlock() * sizeof(Element));
  return {.keys = kv.Rows(0, kv_head, 0),
          .table = table,
          .by_size = by_size,
          .size = static_cast<uint32_t>(kv.block_size),
          .block_bytes = 2 * half_bytes * static_cast<uint32_t>(kv.num_heads),
          .half_bytes = half_bytes,
          .head_dim = kv.head_dim};
}

// Copies 16 bytes that are 4-byte aligned: the first `n`, a multiple of 4, with zeros behind them,
// or all zeros where they are not wanted.
__device__ inline void StartWords(unsigned char* shared, const unsigned char* from, int n,
                                  bool wanted) {
  CONTINUO_UNROLL
  for (int i = 0; i < 16; i += 4) {
    const bool is_in = wanted && i < n;
    StartCopy4(shared + i, is_in ? from + i : from, is_in);
  }
}

// Starts copying the keys and values of positions [begin, begin + kTile), with zeros where no query
// sees them. A thread takes the same chunk of every kAtOnce-th row.
template <typename S, bool kIn16>
__device__ void StartRows(unsigned char* stage, const PagedRows<const typename S::Element>& rows,
                          uint32_t begin, int from, int until) {
  constexpr int kElementBytes = static_cast<int>(sizeof(typename S::Element));
  constexpr int kOfChunk = 16 / kElementBytes, kChunks = S::kDim / kOfChunk;
  constexpr int kRowBytes = S::kHasScales ? S::kDim : S::kStride * 2;
  constexpr int kAtOnce = S::kThreads / kChunks;
  static_assert(S::kThreads % kChunks == 0 && S::kTile % kAtOnce == 0);
  const int first = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const bool in_head = chunk * kOfChunk < rows.head_dim;
  const auto row_bytes = static_cast<uint32_t>(rows.head_dim * kElementBytes);
  CONTINUO_UNROLL
  for (int i = 0; i < S::kTile; i += kAtOnce) {
    const bool wanted = in_head && first + i >= from && first + i < until;
    const auto place = rows.PlaceOf(begin + static_cast<uint32_t>(first + i), wanted);
    const unsigned char* const key =
        place.block + (place.row * row_bytes + (in_head ? static_cast<uint32_t>(chunk) * 16 : 0));
    const unsigned char* const value = key + rows.half_bytes;
    unsigned char* const key_to = stage + (first + i) * kRowBytes + chunk * 16;
    unsigned char* const value_to = key_to + S::kTile * kRowBytes;
    if constexpr (kIn16) {
      StartCopy16(key_to, key, wanted);
      StartCopy16(value_to, value, wanted);
    } else {
      StartWords(key_to, key, rows.head_dim - chunk * kOfChunk, wanted);
      StartWords(value_to, value, rows.head_dim - chunk * kOfChunk, wanted);
    }
  }
}

// Starts copying the rows and, of bytes, their scales. Rows of bytes are 16-byte aligned where
// heads are multiples of 16 and blocks of 4, otherwise 4-byte aligned.
template <typename S>
__device__ void StartTile(unsigned char* stage, const PagedRows<const typename S::Element>& rows,
                          int64_t tile_begin, const SeenRange& seen) {
  const auto begin = static_cast<uint32_t>(tile_begin);
  const auto from = static_cast<int>(Max(0, seen.first - tile_begin));
  const auto until = static_cast<int>(Min(S::kTile, seen.end - tile_begin));
  if constexpr (!S::kHasScales) {
    StartRows<S, true>(stage, rows, begin, from, until);
  } else {
    if (rows.head_dim % 16 == 0 && rows.size % 4 == 0) {
      StartRows<S, true>(stage, rows, begin, from, until);
    } else {
      StartRows<S, false>(stage, rows, begin, from, until);
    }
    static_assert(S::kThreads == 2 * S::kTile);
    const int thread = static_cast<int>(threadIdx.x), row = thread % S::kTile;
    const bool wanted = row >= from && row < until;
    const auto place = rows.PlaceOf(begin + static_cast<uint32_t>(row), wanted);
    const unsigned char* const scale =
        place.block + (thread < S::kTile ? 0 : rows.half_bytes) +
        (rows.size * static_cast<uint32_t>(rows.head_dim) + place.row * 4);
    StartCopy4(stage + 2 * S::kTile * S::kDim + thread * 4, scale, wanted);
  }
}

// A thread's part of its warp's 16 queries. With r = lane / 4 and q = lane % 4, sums[i] holds
// elements 8 i + 2 q and + 1 of query r, then of query r + 8. The other members are of those two
// queries, too.
template <typename S>
struct Accumulator {
  float sums[S::kDim / 8][4] = {};
  float max[2] = {kLowest, kLowest};  // times log2 e
  float weight[2] = {0, 0};           // of this thread's positions, until Reduce
  int32_t first[2], last[2];          // first and last position seen in this split, perhaps none

  __device__ void Reduce() {
    CONTINUO_UNROLL
    for (int half = 0; half < 2; ++half) {
      weight[half] += ShuffleXor(weight[half], 1);
      weight[half] += ShuffleXor(weight[half], 2);
    }
  }
};

// Computes the scores of a warp's queries for a stage: [kTile / 8] tiles of 16 × 8.
template <typename S>
__device__ void Score(float (&scores)[S::kTile / 8][4], const typename S::Number* queries,
                      const typename S::Number* keys) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  CONTINUO_UNROLL
  for (int i = 0; i < S::kTile / 8; ++i) {
    CONTINUO_UNROLL
    for (int j = 0; j < 4; ++j) scores[i][j] = 0;
  }
  CONTINUO_UNROLL
  for (int d = 0; d < S::kDim; d += 16) {
    uint32_t a[4];
    LoadMatrices(a, queries + lane % 16 * S::kStride + d + lane / 16 * 8);
    CONTINUO_UNROLL
    for (int p = 0; p < S::kTile; p += 16) {
      uint32_t b[4];
      LoadMatrices(b, keys + (p + lane / 16 * 8 + lane % 8) * S::kStride + d + lane / 8 % 2 * 8);
      MultiplyAdd<typename S::Number>(scores[p / 8], a, b[0], b[1]);
      MultiplyAdd<typename S::Number>(scores[p / 8 + 1], a, b[2], b[3]);
    }
  }
}

// Turns scores into weights. The sums so far are to be multiplied by `shrink` for the new maximum,
// of queries r and r + 8. `begin` is the tile's first position. all_seen: every query sees all of
// the tile. `scales` are those of 8-bit values: weights are multiplied by them after they are
// summed up. A position that a row does not see has weight 0 whatever its scale, which is NaN where
// the value was not finite.
template <typename S>
__device__ void Weigh(Accumulator<S>& acc, float (&shrink)[2], float (&scores)[S::kTile / 8][4],
                      const AttentionStep& step, int32_t begin, bool all_seen,
                      [[maybe_unused]] const float* scales) {
  const int c = static_cast<int>(threadIdx.x) % 4 * 2;
  if (step.softcap > 0) {
    // tanh x = 1 - 2 / (1 + e^(2 x)). What it loses near 0 is far below any cap.
    const float twice = 2 * kLog2E * step.scale / step.softcap;
    CONTINUO_UNROLL
    for (int i = 0; i < S::kTile / 8; ++i) {
      CONTINUO_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float part = Reciprocal(1 + Exp2(scores[i][j] * twice));
        scores[i][j] = fmaf(-2 * step.softcap, part, step.softcap);
      }
    }
  }
  const float unit = (step.softcap > 0 ? 1 : step.scale) * kLog2E;
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    shrink[half] = 1;
    if (!all_seen) {
      const int32_t first = acc.first[half] - begin - c, last = acc.last[half] - begin - c;
      CONTINUO_UNROLL
      for (int i = 0; i < S::kTile / 8; ++i) {
        CONTINUO_UNROLL
        for (int j = 0; j < 2; ++j) {
          if (i * 8 + j < first || i * 8 + j > last) scores[i][half * 2 + j] = kLowest;
        }
      }
    }
    float max = scores[0][half * 2];
    CONTINUO_UNROLL
    for (int i = 0; i < S::kTile / 8; ++i) {
      CONTINUO_UNROLL
      for (int j = 0; j < 2; ++j) max = fmaxf(max, scores[i][half * 2 + j]);
    }
    max = fmaxf(max, ShuffleXor(max, 1));
    max = fmaxf(max, ShuffleXor(max, 2));
    max = fmaxf(acc.max[half], max * unit);
    const float origin = max == kLowest ? 0 : max;
    shrink[half] = Exp2(acc.max[half] - origin);  // 0 at first
    acc.max[half] = max;
    float weight = 0;
    CONTINUO_UNROLL
    for (int i = 0; i < S::kTile / 8; ++i) {
      [[maybe_unused]] Chunk<float, 2> scale;
      if constexpr (S::kHasScales) scale = LoadChunk<2>(scales + i * 8 + c);
      CONTINUO_UNROLL
      for (int j = 0; j < 2; ++j) {
        float& score = scores[i][half * 2 + j];
        [[maybe_unused]] const bool is_seen = score != kLowest;
        score = Exp2(fmaf(score, unit, -origin));
        weight += score;
        if constexpr (S::kHasScales) score = is_seen ? score * scale.at[j] : 0;
      }
    }
    acc.weight[half] = acc.weight[half] * shrink[half] + weight;
  }
}
template <typename S>
__device__ void ShrinkSums(Accumulator<S>& acc, const float (&shrink)[2]) {
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    if (!AnyLane(shrink[half] != 1)) continue;
    CONTINUO_UNROLL
    for (int i = 0; i < S::kDim / 8; ++i) {
      acc.sums[i][half * 2] *= shrink[half];
      acc.sums[i][half * 2 + 1] *= shrink[half];
    }
  }
}

// Rounds the weights of two tiles of 16 × 8 to the first factor of MultiplyAdd. A thread needs
// there the same elements that it has as sums.
template <typename Number>
__device__ inline void RoundWeights(uint32_t (&a)[4], const float (&low)[4],
                                    const float (&high)[4]) {
  a[0] = RoundPair<Number>(low[0], low[1]);
  a[1] = RoundPair<Number>(low[2], low[3]);
  a[2] = RoundPair<Number>(high[0], high[1]);
  a[3] = RoundPair<Number>(high[2], high[3]);
}

// Adds the values of the tile, times their weights.
template <typename S>
__device__ void AddValues(Accumulator<S>& acc, const float (&weights)[S::kTile / 8][4],
                          const typename S::ValueNumber* values) {
  using Number = typename S::ValueNumber;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  CONTINUO_UNROLL
  for (int p = 0; p < S::kTile; p += 16) {
    uint32_t a[4];
    RoundWeights<Number>(a, weights[p / 8], weights[p / 8 + 1]);
    CONTINUO_UNROLL
    for (int d = 0; d < S::kDim; d += 16) {
      uint32_t b[4];
      LoadMatricesTransposed(
          b, values + (p + lane / 8 % 2 * 8 + lane % 8) * S::kStride + d + lane / 16 * 8);
      MultiplyAdd<Number>(acc.sums[d / 8], a, b[0], b[1]);
      MultiplyAdd<Number>(acc.sums[d / 8 + 1], a, b[2], b[3]);
    }
  }
}

}  // namespace continuo::kernels::cuda
