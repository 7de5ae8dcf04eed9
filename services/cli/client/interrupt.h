// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ctrl-C as a call: the work in progress registers how it is cancelled.

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace continuo::cli {

// Delivers interrupts to the work in progress. Thread-safe.
class Interrupt {
 public:
  // Calls `cancel` on each interrupt for as long as the Scope lives. Scopes do not nest.
  class Scope {
   public:
    Scope(Interrupt* interrupt, std::function<void()> cancel) : interrupt_(interrupt) {
      absl::MutexLock lock(&interrupt_->mutex_);
      interrupt_->cancel_ = std::move(cancel);
      interrupt_->num_in_scope_ = 0;
    }
    ~Scope() {
      absl::MutexLock lock(&interrupt_->mutex_);
      interrupt_->cancel_ = nullptr;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interrupt* const interrupt_;
  };

  // Handles one interrupt. Returns false where nothing is in progress, or where it was cancelled
  // twice already. `cancel` runs inside and must not block.
  bool Signal() {
    absl::MutexLock lock(&mutex_);
    if (!cancel_ || num_in_scope_ == 2) return false;
    ++num_in_scope_;
    ++num_signals_;
    cancel_();
    return true;
  }
  // The number of interrupts that cancelled work.
  int num_signals() const {
    absl::MutexLock lock(&mutex_);
    return num_signals_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::function<void()> cancel_ ABSL_GUARDED_BY(mutex_);
  int num_signals_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_in_scope_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::cli
