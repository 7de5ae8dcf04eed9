// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace continuo::cuda {

absl::Status CudaStatus(cudaError_t error, int device, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  const std::string message =
      absl::StrCat("cuda:", device, ": ", what, ": ", cudaGetErrorString(error), " (",
                   cudaGetErrorName(error), ")");
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

absl::Status SetDevice(int device) {
  return CudaStatus(cudaSetDevice(device), device, "cudaSetDevice");
}

}  // namespace continuo::cuda
