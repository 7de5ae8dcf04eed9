// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace continuo::server {

// A few threads that run posted work in order of posting. Thread-safe. A pool of no threads runs
// the work inside Post, for programs where one thread does everything.
class WorkPool {
 public:
  using Work = absl::AnyInvocable<void()>;

  explicit WorkPool(int num_threads);
  ~WorkPool() { Join(); }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Returns at once, unless the pool has no threads. `weight`, in a unit of the caller's choice, is
  // counted until the work begins.
  void Post(Work work, size_t weight = 0);
  // Returns when all posted work has run; work that is posted later never runs. May be called
  // again, by one thread at a time.
  void Join();
  // Sum of the weights of work that has not begun.
  size_t waiting_weight() const;

 private:
  void Run();
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !queue_.empty();
  }

  struct Item {
    Work work;
    size_t weight = 0;
  };

  const bool has_threads_;
  mutable absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_weight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace continuo::server
