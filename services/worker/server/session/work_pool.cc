// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/work_pool.h"

#include <utility>

namespace continuo::server {

WorkPool::WorkPool(int num_threads) : has_threads_(num_threads > 0) {
  threads_.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

void WorkPool::Join() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkPool::Post(Work work, size_t weight) {
  if (!has_threads_) {
    work();
    return;
  }
  absl::MutexLock lock(&mutex_);
  queue_.push_back({std::move(work), weight});
  waiting_weight_ += weight;
}

size_t WorkPool::waiting_weight() const {
  absl::MutexLock lock(&mutex_);
  return waiting_weight_;
}

void WorkPool::Run() {
  while (true) {
    Item item;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &WorkPool::HasNews));
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
      waiting_weight_ -= item.weight;
    }
    item.work();
  }
}

}  // namespace continuo::server
