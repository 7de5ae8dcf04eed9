// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/host/numa.h"
#include "kernels/host/scratch.h"
#include "kernels/host/thread_pool.h"

namespace continuo::kernels::cpu {

// The parts of a CPU device that its groups of ops share: the loops of its instruction set, its
// threads, and a scratch array for each thread. A KernelTable does the arithmetic; the ops divide
// rows and columns among the threads, which changes no bit because no sum crosses a division.
//
// One op runs at a time, on the thread that owns the device.
class CpuContext {
 public:
  // Its threads run at `place`.
  CpuContext(const KernelTable& kernels, int num_threads, host::Place place);
  CpuContext(const CpuContext&) = delete;
  CpuContext& operator=(const CpuContext&) = delete;

  const KernelTable& kernels() const { return kernels_; }
  const host::Place& place() const { return place_; }
  host::ThreadPool& pool() { return pool_; }
  int num_threads() const { return pool_.num_threads(); }
  // Returns at least n floats of a thread of the pool, valid until the thread's next call.
  float* Scratch(int thread, size_t n) { return scratch_[static_cast<size_t>(thread)].Get(n); }

  // Runs body(begin, end, thread) over ranges that make up [0, n). `cost` is the number of elements
  // touched per unit of n: little work stays on the calling thread.
  void ForRanges(int64_t n, int64_t cost, absl::FunctionRef<void(int64_t, int64_t, int)> body);

 private:
  const KernelTable& kernels_;
  const host::Place place_;
  host::ThreadPool pool_;
  std::vector<host::Scratch> scratch_;  // one per thread
};

}  // namespace continuo::kernels::cpu
