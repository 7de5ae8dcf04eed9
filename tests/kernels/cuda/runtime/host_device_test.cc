// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/host_device.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/cuda/attention/byte_tile.h"
#include "kernels/cuda/formats/fp8.h"
#include "kernels/math/bfloat16.h"
#include "tests/kernels/kv_bytes.h"

namespace continuo::kernels::cuda {
namespace {

TEST(HostDeviceTest, Bf16IsThatOfTheHost) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto wide = FromBF16(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<uint32_t>(Widen(static_cast<uint16_t>(bits))),
              std::bit_cast<uint32_t>(wide));
    // The numbers are halfway between two others, and beside that.
    for (const uint32_t low : {0u, 0x7fffu, 0x8000u, 0x8001u}) {
      const float value = std::bit_cast<float>(bits << 16 | low);
      uint16_t stored = 0;
      Store(&stored, value);
      EXPECT_EQ(stored, ToBF16(value)) << bits << ' ' << low;
    }
  }
}

TEST(HostDeviceTest, E4M3HasTheNumbersOfItsDefinition) {
  EXPECT_EQ(FromE4M3(0x00), 0);
  EXPECT_EQ(FromE4M3(0x01), 0x1p-9f);
  EXPECT_EQ(FromE4M3(0x07), 0x7p-9f);
  EXPECT_EQ(FromE4M3(0x08), 0x1p-6f);
  EXPECT_EQ(FromE4M3(0x38), 1);
  EXPECT_EQ(FromE4M3(0x7e), 448);
  EXPECT_TRUE(std::isnan(FromE4M3(0x7f)));
  EXPECT_TRUE(std::isnan(FromE4M3(0xff)));
  EXPECT_TRUE(std::signbit(FromE4M3(0x80)));
  EXPECT_EQ(FromE4M3(0xb8), -1);
  for (int byte = 0; byte < 0x100; ++byte) {
    if ((byte & 0x7f) == 0x7f) continue;
    const float value = FromE4M3(static_cast<uint8_t>(byte));
    EXPECT_EQ(value, testing::E4M3Value(static_cast<uint8_t>(byte))) << byte;
    EXPECT_EQ(ToE4M3(value), byte);
    EXPECT_EQ(testing::NearestE4M3(value), byte);
  }
}

TEST(HostDeviceTest, E4M3IsTheNearestOfItsNumbersTheEvenOneOfTwo) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = FromE4M3(static_cast<uint8_t>(bits));
    const float high = FromE4M3(static_cast<uint8_t>(bits + 1));
    ASSERT_LT(low, high);
    const float middle = low + (high - low) / 2;
    const auto expect = [&](float value, int expected) {
      EXPECT_EQ(ToE4M3(value), expected) << value;
      EXPECT_EQ(ToE4M3(-value), expected | 0x80) << value;
    };
    expect(low, bits);
    expect(std::nextafter(middle, 0.0f), bits);
    expect(middle, bits % 2 == 0 ? bits : bits + 1);
    expect(std::nextafter(middle, 1000.0f), bits + 1);
    expect(std::nextafter(high, 0.0f), bits + 1);
  }
  for (const float large : {448.0f, 449.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(ToE4M3(large), 0x7e);
    EXPECT_EQ(ToE4M3(-large), 0xfe);
  }
  EXPECT_EQ(ToE4M3(-std::numeric_limits<float>::quiet_NaN()), 0x7f);
  EXPECT_EQ(ToE4M3Pair(1, -448), 0xfe38);
  EXPECT_EQ(ToE4M3(std::numeric_limits<float>::denorm_min()), 0);
}

// Bytes of a cache are widened as tensor cores take them, two at a time, beside every kind of other
// byte.
template <typename Number>
void CheckBytes() {
  const auto number = [](uint32_t pair) {
    return Widen(std::bit_cast<Number>(static_cast<uint16_t>(pair)));
  };
  for (int byte = 0; byte < 0x100; ++byte) {
    for (const int other : {0, 1, 8, 0x7e, 0x80, 0x81, 0xfe, byte}) {
      const uint32_t two = static_cast<uint32_t>(byte) | static_cast<uint32_t>(other) << 16;
      const uint32_t integers = WidenPair<Number, int8_t>(two);
      EXPECT_EQ(number(integers), static_cast<int8_t>(byte));
      EXPECT_EQ(number(integers >> 16), static_cast<int8_t>(other));
      if ((byte & 0x7f) == 0x7f) continue;  // WriteKv writes no NaN
      const uint32_t numbers = WidenPair<Number, uint8_t>(two);
      EXPECT_EQ(number(numbers), FromE4M3(static_cast<uint8_t>(byte)));
      EXPECT_EQ(number(numbers >> 16), FromE4M3(static_cast<uint8_t>(other)));
    }
  }
}

TEST(HostDeviceTest, BytesBecomeTheirNumbers) {
  CheckBytes<uint16_t>();
  CheckBytes<Half>();
  EXPECT_EQ(PickBytes<0x4140>(0x44332211), 0x00220011u);
  EXPECT_EQ(PickBytes<0x4342>(0x44332211), 0x00440033u);
}

}  // namespace
}  // namespace continuo::kernels::cuda
