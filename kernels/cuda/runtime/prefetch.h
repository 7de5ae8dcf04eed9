// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/launch.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {

// Prefetches bytes into the L2 cache; address and number are multiples of 16. No kernel may write
// that memory, so it is allowed before WaitForPreviousKernel, which no other access is. It does
// nothing on devices without programmatic dependent launch. Any thread may call it alone; the
// threads of a warp that call it together do so one after the other (PTX ISA,
// cp.async.bulk.prefetch).
__device__ inline void Prefetch([[maybe_unused]] const void* from, [[maybe_unused]] int64_t bytes) {
#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
               "r"(static_cast<uint32_t>(bytes)));
#endif
#else
  CONTINUO_CHECK(bytes > 0 && bytes % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0);
  // A device would read this memory, so it has to exist.
  const auto* const data = static_cast<const volatile char*>(from);
  (void)data[0];
  (void)data[bytes - 1];
#endif
}

}  // namespace continuo::kernels::cuda
