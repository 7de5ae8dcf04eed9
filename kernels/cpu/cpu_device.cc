// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_device.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/host/large_memory.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {

CpuDevice::CpuDevice(const KernelTable& kernels, int num_threads, host::Place place)
    : context_(kernels, num_threads, std::move(place)),
      rows_(context_),
      matmul_(context_, rows_),
      attention_(context_, rows_),
      experts_(context_, rows_, matmul_),
      states_(context_),
      adapters_(context_),
      ops_{matmul_, rows_, attention_, experts_, states_, sampling_, &adapters_} {}

CpuDevice::~CpuDevice() {
  for (const auto& [data, bytes] : allocations_) host::UnmapMemory(data, bytes);
}

std::string CpuDevice::name() const { return absl::StrCat("cpu/", context_.kernels().name); }

absl::StatusOr<void*> CpuDevice::Allocate(size_t bytes) {
  void* const data = host::MapMemory(bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes on cpu"));
  }
  host::BindMemory(context_.place(), data, bytes);
  allocations_.emplace(data, bytes);
  return data;
}

void CpuDevice::Free(void* data) {
  if (data == nullptr) return;
  const auto it = allocations_.find(data);
  CONTINUO_CHECK(it != allocations_.end());
  host::UnmapMemory(data, it->second);
  allocations_.erase(it);
}

void CpuDevice::CopyIn(Tensor dst, const void* host) {
  if (dst.bytes() > 0) std::memcpy(dst.data, host, dst.bytes());
}

void CpuDevice::CopyOut(void* host, Tensor src) {
  if (src.bytes() > 0) std::memcpy(host, src.data, src.bytes());
}

void CpuDevice::ParallelFor(int n, absl::FunctionRef<void(int)> body) {
  context_.pool().Run(n, [&](int i, int) { body(i); });
}

}  // namespace continuo::kernels::cpu
