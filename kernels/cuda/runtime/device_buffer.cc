// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/device_buffer.h"

#include "absl/strings/str_cat.h"
#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Make(int device, size_t bytes) {
  if (bytes == 0) return DeviceBuffer();
  RETURN_IF_ERROR(SetDevice(device));
  void* data = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaMalloc(&data, bytes), device,
                             absl::StrCat("cudaMalloc of ", bytes, " bytes")));
  return DeviceBuffer(data, bytes);
}

DeviceBuffer::~DeviceBuffer() {
  // An error here belongs to earlier work, and whoever waits for that work gets it.
  if (data_ != nullptr) (void)cudaFree(data_);
}

}  // namespace continuo::kernels::cuda
