// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/math/bfloat16.h"

// CONTINUO_HOST_DEVICE marks code that runs on the device and, so that tests reach it, on the host.
#ifdef __CUDACC__
#define CONTINUO_HOST_DEVICE __host__ __device__
#else
#define CONTINUO_HOST_DEVICE
#endif

namespace continuo::kernels::cuda {

CONTINUO_HOST_DEVICE inline int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }
CONTINUO_HOST_DEVICE inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

// Kernels see an element of a tensor as float (f32), as the bits in a uint16_t (bf16, as in
// kernels/math/bfloat16.h), or as a Half (f16).
struct Half {
  uint16_t bits;
};

CONTINUO_HOST_DEVICE inline float Widen(float value) { return value; }
CONTINUO_HOST_DEVICE inline float Widen(Half half) {
#ifdef __CUDA_ARCH__
  float value = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
  return value;
#else
  return FromF16(half.bits);
#endif
}
CONTINUO_HOST_DEVICE inline float Widen(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Rounds to nearest, ties to even. A NaN stays a NaN, though its bits may differ from the host's.
CONTINUO_HOST_DEVICE inline void Store(float* to, float value) { *to = value; }
CONTINUO_HOST_DEVICE inline void Store(Half* to, float value) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(value));
#else
  to->bits = ToF16(value);
#endif
}
CONTINUO_HOST_DEVICE inline void Store(uint16_t* to, float value) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*to) : "f"(value));
#else
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  *to = (bits & 0x7fffffffu) > 0x7f800000u
            ? static_cast<uint16_t>((bits >> 16) | 0x40u)
            : static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

}  // namespace continuo::kernels::cuda
