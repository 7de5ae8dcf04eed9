// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include "kernels/cpu/isa/kernel_words.h"

// Defines AddProducts<kP>(acc, w, x): acc[p] += w[p] · the four bytes at x, in every lane, by one
// instruction for each p. It is inline assembly, since GCC 12 copies the intrinsics' accumulators
// and loads all of x first, until nothing fits the registers.
typedef int32_t FourBytes __attribute__((may_alias, aligned(1)));

#define DEFINE_ADD_PRODUCTS(Vec, INSTRUCTION)                                               \
  template <size_t kP>                                                                      \
  INLINE void AddProducts(Vec* acc, const __m512i* w, const uint8_t* x) {                   \
    const FourBytes& four = *reinterpret_cast<const FourBytes*>(x);                         \
    __m512i t;                                                                              \
    if constexpr (kP == 1) {                                                                \
      asm("vpbroadcastd %2, %1\n\t" INSTRUCTION " %1, %3, %0"                               \
          : "+v"(acc[0]), "=&v"(t)                                                          \
          : "m"(four), "v"(w[0]));                                                          \
    } else if constexpr (kP == 2) {                                                         \
      asm("vpbroadcastd %3, %2\n\t" INSTRUCTION " %2, %4, %0\n\t" INSTRUCTION " %2, %5, %1" \
          : "+v"(acc[0]), "+v"(acc[1]), "=&v"(t)                                            \
          : "m"(four), "v"(w[0]), "v"(w[1]));                                               \
    } else {                                                                                \
      static_assert(kP == 4);                                                               \
      asm("vpbroadcastd %5, %4\n\t" INSTRUCTION " %4, %6, %0\n\t" INSTRUCTION               \
          " %4, %7, %1\n\t" INSTRUCTION " %4, %8, %2\n\t" INSTRUCTION " %4, %9, %3"         \
          : "+v"(acc[0]), "+v"(acc[1]), "+v"(acc[2]), "+v"(acc[3]), "=&v"(t)                \
          : "m"(four), "v"(w[0]), "v"(w[1]), "v"(w[2]), "v"(w[3]));                         \
    }                                                                                       \
  }
