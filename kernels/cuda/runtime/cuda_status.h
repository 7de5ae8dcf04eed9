// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace continuo::kernels::cuda {

// Returns OK for cudaSuccess. Out of memory is ResourceExhausted: "cuda:1: <what>: out of memory
// (cudaErrorMemoryAllocation); 512 of the device's 4096 bytes are free". Every other error is
// Internal. The calling thread's last error is cleared, so that a kernel launched later is not
// blamed for it.
absl::Status CudaStatus(cudaError_t error, int device, absl::string_view what);

// Makes `device` the calling thread's current device.
absl::Status SetDevice(int device);

}  // namespace continuo::kernels::cuda
