// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
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
  for (const auto& [data, bytes] : allocations_) munmap(data, bytes);
}

std::string CpuDevice::name() const { return absl::StrCat("cpu/", context_.kernels().name); }

absl::StatusOr<void*> CpuDevice::Allocate(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t size = std::max<size_t>(bytes, 1);
  // Fresh pages are zeroed, and taken from the machine only when touched.
  void* const data =
      size > std::numeric_limits<size_t>::max() / 2
          ? MAP_FAILED
          : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes on cpu"));
  }
  if (size >= kHuge) madvise(data, size, MADV_HUGEPAGE);
  host::BindMemory(context_.place(), data, size);
  allocations_.emplace(data, size);
  return data;
}

void CpuDevice::Free(void* data) {
  if (data == nullptr) return;
  const auto it = allocations_.find(data);
  CONTINUO_CHECK(it != allocations_.end());
  munmap(data, it->second);
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
