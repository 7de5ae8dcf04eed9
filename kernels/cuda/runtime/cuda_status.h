// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace continuo::kernels::cuda {

// OK, or "cuda:1: <what>: out of memory (cudaErrorMemoryAllocation); 512 of the device's 4096 bytes
// are free", which is ResourceExhausted; what else fails is Internal. The error is taken from the
// calling thread's last error, so that a kernel launched later is not blamed for it.
absl::Status CudaStatus(cudaError_t error, int device, absl::string_view what);

// Makes `device` the calling thread's.
absl::Status SetDevice(int device);

}  // namespace continuo::kernels::cuda
