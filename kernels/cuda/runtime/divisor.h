// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/host_device.h"

namespace continuo::kernels::cuda {

// Divides by a number that is known at launch: a product and a shift replace the twenty
// instructions of an integer division on a device. With l the least number for which d ≤ 2^l, and m
// = floor(2^(31 + l) / d) + 1, n · m / 2^(31 + l) exceeds n / d by at most n / (d · 2^31), so for n
// < 2^31 its integer part is that of n / d.
class Divisor {
 public:
  // Requires 1 ≤ d < 2^31.
  static constexpr Divisor Of(uint32_t d) {
    int log2 = 0;
    while (uint64_t{1} << log2 < d) ++log2;
    Divisor divisor;
    divisor.shift_ = 31 + log2;
    divisor.multiplier_ = static_cast<uint32_t>((uint64_t{1} << divisor.shift_) / d + 1);
    return divisor;
  }
  // Returns n / d for n < 2^31.
  CONTINUO_HOST_DEVICE uint32_t Divide(uint32_t n) const {
    return static_cast<uint32_t>(uint64_t{n} * multiplier_ >> shift_);
  }

 private:
  uint32_t multiplier_ = 0;
  int shift_ = 0;
};

}  // namespace continuo::kernels::cuda
