// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/host_device.h"

#include <bit>

#include "gtest/gtest.h"
#include "kernels/bfloat16.h"

namespace continuo::cuda {
namespace {

TEST(HostDeviceTest, Bf16IsThatOfTheHost) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto wide = FromBF16(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<uint32_t>(Widen(static_cast<uint16_t>(bits))),
              std::bit_cast<uint32_t>(wide));
    // Halfway to the next, and beside that.
    for (const uint32_t low : {0u, 0x7fffu, 0x8000u, 0x8001u}) {
      const float value = std::bit_cast<float>(bits << 16 | low);
      uint16_t stored = 0;
      Store(&stored, value);
      EXPECT_EQ(stored, ToBF16(value)) << bits << ' ' << low;
    }
  }
}

}  // namespace
}  // namespace continuo::cuda
