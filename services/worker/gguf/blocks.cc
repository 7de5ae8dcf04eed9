// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/blocks.h"

#include <bit>
#include <cstring>

#include "kernels/group_format.h"
#include "kernels/math/bfloat16.h"

namespace continuo::gguf {
namespace {

constexpr int kBlock = 32;        // elements of a block of a Q4_0 and the like
constexpr int kSuperBlock = 256;  // elements of a block of a K-quant

float HalfAt(const uint8_t* at) {
  return kernels::FromF16(static_cast<uint16_t>(at[0] | at[1] << 8));
}

uint32_t WordAt(const uint8_t* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// Calls body(element, four bits) for a block of 32: the low halves of 16 bytes are the first 16
// elements, the high ones the others.
template <typename Body>
void ForNibbles(const uint8_t* bytes, const Body& body) {
  for (int i = 0; i < kBlock / 2; ++i) {
    body(i, bytes[i] & 15);
    body(i + kBlock / 2, bytes[i] >> 4);
  }
}

// Element i of 256 with two bits each: 128 elements share 32 bytes.
int TwoBitsAt(const uint8_t* bytes, int i) {
  return bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

// Element i of 256 with four bits each: 64 elements share 32 bytes, of which the low halves come
// first.
int NibbleOf64(const uint8_t* bytes, int i) {
  return bytes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
}

// Element i of Q6_K, six bits. In each 128 elements there are four runs of 32: two share 32 bytes
// of low bits with the two behind them, and all four share 32 bytes of high bits.
int SixBitsAt(const uint8_t* block, int i) {
  const uint8_t *low = block, *high = block + 128;
  const int half = i / 128, run = i % 128 / 32, at = i % 32;
  const int low_bits = low[half * 64 + run % 2 * 32 + at] >> (run / 2 * 4) & 15;
  const int high_bits = high[half * 32 + at] >> (run * 2) & 3;
  return low_bits | high_bits << 4;
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

// The scale of sub-block `sub` of 16 of Q3_K, from -32 to 31: six bits each, four in the first
// eight bytes, two in the last four.
int Q3KScale(const uint8_t* packed, int sub) {
  const int low_bits = sub < 8 ? packed[sub] & 15 : packed[sub - 8] >> 4;
  const int high_bits = packed[8 + sub % 4] >> (sub / 4 * 2) & 3;
  return (low_bits | high_bits << 4) - 32;
}

// The scale of sub-block `sub` of 8 of IQ4_XS, from -32 to 31.
int Iq4XsScale(const uint8_t* block, int sub) {
  const int high = block[2] | block[3] << 8;
  const uint8_t* const low = block + 4;
  return ((low[sub / 2] >> (sub % 2 * 4) & 15) | (high >> (sub * 2) & 3) << 4) - 32;
}

// Half of 2^(e - 127); the two smallest are no normal numbers.
float HalfPowerOfTwo(uint32_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

// Blocks of 32 whose elements are functions of four bits.
template <typename Element>
void DecodeNibbles(const uint8_t* bytes, float* out, const Element& element) {
  ForNibbles(bytes, [&](int i, int q) { out[i] = element(i, q); });
}

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
  for (int i = 0; i < kSuperBlock; ++i) {
    const int q = TwoBitsAt(quants, i);
    const int scale = scales[i / 16];
    const float factor = d * static_cast<float>(scale & 15);
    const float offset = min * static_cast<float>(scale >> 4);
    out[i] = factor * static_cast<float>(q) - offset;
  }
}

void DecodeQ3K(const uint8_t* block, float* out) {
  const uint8_t *high = block, *quants = block + 32, *packed = block + 96;
  const float d = HalfAt(block + 108);
  for (int i = 0; i < kSuperBlock; ++i) {
    const float factor = d * static_cast<float>(Q3KScale(packed, i / 16));
    const int q = TwoBitsAt(quants, i);
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
      const int q = NibbleOf64(quants, sub * 32 + i);
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
      const int q = NibbleOf64(quants, sub * 32 + i) | (high[i] >> sub & 1) << 4;
      out[sub * 32 + i] = factor * static_cast<float>(q) - subtracted;
    }
  }
}

void DecodeQ6K(const uint8_t* block, float* out) {
  const uint8_t* const scales = block + 192;
  const float d = HalfAt(block + 208);
  for (int i = 0; i < kSuperBlock; ++i) {
    const float factor = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = factor * static_cast<float>(SixBitsAt(block, i) - 32);
  }
}

void DecodeIq4Nl(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  DecodeNibbles(block + 2, out, [d](int, int q) { return d * kernels::kIq4Integers[q]; });
}

void DecodeIq4Xs(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const uint8_t* const quants = block + 8;
  for (int sub = 0; sub < 8; ++sub) {
    const float factor = d * static_cast<float>(Iq4XsScale(block, sub));
    DecodeNibbles(quants + sub * 16, out + sub * 32,
                  [factor](int, int q) { return factor * kernels::kIq4Integers[q]; });
  }
}

void DecodeMxfp4(const uint8_t* block, float* out) {
  const float half = HalfPowerOfTwo(block[0]);
  // The ninth value is -0.
  DecodeNibbles(block + 1, out, [half](int, int q) {
    return half * (q == 8 ? -0.0f : static_cast<float>(kernels::kFp4Integers[q]));
  });
}

namespace {

using kernels::GroupCodes;
using kernels::GroupScales;

void ReadQ40(const uint8_t* block, IntegerBlock& out) {
  out.scales[0] = HalfAt(block);
  ForNibbles(block + 2, [&](int i, int q) { out.integers[i] = static_cast<int8_t>(q - 8); });
}

void ReadQ41(const uint8_t* block, IntegerBlock& out) {
  out.scales[0] = HalfAt(block);
  out.minima[0] = HalfAt(block + 2);
  ForNibbles(block + 4, [&](int i, int q) { out.integers[i] = static_cast<int8_t>(q); });
}

void ReadQ50(const uint8_t* block, IntegerBlock& out) {
  out.scales[0] = HalfAt(block);
  const uint32_t high = WordAt(block + 2);
  ForNibbles(block + 6, [&](int i, int q) {
    out.integers[i] = static_cast<int8_t>((q | static_cast<int>(high >> i & 1) << 4) - 16);
  });
}

void ReadQ51(const uint8_t* block, IntegerBlock& out) {
  out.scales[0] = HalfAt(block);
  out.minima[0] = HalfAt(block + 2);
  const uint32_t high = WordAt(block + 4);
  ForNibbles(block + 8, [&](int i, int q) {
    out.integers[i] = static_cast<int8_t>(q | static_cast<int>(high >> i & 1) << 4);
  });
}

void ReadQ80(const uint8_t* block, IntegerBlock& out) {
  out.scales[0] = HalfAt(block);
  for (int i = 0; i < kBlock; ++i) out.integers[i] = static_cast<int8_t>(block[2 + i]);
}

void ReadQ2K(const uint8_t* block, IntegerBlock& out) {
  out.shared_scale = HalfAt(block + 80);
  out.shared_minimum = -HalfAt(block + 82);
  for (int i = 0; i < kSuperBlock / 16; ++i) {
    out.scales[i] = static_cast<float>(block[i] & 15);
    out.minima[i] = static_cast<float>(block[i] >> 4);
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    out.integers[i] = static_cast<int8_t>(TwoBitsAt(block + 16, i));
  }
}

void ReadQ3K(const uint8_t* block, IntegerBlock& out) {
  out.shared_scale = HalfAt(block + 108);
  for (int i = 0; i < kSuperBlock / 16; ++i) {
    out.scales[i] = static_cast<float>(Q3KScale(block + 96, i));
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    const int high = block[i % 32] >> (i / 32) & 1;
    out.integers[i] = static_cast<int8_t>(TwoBitsAt(block + 32, i) - (high != 0 ? 0 : 4));
  }
}

// The factors and groups of Q4_K and Q5_K.
void ReadScalesAndMinima(const uint8_t* block, IntegerBlock& out) {
  out.shared_scale = HalfAt(block);
  out.shared_minimum = -HalfAt(block + 2);
  for (int sub = 0; sub < 8; ++sub) {
    int scale, minimum;
    ScaleAndMin(block + 4, sub, &scale, &minimum);
    out.scales[sub] = static_cast<float>(scale);
    out.minima[sub] = static_cast<float>(minimum);
  }
}

void ReadQ4K(const uint8_t* block, IntegerBlock& out) {
  ReadScalesAndMinima(block, out);
  for (int i = 0; i < kSuperBlock; ++i) {
    out.integers[i] = static_cast<int8_t>(NibbleOf64(block + 16, i));
  }
}

void ReadQ5K(const uint8_t* block, IntegerBlock& out) {
  ReadScalesAndMinima(block, out);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int high = block[16 + i % 32] >> (i / 32) & 1;
    out.integers[i] = static_cast<int8_t>(NibbleOf64(block + 48, i) | high << 4);
  }
}

void ReadQ6K(const uint8_t* block, IntegerBlock& out) {
  out.shared_scale = HalfAt(block + 208);
  for (int i = 0; i < kSuperBlock / 16; ++i) {
    out.scales[i] = static_cast<float>(static_cast<int8_t>(block[192 + i]));
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    out.integers[i] = static_cast<int8_t>(SixBitsAt(block, i) - 32);
  }
}

void ReadIq4Nl(const uint8_t* block, IntegerBlock& out) {
  out.scales[0] = HalfAt(block);
  ForNibbles(block + 2, [&](int i, int q) { out.integers[i] = kernels::kIq4Integers[q]; });
}

void ReadIq4Xs(const uint8_t* block, IntegerBlock& out) {
  out.shared_scale = HalfAt(block);
  for (int sub = 0; sub < 8; ++sub) {
    out.scales[sub] = static_cast<float>(Iq4XsScale(block, sub));
    ForNibbles(block + 8 + sub * 16,
               [&](int i, int q) { out.integers[sub * 32 + i] = kernels::kIq4Integers[q]; });
  }
}

void ReadMxfp4(const uint8_t* block, IntegerBlock& out) {
  out.scales[0] = HalfPowerOfTwo(block[0]);
  ForNibbles(block + 1, [&](int i, int q) { out.integers[i] = kernels::kFp4Integers[q]; });
}

constexpr IntegerType kIntegerTypes[] = {
    {"Q4_0", 32, 18, 4, 32, GroupScales::kF16, false, GroupCodes::kIntegers, ReadQ40},
    {"Q4_1", 32, 20, 4, 32, GroupScales::kF16, true, GroupCodes::kIntegers, ReadQ41},
    {"Q5_0", 32, 22, 8, 32, GroupScales::kF16, false, GroupCodes::kIntegers, ReadQ50},
    {"Q5_1", 32, 24, 8, 32, GroupScales::kF16, true, GroupCodes::kIntegers, ReadQ51},
    {"Q8_0", 32, 34, 8, 32, GroupScales::kF16, false, GroupCodes::kIntegers, ReadQ80},
    {"Q2_K", 256, 84, 4, 16, GroupScales::kShared, true, GroupCodes::kIntegers, ReadQ2K},
    {"Q3_K", 256, 110, 4, 16, GroupScales::kShared, false, GroupCodes::kIntegers, ReadQ3K},
    {"Q4_K", 256, 144, 4, 32, GroupScales::kShared, true, GroupCodes::kIntegers, ReadQ4K},
    {"Q5_K", 256, 176, 8, 32, GroupScales::kShared, true, GroupCodes::kIntegers, ReadQ5K},
    {"Q6_K", 256, 210, 8, 16, GroupScales::kShared, false, GroupCodes::kIntegers, ReadQ6K},
    {"IQ4_NL", 32, 18, 4, 32, GroupScales::kF16, false, GroupCodes::kIq4, ReadIq4Nl},
    {"IQ4_XS", 256, 136, 4, 32, GroupScales::kShared, false, GroupCodes::kIq4, ReadIq4Xs},
    {"MXFP4", 32, 17, 4, 32, GroupScales::kF32, false, GroupCodes::kFp4, ReadMxfp4},
};

}  // namespace

const IntegerType* FindIntegerType(std::string_view name) {
  for (const IntegerType& type : kIntegerTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

}  // namespace continuo::gguf
