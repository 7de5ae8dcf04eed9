// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace continuo::kernels::cuda {

absl::Status CudaStatus(cudaError_t error, int device, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  std::string message = absl::StrCat("cuda:", device, ": ", what, ": ", cudaGetErrorString(error),
                                     " (", cudaGetErrorName(error), ")");
  if (error != cudaErrorMemoryAllocation) return absl::InternalError(message);
  size_t free = 0, total = 0;
  if (cudaSetDevice(device) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
    absl::StrAppend(&message, "; ", free, " of the device's ", total, " bytes are free");
  }
  (void)cudaGetLastError();  // cudaMemGetInfo and cudaGetDevice may have set it
  return absl::ResourceExhaustedError(message);
}

absl::Status SetDevice(int device) {
  return CudaStatus(cudaSetDevice(device), device, "cudaSetDevice");
}

}  // namespace continuo::kernels::cuda
