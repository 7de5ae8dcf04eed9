// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cuda/chunk.h"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/query_tile.h"

// What a block does with a tile of queries and one of positions: copies to shared memory, bytes
// that become numbers of 16 bits, scores, weights and sums in a warp's registers. For .cu files.
namespace continuo::cuda {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = 1.44269504088896341f;
// Elements behind each row in shared memory, so that rows are in different banks.
inline constexpr int kPad = 8;

// How a kernel is cut: a block is kQueryWarps times kKvWarps warps; each has 16 queries and, of
// kTile positions at a time, every kKvWarps-th part. kDim: of heads, filled up with zeros. Number:
// of queries and results, uint16_t (bf16) or Half. Element: of keys and values, Number or bytes as
// KvLayout has them.
template <typename Number_, typename Element_, int kDim_, int kQueryWarps_, int kKvWarps_,
          int kTile_>
struct Shape {
  using Number = Number_;
  using Element = Element_;
  static constexpr bool kHasScales = KvLayout<Element>::kHasScales;
  static_assert(kHasScales || std::is_same_v<Number, Element>);
  // Of values and weights when they meet. A weight times the scale of a value that is bytes may be
  // far below 1, where f16 loses digits and bf16 does not.
  using ValueNumber = std::conditional_t<kHasScales, uint16_t, Number>;
  static constexpr int kDim = kDim_, kQueryWarps = kQueryWarps_, kKvWarps = kKvWarps_,
                       kTile = kTile_;
  static constexpr int kQueries = 16 * kQueryWarps;
  static constexpr int kThreads = kWarp * kQueryWarps * kKvWarps;
  static constexpr int kStride = kDim + kPad;      // of a row of numbers in shared memory
  static constexpr int kSlice = kTile / kKvWarps;  // positions of a warp
  // What is computed with: keys in Number and values in ValueNumber, [2, kTile, kStride], of bytes
  // then their scales, f32 [2, kTile].
  static constexpr size_t kScaleBytes = kHasScales ? 2 * kTile * sizeof(float) : 0;
  static constexpr size_t kTileBytes = 2 * kTile * kStride * sizeof(uint16_t) + kScaleBytes;
  // What arrives: that, or bytes, [2, kTile, kDim], then their scales.
  static constexpr size_t kStageBytes = kHasScales ? 2 * kTile * kDim + kScaleBytes : kTileBytes;
  static constexpr size_t kQueryBytes = kQueries * kStride * sizeof(uint16_t);
  // Queries, two stages, and a tile where a stage is none.
  static constexpr size_t kSharedBytes =
      kQueryBytes + 2 * kStageBytes + (kHasScales ? kTileBytes : 0);
  static_assert(kSlice % 16 == 0 && kDim % 16 == 0);
  // Where the warps of a tile meet: sums, then maxima and sums of weights.
  static_assert(kKvWarps == 1 || kKvWarps * kQueries * (kDim + 2) * sizeof(float) <= kSharedBytes);
};

template <typename Number>
__device__ inline uint32_t Pack(float low, float high) {
  Chunk<Number, 2> both;
  Store(&both.at[0], low);
  Store(&both.at[1], high);
  uint32_t pair = 0;
  memcpy(&pair, &both, sizeof(pair));
  return pair;
}

// The numbers of two bytes, bits 0 to 7 and 16 to 23 of a word. bf16 has 8 significant bits and f16
// 11, which is enough for both types, so this is exact. e4m3's NaN, 0x7f and 0xff, becomes ±480;
// nothing writes it to a cache.
template <typename Number, typename Element>
__device__ inline uint32_t WidenPair(uint32_t two) {
  constexpr bool kIsHalf = std::is_same_v<Number, Half>;
  static_assert(std::is_same_v<Element, int8_t> || std::is_same_v<Element, uint8_t>);
  // Integers: the number of an exponent whose units are 1 and of a fraction of their low seven
  // bits; less the former, and of negative ones 128. e4m3: its exponent has a bias of 7 instead of
  // Number's; numbers below the normal ones are that in all.
  if constexpr (std::is_same_v<Element, uint8_t> && kIsHalf) {
    return MultiplyAddPairs<Number>((two << 7 & 0x3f803f80) | (two << 8 & 0x80008000), 0x5c005c00,
                                    0x80008000);  // times 2^8, less zero
  } else if constexpr (std::is_same_v<Element, uint8_t>) {
    return MultiplyAddPairs<Number>((two << 4 & 0x07f007f0) | (two << 8 & 0x80008000), 0x7b807b80,
                                    0x80008000);  // times 2^120
  } else if constexpr (kIsHalf) {
    return MultiplyAddPairs<Number>(0x64006400 | (two & 0x007f007f), 0x3c003c00,
                                    0xe400e400 | (two & 0x00800080));  // 1024, times 1
  } else {
    return MultiplyAddPairs<Number>(0x43004300 | (two & 0x007f007f), 0x3f803f80,
                                    0xc300c300 | (two & 0x00800080));  // 128, times 1
  }
}

// Copies of a block: its threads take neighbouring 16 bytes.
template <typename S>
__device__ void StartQueries(typename S::Number* shared, const typename S::Number* q,
                             const AttentionStep& step, const QueryTile& tile) {
  constexpr int kPieces = S::kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < S::kQueries * kPieces; i += S::kThreads) {
    const int query = i / kPieces, d = i % kPieces * 8;
    const typename S::Number* from = nullptr;
    if (query < tile.num_pairs && d < step.head_dim) {
      from = q + (tile.Row(query) * step.num_heads + tile.Head(query)) * step.head_dim + d;
    }
    StartCopy16(shared + query * S::kStride + d, from);
  }
}

// 16 bytes that lie at 4, the first `n` of them, a multiple of 4; zeros behind them, or where
// `from` is null.
__device__ inline void StartWords(unsigned char* shared, const void* from, int n) {
  CONTINUO_UNROLL
  for (int i = 0; i < 16; i += 4) {
    const void* word = nullptr;
    if (from != nullptr && i < n) word = static_cast<const unsigned char*>(from) + i;
    StartCopy4(shared + i, word);
  }
}

// The keys and values of positions [begin, begin + kTile); zeros where nobody sees them. Rows of
// bytes lie at 16 bytes where heads and blocks are multiples of 16 and of 4, else at 4.
template <typename S>
__device__ void StartTile(unsigned char* stage, const KvLayout<const typename S::Element>& kv,
                          const int32_t* table, int kv_head, int64_t begin, const SeenRange& seen) {
  using Element = typename S::Element;
  constexpr int kPiece = 16 / sizeof(Element), kPieces = S::kDim / kPiece;
  constexpr int kRowBytes = S::kHasScales ? S::kDim : S::kStride * 2;
  const bool in_16 = !S::kHasScales || (kv.head_dim % 16 == 0 && kv.block_size % 4 == 0);
  const auto size = static_cast<uint32_t>(kv.block_size);
  for (int i = static_cast<int>(threadIdx.x); i < S::kTile * kPieces; i += S::kThreads) {
    const int row = i / kPieces, d = i % kPieces * kPiece;
    const int64_t position = begin + row;
    const Element* key = nullptr;
    const Element* value = nullptr;
    if (position >= seen.first && position < seen.end && d < kv.head_dim) {
      const auto p = static_cast<uint32_t>(position);
      key = kv.Rows(table[p / size], kv_head, 0) + static_cast<int64_t>(p % size) * kv.head_dim + d;
      value = key + kv.HalfBlock();
    }
    unsigned char* const to = stage + row * kRowBytes + i % kPieces * 16;
    if (in_16) {
      StartCopy16(to, key);
      StartCopy16(to + S::kTile * kRowBytes, value);
    } else {
      StartWords(to, key, kv.head_dim - d);
      StartWords(to + S::kTile * kRowBytes, value, kv.head_dim - d);
    }
  }
  if constexpr (S::kHasScales) {
    unsigned char* const scales = stage + 2 * S::kTile * kRowBytes;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * S::kTile; i += S::kThreads) {
      const int64_t position = begin + i % S::kTile;
      const Element* scale = nullptr;
      if (position >= seen.first && position < seen.end) {
        const auto p = static_cast<uint32_t>(position);
        scale = kv.Rows(table[p / size], kv_head, i / S::kTile) +
                static_cast<int64_t>(size) * kv.head_dim +
                p % size * static_cast<int64_t>(sizeof(float));
      }
      StartCopy4(scales + i * sizeof(float), scale);
    }
  }
}

template <typename Number, typename Element>
__device__ inline Chunk<uint32_t, 4> WidenEight(const Chunk<uint32_t, 2>& bytes) {
  Chunk<uint32_t, 4> pairs;
  CONTINUO_UNROLL
  for (int j = 0; j < 2; ++j) {
    pairs.at[2 * j] = WidenPair<Number, Element>(PickBytes<0x4140>(bytes.at[j]));
    pairs.at[2 * j + 1] = WidenPair<Number, Element>(PickBytes<0x4342>(bytes.at[j]));
  }
  return pairs;
}

// Makes a tile of a stage of bytes, once for all warps of the block. Neighbouring threads take 8
// bytes and make 16 of them, so that they meet no bank twice.
template <typename S>
__device__ void WidenTile(unsigned char* tile, const unsigned char* stage) {
  constexpr int kPieces = S::kDim / 8, kRows = 2 * S::kTile;
  const auto* const words = reinterpret_cast<const uint32_t*>(stage);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += S::kThreads) {
    const Chunk<uint32_t, 2> bytes = LoadChunk<2>(words + 2 * i);
    constexpr bool kAlike = std::is_same_v<typename S::Number, typename S::ValueNumber>;
    Chunk<uint32_t, 4> pairs;
    if (kAlike || i < S::kTile * kPieces) {
      pairs = WidenEight<typename S::Number, typename S::Element>(bytes);
    } else {
      pairs = WidenEight<typename S::ValueNumber, typename S::Element>(bytes);
    }
    auto* const row = reinterpret_cast<uint32_t*>(tile) + i / kPieces * (S::kStride / 2);
    StoreChunk<4>(row + i % kPieces * 4, pairs);
  }
  const uint32_t* const from = words + kRows * S::kDim / 4;
  uint32_t* const to = reinterpret_cast<uint32_t*>(tile) + kRows * S::kStride / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kRows; i += S::kThreads) to[i] = from[i];
}

// What a thread has of its warp's 16 queries. With r = lane / 4, c = 2 (lane % 4): sums[i] holds
// elements 8 i + c, + 1 of query r, then of query r + 8; max, weight and position are those
// queries'.
template <typename S>
struct Accumulator {
  float sums[S::kDim / 8][4] = {};
  float max[2] = {kLowest, kLowest};
  float weight[2] = {0, 0};  // of this thread's positions, until Reduce
  int64_t position[2];       // -1: no query

  __device__ void Reduce() {
    CONTINUO_UNROLL
    for (int half = 0; half < 2; ++half) {
      weight[half] += ShuffleXor(weight[half], 1);
      weight[half] += ShuffleXor(weight[half], 2);
    }
  }
};

// Scores of a warp's queries for its slice of a stage, [kSlice / 8] tiles of 16 × 8.
template <typename S>
__device__ void Score(float (&scores)[S::kSlice / 8][4], const typename S::Number* queries,
                      const typename S::Number* keys) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  CONTINUO_UNROLL
  for (int i = 0; i < S::kSlice / 8; ++i) {
    CONTINUO_UNROLL
    for (int j = 0; j < 4; ++j) scores[i][j] = 0;
  }
  CONTINUO_UNROLL
  for (int d = 0; d < S::kDim; d += 16) {
    uint32_t a[4];
    LoadMatrices(a, queries + lane % 16 * S::kStride + d + lane / 16 * 8);
    CONTINUO_UNROLL
    for (int p = 0; p < S::kSlice; p += 16) {
      uint32_t b[4];
      LoadMatrices(b, keys + (p + lane / 16 * 8 + lane % 8) * S::kStride + d + lane / 8 % 2 * 8);
      MultiplyAdd<typename S::Number>(scores[p / 8], a, b[0], b[1]);
      MultiplyAdd<typename S::Number>(scores[p / 8 + 1], a, b[2], b[3]);
    }
  }
}

// Scores of keys that are bytes, times the keys' scales.
template <typename S>
__device__ void ScaleScores(float (&scores)[S::kSlice / 8][4], const float* scales) {
  const int c = static_cast<int>(threadIdx.x) % 4 * 2;
  CONTINUO_UNROLL
  for (int i = 0; i < S::kSlice / 8; ++i) {
    const Chunk<float, 2> scale = LoadChunk<2>(scales + i * 8 + c);
    CONTINUO_UNROLL
    for (int j = 0; j < 4; ++j) scores[i][j] *= scale.at[j % 2];
  }
}

// Scores become weights, what was summed up is scaled to the new maximum. `scales` are those of
// values that are bytes, by which weights are multiplied once they are summed; where a row does not
// see a position its weight is 0 whatever the scale, which is NaN where the value was not finite.
template <typename S>
__device__ void Weigh(Accumulator<S>& acc, float (&scores)[S::kSlice / 8][4],
                      const AttentionStep& step, const SeenRange& seen, int64_t begin,
                      [[maybe_unused]] const float* scales) {
  const int c = static_cast<int>(threadIdx.x) % 4 * 2;
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int64_t last = Min(acc.position[half], seen.end - 1);
    const int64_t first = Max(seen.begin, FirstSeen(acc.position[half], step.window));
    float max = acc.max[half];
    CONTINUO_UNROLL
    for (int i = 0; i < S::kSlice / 8; ++i) {
      CONTINUO_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int64_t position = begin + i * 8 + c + j;
        float& score = scores[i][half * 2 + j];
        score *= step.scale;
        if (step.softcap > 0) score = step.softcap * tanhf(score / step.softcap);
        if (position < first || position > last) score = kLowest;
        max = fmaxf(max, score);
      }
    }
    max = fmaxf(max, ShuffleXor(max, 1));
    max = fmaxf(max, ShuffleXor(max, 2));
    const float origin = max == kLowest ? 0 : max * kLog2E;
    const float shrink = exp2f(fmaf(acc.max[half], kLog2E, -origin));  // 0 at first
    acc.max[half] = max;
    float weight = 0;
    CONTINUO_UNROLL
    for (int i = 0; i < S::kSlice / 8; ++i) {
      [[maybe_unused]] Chunk<float, 2> scale;
      if constexpr (S::kHasScales) scale = LoadChunk<2>(scales + i * 8 + c);
      CONTINUO_UNROLL
      for (int j = 0; j < 2; ++j) {
        float& score = scores[i][half * 2 + j];
        [[maybe_unused]] const bool is_seen = score != kLowest;
        score = exp2f(fmaf(score, kLog2E, -origin));
        weight += score;
        if constexpr (S::kHasScales) score = is_seen ? score * scale.at[j] : 0;
      }
    }
    acc.weight[half] = acc.weight[half] * shrink + weight;
    CONTINUO_UNROLL
    for (int i = 0; i < S::kDim / 8; ++i) {
      acc.sums[i][half * 2] *= shrink;
      acc.sums[i][half * 2 + 1] *= shrink;
    }
  }
}

// Adds the values of the slice, times their weights.
template <typename S>
__device__ void AddValues(Accumulator<S>& acc, const float (&weights)[S::kSlice / 8][4],
                          const typename S::ValueNumber* values) {
  using Number = typename S::ValueNumber;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  CONTINUO_UNROLL
  for (int p = 0; p < S::kSlice; p += 16) {
    const float(&low)[4] = weights[p / 8];
    const float(&high)[4] = weights[p / 8 + 1];
    const uint32_t a[4] = {Pack<Number>(low[0], low[1]), Pack<Number>(low[2], low[3]),
                           Pack<Number>(high[0], high[1]), Pack<Number>(high[2], high[3])};
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

}  // namespace continuo::cuda
