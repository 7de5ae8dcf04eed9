// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/blocks.h"

#include <bit>
#include <cstring>

#include "kernels/math/bfloat16.h"

namespace continuo::gguf {
namespace {

constexpr int kBlock = 32;   // elements of a block of a Q4_0 and the like
constexpr int kGroup = 256;  // elements of a block of a K-quant

float HalfAt(const uint8_t* at) {
  return kernels::FromF16(static_cast<uint16_t>(at[0] | at[1] << 8));
}

uint32_t WordAt(const uint8_t* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// Blocks of 32: the low halves of 16 bytes are the first 16 elements, the high ones the others.
template <typename Element>
void DecodeNibbles(const uint8_t* bytes, float* out, const Element& element) {
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = element(i, bytes[i] & 15);
    out[i + kBlock / 2] = element(i + kBlock / 2, bytes[i] >> 4);
  }
}

// The scale and the minimum of sub-block `i` of 8, six bits each, in the 12 bytes of Q4_K and Q5_K.
void ScaleAndMin(const uint8_t* packed, int i, int* scale, int* min) {
  if (i < 4) {
    *scale = packed[i] & 63;
    *min = packed[i + 4] & 63;
  } else {
    *scale = (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4;
    *min = (packed[i + 4] >> 4) | (packed[i] >> 6) << 4;
  }
}

constexpr float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of FP4 (e2m1), so that they are whole.
constexpr float kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};

}  // namespace

void DecodeQ40(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  DecodeNibbles(block + 2, out, [d](int, int q) { return d * static_cast<float>(q - 8); });
}

void DecodeQ41(const uint8_t* block, float* out) {
  const float d = HalfAt(block), m = HalfAt(block + 2);
  DecodeNibbles(block + 4, out, [d, m](int, int q) { return d * static_cast<float>(q) + m; });
}

void DecodeQ50(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const uint32_t high = WordAt(block + 2);
  DecodeNibbles(block + 6, out, [d, high](int i, int q) {
    const int value = q | static_cast<int>(high >> i & 1) << 4;
    return d * static_cast<float>(value - 16);
  });
}

void DecodeQ51(const uint8_t* block, float* out) {
  const float d = HalfAt(block), m = HalfAt(block + 2);
  const uint32_t high = WordAt(block + 4);
  DecodeNibbles(block + 8, out, [d, m, high](int i, int q) {
    const int value = q | static_cast<int>(high >> i & 1) << 4;
    return d * static_cast<float>(value) + m;
  });
}

void DecodeQ80(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < kBlock; ++i) {
    out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

void DecodeQ2K(const uint8_t* block, float* out) {
  const uint8_t *scales = block, *quants = block + 16;
  const float d = HalfAt(block + 80), min = HalfAt(block + 82);
  for (int i = 0; i < kGroup; ++i) {
    // 128 elements share 32 bytes, two bits of each.
    const int shift = i % 128 / 32 * 2;
    const int q = quants[i / 128 * 32 + i % 32] >> shift & 3;
    const int scale = scales[i / 16];
    const float factor = d * static_cast<float>(scale & 15);
    const float offset = min * static_cast<float>(scale >> 4);
    out[i] = factor * static_cast<float>(q) - offset;
  }
}

void DecodeQ3K(const uint8_t* block, float* out) {
  const uint8_t *high = block, *quants = block + 32, *packed = block + 96;
  const float d = HalfAt(block + 108);
  for (int i = 0; i < kGroup; ++i) {
    // Six bits of each of 16 scales: four in the first eight bytes, two in the last four.
    const int sub = i / 16;
    const int low_bits = sub < 8 ? packed[sub] & 15 : packed[sub - 8] >> 4;
    const int high_bits = packed[8 + sub % 4] >> (sub / 4 * 2) & 3;
    const float factor = d * static_cast<float>((low_bits | high_bits << 4) - 32);
    const int shift = i % 128 / 32 * 2;
    const int q = quants[i / 128 * 32 + i % 32] >> shift & 3;
    const int has_high = high[i % 32] >> (i / 32) & 1;
    out[i] = factor * static_cast<float>(q - (has_high != 0 ? 0 : 4));
  }
}

void DecodeQ4K(const uint8_t* block, float* out) {
  const float d = HalfAt(block), min = HalfAt(block + 2);
  const uint8_t *packed = block + 4, *quants = block + 16;
  for (int sub = 0; sub < 8; ++sub) {
    int scale, offset;
    ScaleAndMin(packed, sub, &scale, &offset);
    const float factor = d * static_cast<float>(scale);
    const float subtracted = min * static_cast<float>(offset);
    for (int i = 0; i < 32; ++i) {
      const int q = quants[sub / 2 * 32 + i] >> (sub % 2 * 4) & 15;
      out[sub * 32 + i] = factor * static_cast<float>(q) - subtracted;
    }
  }
}

void DecodeQ5K(const uint8_t* block, float* out) {
  const float d = HalfAt(block), min = HalfAt(block + 2);
  const uint8_t *packed = block + 4, *high = block + 16, *quants = block + 48;
  for (int sub = 0; sub < 8; ++sub) {
    int scale, offset;
    ScaleAndMin(packed, sub, &scale, &offset);
    const float factor = d * static_cast<float>(scale);
    const float subtracted = min * static_cast<float>(offset);
    for (int i = 0; i < 32; ++i) {
      const int low_bits = quants[sub / 2 * 32 + i] >> (sub % 2 * 4) & 15;
      const int q = low_bits | (high[i] >> sub & 1) << 4;
      out[sub * 32 + i] = factor * static_cast<float>(q) - subtracted;
    }
  }
}

void DecodeQ6K(const uint8_t* block, float* out) {
  const uint8_t *low = block, *high = block + 128, *scales = block + 192;
  const float d = HalfAt(block + 208);
  for (int i = 0; i < kGroup; ++i) {
    // In each 128 elements there are four runs of 32: two share 32 bytes of low bits with the two
    // behind them, and all four share 32 bytes of high bits.
    const int half = i / 128, run = i % 128 / 32, at = i % 32;
    const int low_bits = low[half * 64 + run % 2 * 32 + at] >> (run / 2 * 4) & 15;
    const int high_bits = high[half * 32 + at] >> (run * 2) & 3;
    const float factor = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = factor * static_cast<float>((low_bits | high_bits << 4) - 32);
  }
}

void DecodeIq4Nl(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  DecodeNibbles(block + 2, out, [d](int, int q) { return d * kIq4Values[q]; });
}

void DecodeIq4Xs(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const int high = block[2] | block[3] << 8;
  const uint8_t *low = block + 4, *quants = block + 8;
  for (int sub = 0; sub < 8; ++sub) {
    const int scale = (low[sub / 2] >> (sub % 2 * 4) & 15) | (high >> (sub * 2) & 3) << 4;
    const float factor = d * static_cast<float>(scale - 32);
    DecodeNibbles(quants + sub * 16, out + sub * 32,
                  [factor](int, int q) { return factor * kIq4Values[q]; });
  }
}

void DecodeMxfp4(const uint8_t* block, float* out) {
  // Half of 2^(e - 127); the two smallest are no normal numbers.
  const uint32_t e = block[0];
  const float half = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  DecodeNibbles(block + 1, out, [half](int, int q) { return half * kFp4Values[q]; });
}

}  // namespace continuo::gguf
