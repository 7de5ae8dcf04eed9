// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/runtime/cpu_context.h"

#include <algorithm>
#include <utility>

namespace continuo::kernels::cpu {
namespace {

// Elements of work below which waking another thread costs more than it saves.
constexpr int64_t kElementsPerRange = 8192;

}  // namespace

CpuContext::CpuContext(const KernelTable& kernels, int num_threads, host::Place place)
    : kernels_(kernels),
      place_(std::move(place)),
      pool_(num_threads, [this] { host::BindThread(place_); }),
      scratch_(static_cast<size_t>(num_threads)) {}

void CpuContext::ForRanges(int64_t n, int64_t cost,
                           absl::FunctionRef<void(int64_t, int64_t, int)> body) {
  if (n <= 0) return;
  const int64_t length = std::max<int64_t>(1, kElementsPerRange / std::max<int64_t>(1, cost));
  const int64_t num_ranges = (n + length - 1) / length;
  pool_.Run(static_cast<int>(num_ranges), [&](int range, int thread) {
    const int64_t begin = range * length;
    body(begin, std::min(n, begin + length), thread);
  });
}

}  // namespace continuo::kernels::cpu
