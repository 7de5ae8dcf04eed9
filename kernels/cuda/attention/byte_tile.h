// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

// 8-bit keys and values: how a block widens them to 16 bits. Only .cu files include this header.
namespace continuo::kernels::cuda {

// Widens two bytes, bits 0 to 7 and 16 to 23 of a word, whatever the other bits are. bf16 has 8
// significant bits and f16 11, enough for both types, so this is exact. e4m3's NaN, 0x7f and 0xff,
// becomes ±480; nothing writes it to a cache.
template <typename Number, typename Element>
__device__ inline uint32_t WidenPair(uint32_t two) {
  constexpr bool kIsHalf = std::is_same_v<Number, Half>;
  static_assert(std::is_same_v<Element, int8_t> || std::is_same_v<Element, uint8_t>);
  // Integers: the low seven bits become the fraction of a number whose exponent makes their unit 1,
  // less that number, and for negative ones less 128. e4m3: its exponent has a bias of 7 instead of
  // Number's, and its subnormals are Number's subnormals then.
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

// Widens a stage of bytes to a tile, once for all warps of the block. Neighbouring threads read 8
// bytes and write 16, without bank conflicts.
template <typename S>
__device__ void WidenTile(unsigned char* tile, const unsigned char* stage) {
  constexpr int kChunks = S::kDim / 8, kRows = 2 * S::kTile;
  const auto* const words = reinterpret_cast<const uint32_t*>(stage);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += S::kThreads) {
    const Chunk<uint32_t, 2> bytes = LoadChunk<2>(words + 2 * i);
    constexpr bool kAlike = std::is_same_v<typename S::Number, typename S::ValueNumber>;
    Chunk<uint32_t, 4> pairs;
    if (kAlike || i < S::kTile * kChunks) {
      pairs = WidenEight<typename S::Number, typename S::Element>(bytes);
    } else {
      pairs = WidenEight<typename S::ValueNumber, typename S::Element>(bytes);
    }
    auto* const row = reinterpret_cast<uint32_t*>(tile) + i / kChunks * (S::kStride / 2);
    StoreChunk<4>(row + i % kChunks * 4, pairs);
  }
  const uint32_t* const from = words + kRows * S::kDim / 4;
  uint32_t* const to = reinterpret_cast<uint32_t*>(tile) + kRows * S::kStride / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kRows; i += S::kThreads) to[i] = from[i];
}

// Multiplies scores of 8-bit keys by the keys' scales.
template <typename S>
__device__ void ScaleScores(float (&scores)[S::kTile / 8][4], const float* scales) {
  const int c = static_cast<int>(threadIdx.x) % 4 * 2;
  CONTINUO_UNROLL
  for (int i = 0; i < S::kTile / 8; ++i) {
    const Chunk<float, 2> scale = LoadChunk<2>(scales + i * 8 + c);
    CONTINUO_UNROLL
    for (int j = 0; j < 4; ++j) scores[i][j] *= scale.at[j % 2];
  }
}

}  // namespace continuo::kernels::cuda
