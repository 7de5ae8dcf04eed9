// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/adapters/cuda_adapters.h"
#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/cuda/ops/cuda_row_ops.h"
#include "kernels/cuda/runtime/cuda_context.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_info.h"
#include "kernels/cuda/runtime/pinned_buffer.h"
#include "kernels/cuda/sampling/cuda_sampling.h"
#include "kernels/cuda/states/cuda_states.h"
#include "kernels/device.h"
#include "kernels/device_options.h"

namespace continuo::kernels::cuda {

// Raised whenever a kernel's bits change for some input; with `deterministic` part of the worker's
// fingerprint.
inline constexpr int kCudaArithmeticVersion = 5;

struct CudaDeviceOptions {
  DeviceInfo device;
  DeviceOptions options;  // its `device` and `graphs` are not used here
  // Only tests set the following.
  size_t scratch_bytes = size_t{64} << 20;  // as CudaContextOptions has it
  std::optional<bool> small_m = {};         // as CudaMatMulOptions has it
  size_t slice_bytes = size_t{16} << 20;    // as CudaMatMulOptions has it
};

// One CUDA device: its memory, its context, and its groups of ops.
class CudaDevice : public Device {
 public:
  // ResourceExhausted where the device has not enough memory for workspaces.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Make(const CudaDeviceOptions& options);
  ~CudaDevice() override;

  int index() const { return options_.device.index; }  // as in cuda:INDEX
  CudaContext& context() { return *context_; }

  std::string name() const override;
  const Ops& ops() const override { return ops_; }
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void FreeHost(void* data) override;
  void CopyIn(Tensor dst, const void* host) override { context_->CopyIn(dst, host); }
  void CopyOut(void* host, Tensor src) override { context_->CopyOut(host, src); }
  absl::Status Synchronize() override { return context_->Synchronize(); }
  int64_t RecordEvent() override { return context_->RecordEvent(); }
  absl::Status WaitForEvent(int64_t event) override { return context_->WaitForEvent(event); }
  double TakeBusySeconds() override { return context_->TakeBusySeconds(); }
  absl::Status RunGraph(std::span<const int64_t> key,
                        absl::FunctionRef<absl::Status()> enqueue) override {
    return context_->RunGraph(key, enqueue);
  }
  void DropGraphs() override { context_->DropGraphs(); }
  void ParallelFor(int n, absl::FunctionRef<void(int)> body) override {
    context_->ParallelFor(n, body);
  }

 private:
  CudaDevice(const CudaDeviceOptions& options, std::unique_ptr<CudaContext> context,
             std::unique_ptr<CudaRowOps> rows, std::unique_ptr<CudaMatMul> matmul);

  const CudaDeviceOptions options_;
  // The members are declared in the order of use: the groups refer to the context, and to each
  // other.
  const std::unique_ptr<CudaContext> context_;
  std::unordered_map<void*, DeviceBuffer> allocations_;
  std::unordered_map<void*, PinnedBuffer> host_allocations_;
  const std::unique_ptr<CudaRowOps> rows_;
  const std::unique_ptr<CudaMatMul> matmul_;
  CudaAttention attention_;
  CudaExperts experts_;
  CudaSampling sampling_;
  CudaStateOps states_;
  CudaAdapterOps adapters_;
  const Ops ops_;
};

}  // namespace continuo::kernels::cuda
