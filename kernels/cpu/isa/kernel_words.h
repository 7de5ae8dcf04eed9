// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every instruction set's files begin with this header. C headers only; see kernel_table.h.

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/isa/kernel_table.h"

#define INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
