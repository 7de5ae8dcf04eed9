// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

// Keys and values that are bytes: how they become numbers of 16 bits, and what a warp computes with
// those that it makes itself. For .cu files.
namespace continuo::kernels::cuda {

// The numbers of two bytes, bits 0 to 7 and 16 to 23 of a word, whatever the other bits. bf16 has 8
// significant bits and f16 11, which is enough for both types, so this is exact. e4m3's NaN, 0x7f
// and 0xff, becomes ±480; nothing writes it to a cache.
template <typename Number, typename cpu::Element>
__device__ inline uint32_t WidenPair(uint32_t two) {
  constexpr bool kIsHalf = std::is_same_v<Number, Half>;
  static_assert(std::is_same_v<cpu::Element, int8_t> || std::is_same_v<cpu::Element, uint8_t>);
  // Integers: the number of an exponent whose units are 1 and of a fraction of their low seven
  // bits; less the former, and of negative ones 128. e4m3: its exponent has a bias of 7 instead of
  // Number's; numbers below the normal ones are that in all.
  if constexpr (std::is_same_v<cpu::Element, uint8_t> && kIsHalf) {
    return MultiplyAddPairs<Number>((two << 7 & 0x3f803f80) | (two << 8 & 0x80008000), 0x5c005c00,
                                    0x80008000);  // times 2^8, less zero
  } else if constexpr (std::is_same_v<cpu::Element, uint8_t>) {
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

template <typename Number, typename cpu::Element>
__device__ inline Chunk<uint32_t, 4> WidenEight(const Chunk<uint32_t, 2>& bytes) {
  Chunk<uint32_t, 4> pairs;
  CONTINUO_UNROLL
  for (int j = 0; j < 2; ++j) {
    pairs.at[2 * j] = WidenPair<Number, cpu::Element>(PickBytes<0x4140>(bytes.at[j]));
    pairs.at[2 * j + 1] = WidenPair<Number, cpu::Element>(PickBytes<0x4342>(bytes.at[j]));
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

// A warp's queries where keys are bytes (Shape::kIsDirect), as MultiplyAdd takes its first factor:
// of 64 elements, thread q of a row's four has 16 q to 16 q + 15, and of each four of them, a step,
// elements 0 and 2 side by side and then 1 and 3, as they come of a word of bytes. Which order the
// elements of a sum have is free if both factors have it.
template <typename S>
struct QueryPairs {
  uint32_t at[S::kDim / 64][4][4];  // [64 elements, step]: a of MultiplyAdd

  __device__ explicit QueryPairs(const typename S::Number* queries) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane / 4, q = lane % 4;
    CONTINUO_UNROLL
    for (int d = 0; d < S::kDim / 64; ++d) {
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto* const from = reinterpret_cast<const uint32_t*>(
            queries + (r + half * 8) * S::kStride + d * 64 + q * 16);
        CONTINUO_UNROLL
        for (int i = 0; i < 2; ++i) {
          const Chunk<uint32_t, 4> words = LoadChunk<4>(from + i * 4);
          CONTINUO_UNROLL
          for (int j = 0; j < 2; ++j) {
            const uint32_t low = words.at[2 * j], high = words.at[2 * j + 1];
            at[d][2 * i + j][half] = (low & 0xffff) | high << 16;
            at[d][2 * i + j][2 + half] = low >> 16 | (high & 0xffff0000);
          }
        }
      }
    }
  }
};

// Score of keys that are bytes of a stage, the warp's slice beginning with row `first`.
template <typename S>
__device__ void ScoreBytes(float (&scores)[S::kSlice / 8][4], const QueryPairs<S>& queries,
                           const unsigned char* keys, int first) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, q = lane % 4;
  CONTINUO_UNROLL
  for (int i = 0; i < S::kSlice / 8; ++i) {
    const int row = first + i * 8 + lane / 4;
    CONTINUO_UNROLL
    for (int j = 0; j < 4; ++j) scores[i][j] = 0;
    CONTINUO_UNROLL
    for (int d = 0; d < S::kDim / 64; ++d) {
      const Chunk<uint32_t, 4> words = LoadChunk<4>(reinterpret_cast<const uint32_t*>(
          keys + row * S::kDim + S::PieceOf(row, d * 4 + q) * 16));
      CONTINUO_UNROLL
      for (int s = 0; s < 4; ++s) {
        MultiplyAdd<typename S::Number>(
            scores[i], queries.at[d][s],
            WidenPair<typename S::Number, typename S::Element>(words.at[s]),
            WidenPair<typename S::Number, typename S::Element>(words.at[s] >> 8));
      }
    }
  }
}

// AddValues of values that are bytes of a stage. Two bytes side by side go through LoadMatrices as
// one element, so that a word has them of two positions: of the first elements, and of the second.
template <typename S>
__device__ void AddByteValues(Accumulator<S>& acc, const float (&weights)[S::kSlice / 8][4],
                              const unsigned char* values, int first) {
  using Number = typename S::ValueNumber;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto widen = [](uint32_t word) { return WidenPair<Number, typename S::Element>(word); };
  CONTINUO_UNROLL
  for (int p = 0; p < S::kSlice; p += 16) {
    uint32_t a[4];
    RoundWeights<Number>(a, weights[p / 8], weights[p / 8 + 1]);
    const int row = first + p + lane / 8 % 2 * 8 + lane % 8;
    CONTINUO_UNROLL
    for (int d = 0; d < S::kDim; d += 32) {
      uint32_t b[4];
      LoadMatricesTransposed(b, values + row * S::kDim + S::PieceOf(row, d / 16 + lane / 16) * 16);
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        const uint32_t one = b[2 * half], other = b[2 * half + 1];
        MultiplyAdd<Number>(acc.sums[d / 8 + 2 * half], a, widen(one), widen(other));
        MultiplyAdd<Number>(acc.sums[d / 8 + 2 * half + 1], a, widen(one >> 8), widen(other >> 8));
      }
    }
  }
}

}  // namespace continuo::kernels::cuda
