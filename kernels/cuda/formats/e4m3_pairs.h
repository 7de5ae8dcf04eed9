// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {

// Widens the two e4m3 numbers in the low or the high half of a word to f16, the first in the low
// half. f16 has all their values. Any thread may call it alone.
__device__ inline uint32_t WidenE4M3Pair(uint32_t word, bool of_high_half) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t pair = 0;  // PTX ISA, cvt.rn.f16x2.e4m3x2
  if (of_high_half) {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}"
        : "=r"(pair)
        : "r"(word));
  } else {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
        : "=r"(pair)
        : "r"(word));
  }
  return pair;
#else
  // Exponent and fraction lie where f16 has them, but for a bias that is lower by 8. The product
  // with 2^8 is exact, also of subnormal numbers, and adding -0 keeps the sign of 0.
  const uint32_t two = of_high_half ? word >> 16 : word;
  const uint32_t spread = (two & 0xff) | (two & 0xff00) << 8;
  const uint32_t sizes = (spread & 0x007f007f) << 7;
  const uint32_t pair =
      MultiplyAddPairs<Half>(sizes | (spread & 0x00800080) << 8, 0x5c005c00u, 0x80008000u);
  const uint32_t nan =
      ((sizes & 0xffff) == 0x3f80 ? 0x7e00u : 0) | (sizes >> 16 == 0x3f80 ? 0x7e000000u : 0);
  return pair | nan;
#endif
}

}  // namespace continuo::kernels::cuda
