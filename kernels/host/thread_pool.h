// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace continuo::kernels::host {

// A fixed set of threads that share loops of work items with the thread that calls Run. Of T
// threads, thread t first claims the items t, t + T, … of its own queue, then those that others
// have left. So a thread knows what it most likely does next, and no two of them write the same
// memory for every claim. Items are claimed one by one, so a thread that lost its core to a
// neighbour delays its own item and no more, and a thread that did not wake up in time is not
// waited for. The result must not depend on which thread ran an item. Run allocates nothing.
//
// Run may be called by one thread at a time, and not from inside a body.
class ThreadPool {
 public:
  // num_threads ≥ 1, the caller's included. Each of the others calls `begin` once, before all else;
  // whatever it refers to outlives the pool.
  explicit ThreadPool(int num_threads, std::function<void()> begin = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(queues_.size()); }

  // Runs body(item, thread) for every item in [0, n), thread in [0, num_threads()), and returns
  // when all are done. Every thread has the floating-point state of FloatState.
  void Run(int n, absl::FunctionRef<void(int item, int thread)> body);

 private:
  // A job lives on Run's stack; only threads that have claimed an item of it may touch it.
  struct Job {
    absl::FunctionRef<void(int, int)> body;
    uint32_t num_items;
    std::atomic<uint32_t> num_done{0};
  };

  // A thread's items of the current job. The high half counts jobs, the low half the items that
  // nobody has claimed. It is one word, so that a claim cannot succeed for a job that is over.
  struct alignas(64) Queue {
    std::atomic<uint64_t> state{0};
  };

  void Work(int thread);
  // Claims and runs items until none is left.
  void RunItems(int thread);

  // The number of thread t's items of n.
  uint32_t QueueLength(uint32_t n, uint32_t t) const {
    const auto num_queues = static_cast<uint32_t>(queues_.size());
    return t < n ? (n - t - 1) / num_queues + 1 : 0;
  }

  const std::function<void()> begin_;
  std::vector<Queue> queues_;  // one per thread
  uint32_t num_jobs_ = 0;      // of the caller's thread alone
  std::atomic<Job*> job_{nullptr};
  std::atomic<uint32_t> wake_{0};  // changes with every job; idle threads wait on it
  std::atomic<bool> stop_{false};
  bool running_ = false;  // whether Run is in progress; of the caller's thread alone
  std::vector<std::thread> threads_;
};

}  // namespace continuo::kernels::host
