// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_runtime_api.h"

namespace continuo::kernels::cuda {

// Tells a launcher where to enqueue its kernels, and how. Stream::kernels() makes it.
struct KernelStream {
  cudaStream_t stream = nullptr;
  // Uses programmatic dependent launch (PDL): a kernel may start while the one before it ends, and
  // waits for it in WaitForPreviousKernel. Set only where HasPdlCode.
  bool pdl = false;
};

}  // namespace continuo::kernels::cuda
