// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/thread_pool.h"

#include <utility>

#include "kernels/host/float_state.h"
#include "kernels/host/spin_wait.h"
#include "services/base/check.h"

namespace continuo::kernels::host {

ThreadPool::ThreadPool(int num_threads, std::function<void()> begin) : begin_(std::move(begin)) {
  CONTINUO_CHECK(num_threads >= 1);
  queues_ = std::vector<Queue>(static_cast<size_t>(num_threads));
  threads_.reserve(num_threads - 1);
  for (int i = 1; i < num_threads; ++i) {
    threads_.emplace_back([this, i] { Work(i); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(int n, absl::FunctionRef<void(int, int)> body) {
  if (n <= 0) return;
  const FloatState float_state;
  if (n == 1 || threads_.empty()) {
    for (int i = 0; i < n; ++i) body(i, 0);
    return;
  }
  CONTINUO_CHECK(!running_);
  running_ = true;
  Job job{body, static_cast<uint32_t>(n)};
  job_.store(&job, std::memory_order_relaxed);
  ++num_jobs_;
  for (uint32_t t = 0; t < queues_.size(); ++t) {
    queues_[t].state.store(uint64_t{num_jobs_} << 32 | QueueLength(job.num_items, t),
                           std::memory_order_release);
  }
  wake_.fetch_add(1);
  wake_.notify_all();
  RunItems(0);
  Spinner spinner;
  while (job.num_done.load(std::memory_order_acquire) != job.num_items) spinner.OnceOrYield();
  running_ = false;
}

void ThreadPool::RunItems(int thread) {
  Job* mine = nullptr;
  uint32_t num_done = 0;
  const auto num_queues = static_cast<uint32_t>(queues_.size());
  for (uint32_t i = 0; i < num_queues; ++i) {
    const uint32_t owner = (static_cast<uint32_t>(thread) + i) % num_queues;
    std::atomic<uint64_t>& queue = queues_[owner].state;
    uint64_t state = queue.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(state) != 0) {
      Job* const job = job_.load(std::memory_order_relaxed);
      if (!queue.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        continue;
      }
      // A job is not over while an item of it is unclaimed or unreported. The claim succeeded, so
      // `job` is the item's, and stays the current one until the report below.
      mine = job;
      const uint32_t index = QueueLength(mine->num_items, owner) - static_cast<uint32_t>(state);
      mine->body(static_cast<int>(index * num_queues + owner), thread);
      ++num_done;
      state = queue.load(std::memory_order_acquire);
    }
  }
  if (mine != nullptr) mine->num_done.fetch_add(num_done, std::memory_order_release);
}

void ThreadPool::Work(int thread) {
  if (begin_ != nullptr) begin_();
  const FloatState float_state;
  uint32_t seen = wake_.load(std::memory_order_acquire);
  // A job may have come before this thread read wake_.
  RunItems(thread);
  while (!stop_.load(std::memory_order_acquire)) {
    WaitForChange(wake_, seen);
    seen = wake_.load(std::memory_order_acquire);
    RunItems(thread);
  }
}

}  // namespace continuo::kernels::host
