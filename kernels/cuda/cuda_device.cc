// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Make(const CudaDeviceOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context,
                   CudaContext::Make({.device = options.device,
                                      .num_threads = options.options.num_threads,
                                      .pdl = options.options.pdl,
                                      .scratch_bytes = options.scratch_bytes}));
  auto rows = std::make_unique<CudaRowOps>(*context);
  ASSIGN_OR_RETURN(std::unique_ptr<CudaMatMul> matmul,
                   CudaMatMul::Make(*context, *rows,
                                    {.deterministic = options.options.deterministic,
                                     .fp8_fast_accumulation = options.options.fp8_fast_accumulation,
                                     .small_m = options.small_m,
                                     .slice_bytes = options.slice_bytes}));
  return std::unique_ptr<CudaDevice>(
      new CudaDevice(options, std::move(context), std::move(rows), std::move(matmul)));
}

CudaDevice::CudaDevice(const CudaDeviceOptions& options, std::unique_ptr<CudaContext> context,
                       std::unique_ptr<CudaRowOps> rows, std::unique_ptr<CudaMatMul> matmul)
    : options_(options),
      context_(std::move(context)),
      rows_(std::move(rows)),
      matmul_(std::move(matmul)),
      attention_(*context_, *rows_,
                 {.deterministic = options.options.deterministic,
                  .wgmma_prefill = options.options.wgmma_prefill}),
      experts_(*context_, *rows_, *matmul_, options.options.deterministic),
      sampling_(*context_),
      states_(*context_),
      adapters_(*context_),
      ops_{*matmul_, *rows_, attention_, experts_, states_, sampling_, &adapters_} {}

CudaDevice::~CudaDevice() {
  // Memory must not be in use when it is freed. An error belongs to earlier work.
  (void)context_->stream().Synchronize();
}

std::string CudaDevice::name() const {
  const DeviceInfo& d = options_.device;
  const std::string arch = absl::StrCat("cuda/sm_", d.major, d.minor,
                                        options_.options.fp8_fast_accumulation ? " fast fp8" : "");
  if (!options_.options.deterministic) return arch;
  // These decide the bits: cuBLASLt picks algorithms by the device.
  return absl::StrCat(arch, " ", d.name, " cublasLt ", cublasLtGetVersion(), " kernels ",
                      kCudaArithmeticVersion, " deterministic");
}

absl::StatusOr<void*> CudaDevice::Allocate(size_t bytes) {
  ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Make(index(), std::max<size_t>(bytes, 1)));
  void* const data = buffer.data();
  RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(data, 0, buffer.bytes(), context_->stream().get()),
                             index(), "cudaMemsetAsync"));
  allocations_.emplace(data, std::move(buffer));
  return data;
}

void CudaDevice::Free(void* data) {
  if (data == nullptr) return;
  CONTINUO_CHECK(allocations_.erase(data) == 1);
}

absl::StatusOr<void*> CudaDevice::AllocateHost(size_t bytes) {
  ASSIGN_OR_RETURN(PinnedBuffer buffer, PinnedBuffer::Make(index(), std::max<size_t>(bytes, 1)));
  void* const data = buffer.data();
  host_allocations_.emplace(data, std::move(buffer));
  return data;
}

void CudaDevice::FreeHost(void* data) {
  if (data == nullptr) return;
  CONTINUO_CHECK(host_allocations_.erase(data) == 1);
}

}  // namespace continuo::kernels::cuda
