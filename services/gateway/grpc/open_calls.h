// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace continuo::gateway {

// Counts the client calls that gRPC is not done with: from their arrival until their status is
// written. Thread-safe; outlives its calls.
class OpenCalls {
 public:
  // Counts one call, as a member of its reactor.
  class Call {
   public:
    explicit Call(OpenCalls* all) : all_(all) {
      absl::MutexLock lock(&all_->mutex_);
      ++all_->number_;
    }
    ~Call() {
      absl::MutexLock lock(&all_->mutex_);
      --all_->number_;
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    OpenCalls* const all_;
  };

  // Blocks until no call is open. Returns false where some still are after `longest`.
  bool WaitForNone(absl::Duration longest) const {
    absl::MutexLock lock(&mutex_);
    const auto none = [](const int64_t* number) { return *number == 0; };
    return mutex_.AwaitWithTimeout(absl::Condition(+none, &number_), longest);
  }

 private:
  mutable absl::Mutex mutex_;
  int64_t number_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::gateway
