// SPDX-License-Identifier: Apache-2.0
#include "kernels/math/bfloat16.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace continuo::kernels {
namespace {

// The definition of a finite f16 (IEEE 754, binary16).
double NumberOf(int bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

TEST(BFloat16Test, F16HasTheNumbersOfItsDefinition) {
  for (int bits = 0; bits < 0x7c00; ++bits) {
    EXPECT_EQ(FromF16(static_cast<uint16_t>(bits)), NumberOf(bits));
    EXPECT_EQ(FromF16(static_cast<uint16_t>(bits | 0x8000)), -NumberOf(bits));
  }
  EXPECT_EQ(FromF16(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(FromF16(0x7c01)));
  EXPECT_TRUE(std::signbit(FromF16(0x8000)));
}

TEST(BFloat16Test, RoundingToF16IsToTheNearestOfTwoTheEvenOne) {
  const auto expect = [](float value, int bits) {
    EXPECT_EQ(ToF16(value), bits) << value;
    EXPECT_EQ(ToF16(-value), bits | 0x8000) << value;
  };
  // The number after the last one would be 65536, and is infinity.
  for (int bits = 0; bits < 0x7c00; ++bits) {
    const auto low = static_cast<float>(NumberOf(bits));
    const auto high = static_cast<float>(bits == 0x7bff ? 65536 : NumberOf(bits + 1));
    const float middle = low + (high - low) / 2;
    expect(low, bits);
    expect(std::nextafter(middle, 0.0f), bits);
    expect(middle, bits % 2 == 0 ? bits : bits + 1);
    expect(std::nextafter(middle, 1e6f), bits + 1);
    expect(std::nextafter(high, 0.0f), bits + 1);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {65520.0f, 65536.0f, 1e30f, infinity}) expect(value, 0x7c00);
  expect(std::numeric_limits<float>::denorm_min(), 0);
}

TEST(BFloat16Test, NanStaysOne) {
  for (const uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xffffffffu, 0xff801000u}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(FromF16(ToF16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(FromBF16(ToBF16(nan)))) << bits;
    EXPECT_EQ(ToF16(nan) & 0x8200, (bits >> 16 & 0x8000) | 0x200) << bits;
  }
}

}  // namespace
}  // namespace continuo::kernels
