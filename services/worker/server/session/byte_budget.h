// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace continuo::server {

// Bounds what is being worked on, in bytes. Thread-safe; outlives its shares.
class ByteBudget {
 public:
  // Some of the budget, until it is destroyed. Movable.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->Give(bytes_);
    }
    // False: the budget had no room.
    explicit operator bool() const { return budget_ != nullptr; }

   private:
    friend class ByteBudget;
    Share(ByteBudget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {}

    ByteBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit ByteBudget(size_t limit) : limit_(limit) {}

  // Where nothing else is being worked on anything gets its share, however large.
  Share Take(size_t bytes) {
    absl::MutexLock lock(&mutex_);
    if (used_ > 0 && bytes > limit_ - std::min(used_, limit_)) return Share();
    used_ += bytes;
    return Share(this, bytes);
  }
  size_t limit() const { return limit_; }

 private:
  void Give(size_t bytes) {
    absl::MutexLock lock(&mutex_);
    used_ -= bytes;
  }

  const size_t limit_;
  absl::Mutex mutex_;
  size_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::server
