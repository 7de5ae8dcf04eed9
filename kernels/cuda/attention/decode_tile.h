// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

// A warp's work on the queries of a sequence's one row that share a key-value head: copies of a
// slice of positions to shared memory, then scores, weights and sums in registers. Products are
// transposed, with positions and then elements of values as their 16 rows and queries as their 8
// columns. Only .cu files include this header.
namespace continuo::kernels::cuda {

// Returns the number of blocks that a multiprocessor runs at once, of so many queries.
constexpr int DecodeBlocksAtOnce(int queries) { return queries <= 8 ? 3 : 2; }

// The shape of a kernel. A block's warps take the slices of its share in turn. Each copies its own
// kSlice positions at a time into kStages stages of its own. kDim is the size of heads, filled up
// with zeros. Number is the type of queries and results, uint16_t (bf16) or Half. Element is the
// type of keys and values: Number, or bytes as KvLayout has them. kEights times 8 queries fit.
template <typename Number_, typename Element_, int kDim_, int kEights_>
struct DecodeShape {
  using Number = Number_;
  using Element = Element_;
  static constexpr int kDim = kDim_, kEights = kEights_, kQueries = 8 * kEights;
  static constexpr bool kHasScales = KvLayout<Element>::kHasScales;
  static_assert(kHasScales || std::is_same_v<Number, Element>);
  // The type in which keys and values are multiplied. Bytes become f16 exactly.
  using Factor = std::conditional_t<kHasScales, Half, Number>;

  static constexpr int kWarps = kDim > 128 ? 2 : 4, kThreads = kWarp * kWarps;
  static constexpr int kSlice = kHasScales || kDim <= 64 ? 32 : 16;
  static constexpr int kStages = kHasScales && kDim <= 64 ? 3 : 2;
  static constexpr int kRowBytes = kDim * static_cast<int>(sizeof(Element));
  // Rows are padded by a chunk of 16 bytes, so that the same chunk of eight rows is in different
  // banks.
  static constexpr int kStride = kRowBytes + 16;
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kOfChunk = 16 / static_cast<int>(sizeof(Element));
  // A stage has keys [kSlice, kStride], then values, and with bytes the scales of both, f32 [2,
  // kSlice].
  static constexpr int kHalfBytes = kSlice * kStride;
  static constexpr int kStageBytes = 2 * kHalfBytes + (kHasScales ? 2 * kSlice * 4 : 0);
  // A warp's part of the block's sums takes the place of a stage: sums f32 [kQueries, kSumStride],
  // then maxima and sums of weights, [kQueries, 2]. The stride puts the sums that a warp writes at
  // once into different banks.
  static constexpr int kSumStride = kDim + 4;
  static_assert(kQueries * (kSumStride + 2) * 4 <= kStageBytes);
  // Behind the stages of all warps: units of a warp's queries, f32 [kWarps, kQueries], and words
  // that warps tell one another.
  static constexpr int kUnitsAt = kWarps * kStages * kStageBytes;
  static constexpr int kWordsAt = kUnitsAt + kWarps * kQueries * 4;
  static constexpr size_t kSharedBytes = kWordsAt + 16 * 4;
  // Number of blocks that fit a multiprocessor at once, by shared memory or by registers.
  static constexpr int kBlocks = DecodeBlocksAtOnce(kQueries);
  static_assert(kBlocks * (kSharedBytes + 1024) <= size_t{228} << 10);

  static constexpr int kSteps = kDim / 16;            // of 16 elements of a head
  static constexpr int kStepsOfChunk = kOfChunk / 4;  // steps whose elements four chunks have

  // Products have their rows in this order: of eight positions, the one of row i. It puts the four
  // chunks of two rows that eight lanes load at once into different banks.
  static CONTINUO_HOST_DEVICE constexpr int PositionOf(int i) { return i / 2 + i % 2 * 4; }
  // The element of a head that the lane 4 r + q has in sums[i][..][2 * half + j].
  static CONTINUO_HOST_DEVICE constexpr int ElementOf(int i, int r, int half) {
    return i * 16 + (kHasScales ? r * 2 + half : r + half * 8);
  }
};

// Starts a warp's copies of the slice that begins with a position, with zeros in the rows before
// `from` and from `until` on. in_groups: 16 positions follow one another in memory and have whole
// rows.
template <typename S>
__device__ void StartSlice(unsigned char* stage, const PagedRows<const typename S::Element>& rows,
                           bool in_groups, uint32_t begin, int from, int until) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  unsigned char* const scales = stage + 2 * S::kHalfBytes;
  if (in_groups) {
    constexpr int kGroups = S::kSlice / 16, kAtOnce = kWarp / S::kChunks;
    const int first = lane / S::kChunks;
    unsigned char* const to = stage + first * S::kStride + lane % S::kChunks * 16;
    const unsigned char* scale = nullptr;
    CONTINUO_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const int row = group * 16;
      const auto place =
          rows.PlaceOf(begin + static_cast<uint32_t>(row), row + 16 > from && row < until);
      const unsigned char* const key = place.block + (place.row * S::kRowBytes + lane * 16);
      const unsigned char* const value = key + rows.half_bytes;
      if (from <= row && row + 16 <= until) {
        CONTINUO_UNROLL
        for (int i = 0; i < 16; i += kAtOnce) {
          StartCopy16(to + (row + i) * S::kStride, key + i * S::kRowBytes, true);
          StartCopy16(to + (row + i) * S::kStride + S::kHalfBytes, value + i * S::kRowBytes, true);
        }
      } else {
        CONTINUO_UNROLL
        for (int i = 0; i < 16; i += kAtOnce) {
          const bool wanted = row + i + first >= from && row + i + first < until;
          StartCopy16(to + (row + i) * S::kStride, key + i * S::kRowBytes, wanted);
          StartCopy16(to + (row + i) * S::kStride + S::kHalfBytes, value + i * S::kRowBytes,
                      wanted);
        }
      }
      if (S::kHasScales && (group == 0 || lane >= 16)) {
        scale = place.block + (rows.size * S::kRowBytes + (place.row + lane % 16) * 4);
      }
    }
    if constexpr (S::kHasScales) {
      const bool wanted = lane >= from && lane < until;
      StartCopy4(scales + lane * 4, scale, wanted);
      StartCopy4(scales + (S::kSlice + lane) * 4, scale + rows.half_bytes, wanted);
    }
    return;
  }
  const auto row_bytes =
      static_cast<uint32_t>(rows.head_dim * static_cast<int>(sizeof(*rows.keys)));
  CONTINUO_UNROLL_BY(1)
  for (int i = lane; i < S::kSlice * S::kChunks; i += kWarp) {
    const int row = i / S::kChunks, chunk = i % S::kChunks;
    const int bytes_left = static_cast<int>(row_bytes) - chunk * 16;
    const bool wanted = bytes_left > 0 && row >= from && row < until;
    const auto place = rows.PlaceOf(begin + static_cast<uint32_t>(row), wanted);
    const unsigned char* const key =
        place.block + (place.row * row_bytes + (bytes_left > 0 ? chunk * 16 : 0));
    unsigned char* const to = stage + row * S::kStride + chunk * 16;
    if (!S::kHasScales || (rows.head_dim % 16 == 0 && rows.size % 4 == 0)) {
      StartCopy16(to, key, wanted);
      StartCopy16(to + S::kHalfBytes, key + rows.half_bytes, wanted);
    } else {
      StartWords(to, key, bytes_left, wanted);
      StartWords(to + S::kHalfBytes, key + rows.half_bytes, bytes_left, wanted);
    }
  }
  if constexpr (S::kHasScales) {
    static_assert(S::kSlice == kWarp);
    const bool wanted = lane >= from && lane < until;
    const auto place = rows.PlaceOf(begin + static_cast<uint32_t>(lane), wanted);
    const unsigned char* const scale = place.block + (rows.size * row_bytes + place.row * 4);
    StartCopy4(scales + lane * 4, scale, wanted);
    StartCopy4(scales + (S::kSlice + lane) * 4, scale + rows.half_bytes, wanted);
  }
}

// Widens the bytes of a word to f16 in two pairs: for keys bytes 0 and 1, then 2 and 3; for values,
// which kSpread names, bytes 0 and 2, then 1 and 3.
template <typename Element, bool kSpread>
__device__ inline void WidenWord(uint32_t (&pairs)[2], uint32_t word) {
  if constexpr (std::is_same_v<Element, uint8_t>) {
    if constexpr (kSpread) word = PickBytes<0x3120>(word);
    pairs[0] = WidenE4M3(word & 0xffff);
    pairs[1] = WidenE4M3(word >> 16);
  } else {
    // With its sign flipped a byte is the number plus 128, and behind the byte 0x64 in f16 the
    // number plus 1152.
    static_assert(std::is_same_v<Element, int8_t>);
    constexpr uint32_t kOne = 0x3c003c00, kLess = 0xe480e480;  // 1, -1152
    const uint32_t flipped = word ^ 0x80808080;
    const uint32_t low = PickBytes < kSpread ? 0x4240 : 0x4140 > (flipped, 0x64646464);
    const uint32_t high = PickBytes < kSpread ? 0x4341 : 0x4342 > (flipped, 0x64646464);
    pairs[0] = MultiplyAddPairs<Half>(low, kOne, kLess);
    pairs[1] = MultiplyAddPairs<Half>(high, kOne, kLess);
  }
}

// Returns 2^exponent, for exponents of normal numbers.
__device__ inline float PowerOf2(int exponent) {
  const auto bits = static_cast<uint32_t>(exponent + 127) << 23;
  float power = 0;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}
// Returns the least exponent with x < 2^exponent, or 129 for infinity and NaN, and -100 for
// numbers below. x has no sign.
__device__ inline int ExponentOf(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<int>(Max(-100, static_cast<int>(bits >> 23 & 255) - 126));
}

// A warp's queries, as MultiplyAdd takes its second factor. Of a row of keys, thread q of a
// product row's four has chunks 4 j + q, so of a query it has the elements of these chunks, too.
// The order of a sum's elements is free as long as both factors have it.
template <typename S>
struct DecodeQueries {
  uint32_t at[S::kEights][S::kSteps][2];
  // Scores times `unit` are exponents of 2: of queries 2 q and 2 q + 1 of each eight.
  float unit[S::kEights][2];

  // Loads the queries in [0, num), rows of head_dim elements from `q` on. With bytes they are
  // multiplied by a power of 2 that brings each query's largest element near 2^15: f16 then has
  // all digits of bf16 elements that are not 2^31 times smaller. `units` is the warp's place in
  // shared memory for it.
  __device__ void Load(const typename S::Number* q, int num, const AttentionStep& step,
                       [[maybe_unused]] float* units) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane / 4;
    const float unit_of_all = step.scale * kLog2E;
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      const int query = n * 8 + r;
      CONTINUO_UNROLL
      for (int s = 0; s < S::kSteps; s += 2) {
        // A load has the elements of two steps.
        const int d =
            (s / S::kStepsOfChunk * 4 + lane % 4) * S::kOfChunk + s % S::kStepsOfChunk * 4;
        Chunk<uint32_t, 4> words = {};
        if (query < num && d < step.head_dim) {
          words = LoadChunk<4>(reinterpret_cast<const uint32_t*>(q + query * step.head_dim + d));
        }
        CONTINUO_UNROLL
        for (int i = 0; i < 4; ++i) at[n][s + i / 2][i % 2] = words.at[i];
      }
      if constexpr (S::kHasScales) Fit(n, units + query);
      unit[n][0] = unit[n][1] = unit_of_all;
    }
    if constexpr (S::kHasScales) {
      SyncWarp();
      CONTINUO_UNROLL
      for (int n = 0; n < S::kEights; ++n) {
        const Chunk<float, 2> powers = LoadChunk<2>(units + n * 8 + lane % 4 * 2);
        CONTINUO_UNROLL
        for (int j = 0; j < 2; ++j) unit[n][j] = unit_of_all * powers.at[j];
      }
      SyncWarp();
    }
  }

 private:
  // Multiplies a query by a power of 2, rounds it to f16, and writes the inverse.
  __device__ void Fit(int n, float* inverse) {
    float largest = 0;
    CONTINUO_UNROLL
    for (int s = 0; s < S::kSteps; ++s) {
      CONTINUO_UNROLL
      for (int i = 0; i < 2; ++i) {
        largest = fmaxf(largest, fmaxf(fabsf(Low(at[n][s][i])), fabsf(High(at[n][s][i]))));
      }
    }
    largest = fmaxf(largest, ShuffleXor(largest, 1));
    largest = fmaxf(largest, ShuffleXor(largest, 2));
    const int exponent = ExponentOf(largest);
    const float power = PowerOf2(15 - exponent);
    CONTINUO_UNROLL
    for (int s = 0; s < S::kSteps; ++s) {
      CONTINUO_UNROLL
      for (int i = 0; i < 2; ++i) {
        uint32_t& pair = at[n][s][i];
        pair = RoundPair<Half>(Low(pair) * power, High(pair) * power);
      }
    }
    if (threadIdx.x % 4 == 0) *inverse = PowerOf2(exponent - 15);
  }
  static __device__ float Low(uint32_t pair) { return Of(static_cast<uint16_t>(pair)); }
  static __device__ float High(uint32_t pair) { return Of(static_cast<uint16_t>(pair >> 16)); }
  static __device__ float Of(uint16_t bits) {
    if constexpr (std::is_same_v<typename S::Number, Half>) {
      return Widen(Half{bits});
    } else {
      return Widen(bits);
    }
  }
};

// A thread's part of its warp's sums. Of each eight queries it has 2 q and 2 q + 1, where q = lane
// % 4. sums[i][n][2 half + j] is element ElementOf(i, lane / 4, half) of query 8 n + 2 q + j.
template <typename S>
struct DecodeSums {
  // The maximum of a query that has seen nothing: less than any score times its unit, and finite.
  static constexpr float kNothing = -0x1p120f;

  float sums[S::kSteps][S::kEights][4] = {};
  // The least integer that no exponent of a weight has exceeded, so that weights are scaled down
  // exactly, and rarely.
  float max[S::kEights][2];
  // The sum of weights: of the rounded ones of all positions in each thread or, with bytes, of the
  // unrounded ones of this thread's positions until Reduce.
  float weight[S::kEights][4] = {};

  __device__ DecodeSums() {
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) max[n][0] = max[n][1] = kNothing;
  }
  __device__ void Reduce() {
    if constexpr (S::kHasScales) {
      CONTINUO_UNROLL
      for (int n = 0; n < S::kEights; ++n) {
        CONTINUO_UNROLL
        for (int j = 0; j < 2; ++j) {
          CONTINUO_UNROLL
          for (int mask = 4; mask < kWarp; mask *= 2) {
            weight[n][j] += ShuffleXor(weight[n][j], mask);
          }
        }
      }
    }
  }
};

// The scores of a slice, and then its weights. A thread has of each 16 positions two rows of the
// product, PositionOf(lane / 4) and 8 more: [16 positions, eight queries, 2 * row + query].
template <typename S>
using SliceScores = float[S::kSlice / 16][S::kEights][4];

template <typename S>
__device__ void ScoreSlice(SliceScores<S>& scores, const DecodeQueries<S>& queries,
                           const unsigned char* stage) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned char* const rows = stage + S::PositionOf(lane / 4) * S::kStride + lane % 4 * 16;
  CONTINUO_UNROLL
  for (int t = 0; t < S::kSlice / 16; ++t) {
    float odd[S::kEights][4] = {};  // of odd steps, so that two products may be under way
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      CONTINUO_UNROLL
      for (int j = 0; j < 4; ++j) scores[t][n][j] = 0;
    }
    CONTINUO_UNROLL
    for (int s = 0; s < S::kSteps; s += S::kStepsOfChunk) {
      const auto* const from =
          reinterpret_cast<const uint32_t*>(rows + t * 16 * S::kStride + s / S::kStepsOfChunk * 64);
      const Chunk<uint32_t, 4> low = LoadChunk<4>(from);
      const Chunk<uint32_t, 4> high = LoadChunk<4>(from + 8 * S::kStride / 4);
      CONTINUO_UNROLL
      for (int i = 0; i < S::kStepsOfChunk; ++i) {
        uint32_t a[4];
        if constexpr (S::kHasScales) {
          uint32_t of_low[2], of_high[2];
          WidenWord<typename S::Element, false>(of_low, low.at[i]);
          WidenWord<typename S::Element, false>(of_high, high.at[i]);
          a[0] = of_low[0], a[1] = of_high[0], a[2] = of_low[1], a[3] = of_high[1];
        } else {
          a[0] = low.at[2 * i], a[1] = high.at[2 * i];
          a[2] = low.at[2 * i + 1], a[3] = high.at[2 * i + 1];
        }
        CONTINUO_UNROLL
        for (int n = 0; n < S::kEights; ++n) {
          const uint32_t(&b)[2] = queries.at[n][s + i];
          MultiplyAdd<typename S::Factor>((s + i) % 2 == 0 ? scores[t][n] : odd[n], a, b[0], b[1]);
        }
      }
    }
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      CONTINUO_UNROLL
      for (int j = 0; j < 4; ++j) scores[t][n][j] += odd[n][j];
    }
  }
}

// The scales of this thread's rows of a slice of 8-bit keys and values.
template <typename S>
struct SliceScales {
  float key[S::kSlice / 16][2], value[S::kSlice / 16][2];

  __device__ explicit SliceScales(const unsigned char* stage) {
    if constexpr (S::kHasScales) {
      const auto* const scales = reinterpret_cast<const float*>(stage + 2 * S::kHalfBytes);
      const int position = S::PositionOf(static_cast<int>(threadIdx.x) % kWarp / 4);
      CONTINUO_UNROLL
      for (int t = 0; t < S::kSlice / 16; ++t) {
        CONTINUO_UNROLL
        for (int half = 0; half < 2; ++half) {
          key[t][half] = scales[t * 16 + position + half * 8];
          value[t][half] = scales[S::kSlice + t * 16 + position + half * 8];
        }
      }
    }
  }
};

// Turns scores into weights, those of 8-bit values times the values' scales. A weight is 2^(score *
// unit - max), and such a product is at most 1: the maximum is that of the scores' exponents plus
// the scales'. Sums so far are scaled down for a new maximum. Rows before `from` and from `until`
// on have weight 0, and the scales there are 0.
template <typename S>
__device__ void WeighSlice(SliceScores<S>& scores, DecodeSums<S>& sums,
                           const DecodeQueries<S>& queries, const SliceScales<S>& scales,
                           const AttentionStep& step, int from, int until) {
  constexpr int kTiles = S::kSlice / 16;
  const int position = S::PositionOf(static_cast<int>(threadIdx.x) % kWarp / 4);
  float unit[S::kEights][2];
  CONTINUO_UNROLL
  for (int n = 0; n < S::kEights; ++n) {
    CONTINUO_UNROLL
    for (int j = 0; j < 2; ++j) unit[n][j] = queries.unit[n][j];
  }
  if constexpr (S::kHasScales) {
    CONTINUO_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      CONTINUO_UNROLL
      for (int n = 0; n < S::kEights; ++n) {
        CONTINUO_UNROLL
        for (int i = 0; i < 4; ++i) scores[t][n][i] *= scales.key[t][i / 2];
      }
    }
  }
  if (step.softcap > 0) {
    // tanh x = 1 - 2 / (1 + e^(2 x)). What it loses near 0 is far below any cap.
    const float cap = step.softcap * kLog2E;
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      CONTINUO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float twice = 2 * unit[n][i % 2] / step.softcap;
        CONTINUO_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          const float part = Reciprocal(1 + Exp2(scores[t][n][i] * twice));
          scores[t][n][i] = fmaf(-2 * cap, part, cap);
        }
      }
      unit[n][0] = unit[n][1] = 1;
    }
  }
  if (from > 0 || until < S::kSlice) {
    CONTINUO_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = t * 16 + half * 8 + position;
        if (row >= from && row < until) continue;
        CONTINUO_UNROLL
        for (int n = 0; n < S::kEights; ++n)
          scores[t][n][half * 2] = scores[t][n][half * 2 + 1] = kLowest;
      }
    }
  }
  // The exponents of the values' scales.
  float raised[kTiles][2] = {};
  if constexpr (S::kHasScales) {
    CONTINUO_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        raised[t][half] = static_cast<float>(ExponentOf(scales.value[t][half]));
      }
    }
  }
  bool is_larger = false;
  CONTINUO_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      CONTINUO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float exponent = fmaf(scores[t][n][i], unit[n][i % 2], raised[t][i / 2]);
        is_larger |= exponent > sums.max[n][i % 2];
      }
    }
  }
  if (AnyLane(is_larger)) {
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      CONTINUO_UNROLL
      for (int j = 0; j < 2; ++j) {
        float max = DecodeSums<S>::kNothing;
        CONTINUO_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          CONTINUO_UNROLL
          for (int half = 0; half < 2; ++half) {
            max = fmaxf(max, fmaf(scores[t][n][half * 2 + j], unit[n][j], raised[t][half]));
          }
        }
        CONTINUO_UNROLL
        for (int mask = 4; mask < kWarp; mask *= 2) max = fmaxf(max, ShuffleXor(max, mask));
        max = fmaxf(sums.max[n][j], ceilf(max));
        const float shrink = Exp2(sums.max[n][j] - max);  // 0 at first
        sums.max[n][j] = max;
        CONTINUO_UNROLL
        for (int half = 0; half < 2; ++half) {
          sums.weight[n][half * 2 + j] *= shrink;
          CONTINUO_UNROLL
          for (int s = 0; s < S::kSteps; ++s) sums.sums[s][n][half * 2 + j] *= shrink;
        }
      }
    }
  }
  CONTINUO_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      CONTINUO_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& weight = scores[t][n][i];
        weight = Exp2(fmaf(weight, unit[n][i % 2], -sums.max[n][i % 2]));
        if constexpr (S::kHasScales) {
          sums.weight[n][i % 2] += weight;
          weight *= scales.value[t][i / 2];
        }
      }
    }
  }
}

// Adds the values of the slice times their weights and, of 16-bit values, the rounded weights.
template <typename S>
__device__ void AddSlice(DecodeSums<S>& sums, const SliceScores<S>& weights,
                         const unsigned char* stage) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned char* const values = stage + S::kHalfBytes + S::PositionOf(lane % 8) * S::kStride;
  CONTINUO_UNROLL
  for (int t = 0; t < S::kSlice / 16; ++t) {
    const unsigned char* const rows = values + t * 16 * S::kStride;
    uint32_t b[S::kEights][2];
    CONTINUO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        b[n][half] = TransposeMatrix(
            RoundPair<typename S::Factor>(weights[t][n][half * 2], weights[t][n][half * 2 + 1]));
      }
      if constexpr (!S::kHasScales) {
        constexpr uint32_t kOnes =
            std::is_same_v<typename S::Factor, Half> ? 0x3c003c00 : 0x3f803f80;
        const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
        MultiplyAdd<typename S::Factor>(sums.weight[n], ones, b[n][0], b[n][1]);
      }
    }
    if constexpr (S::kHasScales) {
      // LoadMatrices loads two neighbouring bytes as one element, so a word has the bytes of two
      // positions: of two elements each.
      CONTINUO_UNROLL
      for (int s = 0; s < S::kSteps; s += 2) {
        uint32_t words[4];
        LoadMatricesTransposed(words, rows + lane / 8 % 2 * 8 * S::kStride + (s + lane / 16) * 16);
        CONTINUO_UNROLL
        for (int i = 0; i < 2; ++i) {
          uint32_t low[2], high[2];
          WidenWord<typename S::Element, true>(low, words[2 * i]);
          WidenWord<typename S::Element, true>(high, words[2 * i + 1]);
          const uint32_t a[4] = {low[0], low[1], high[0], high[1]};
          CONTINUO_UNROLL
          for (int n = 0; n < S::kEights; ++n) {
            MultiplyAdd<typename S::Factor>(sums.sums[s + i][n], a, b[n][0], b[n][1]);
          }
        }
      }
    } else {
      CONTINUO_UNROLL
      for (int s = 0; s < S::kSteps; ++s) {
        uint32_t a[4];
        LoadMatricesTransposed(a, rows + lane / 16 * 8 * S::kStride + (2 * s + lane / 8 % 2) * 16);
        CONTINUO_UNROLL
        for (int n = 0; n < S::kEights; ++n) {
          MultiplyAdd<typename S::Factor>(sums.sums[s][n], a, b[n][0], b[n][1]);
        }
      }
    }
  }
}

}  // namespace continuo::kernels::cuda
