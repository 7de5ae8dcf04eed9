// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/attention/cpu_attention.h"
#include "kernels/cpu/matmul/cpu_experts.h"
#include "kernels/cpu/matmul/cpu_matmul.h"
#include "kernels/cpu/ops/cpu_adapter_ops.h"
#include "kernels/cpu/ops/cpu_row_ops.h"
#include "kernels/cpu/ops/cpu_state_ops.h"
#include "kernels/cpu/runtime/cpu_context.h"
#include "kernels/device.h"

namespace continuo::kernels::cpu {

// The host's CPU as a Device. Every call has done its work when it returns. Activations are f32 or
// bf16; weights, keys and values are f32, bf16 or f16, weights also packed, keys and values also
// int8. Tokens are sampled on the host.
class CpuDevice : public Device {
 public:
  // Its threads run on the processors of `place`, and its memory is on those nodes.
  CpuDevice(const KernelTable& kernels, int num_threads, host::Place place = {});
  ~CpuDevice() override;

  std::string name() const override;
  const Ops& ops() const override { return ops_; }

  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* data) override { Free(data); }
  bool SharesHostMemory() const override { return true; }
  void CopyIn(Tensor dst, const void* host) override;
  void CopyOut(void* host, Tensor src) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }
  void BindThread() override { host::BindThread(context_.place()); }
  void ParallelFor(int n, absl::FunctionRef<void(int)> body) override;

 private:
  CpuContext context_;
  CpuRowOps rows_;
  CpuMatMul matmul_;
  CpuAttention attention_;
  CpuExperts experts_;
  CpuStateOps states_;
  SamplingOps sampling_;
  CpuAdapterOps adapters_;
  const Ops ops_;
  std::unordered_map<void*, size_t> allocations_;  // bytes asked for at each address
};

}  // namespace continuo::kernels::cpu
