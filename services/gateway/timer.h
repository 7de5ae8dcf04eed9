// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace continuo::gateway {

// Calls back later. Passed in, so that a simulation brings its own time. Thread-safe.
class Timer {
 public:
  virtual ~Timer() = default;
  // Calls `callback` once, after the delay, never from within After. Callbacks must be short.
  virtual void After(absl::Duration delay, std::function<void()> callback) = 0;
};

// One thread that sleeps until the next callback is due. What is not due when it is destroyed is
// dropped.
class TimerThread : public Timer {
 public:
  TimerThread();
  ~TimerThread() override;
  void After(absl::Duration delay, std::function<void()> callback) override;

 private:
  void Run();

  absl::Mutex mutex_;
  absl::CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> due_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace continuo::gateway
