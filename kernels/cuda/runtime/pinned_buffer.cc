// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/pinned_buffer.h"

#include "absl/strings/str_cat.h"
#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {

absl::StatusOr<PinnedBuffer> PinnedBuffer::Make(int device, size_t bytes) {
  if (bytes == 0) return PinnedBuffer();
  RETURN_IF_ERROR(SetDevice(device));
  void* data = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&data, bytes), device,
                             absl::StrCat("cudaMallocHost of ", bytes, " bytes")));
  return PinnedBuffer(data, bytes);
}

PinnedBuffer::~PinnedBuffer() {
  // An error here belongs to earlier work, and whoever waits for that work gets it.
  if (data_ != nullptr) (void)cudaFreeHost(data_);
}

}  // namespace continuo::kernels::cuda
