// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/time.h"

namespace continuo::gateway {

// Calls back later. An interface, so that a simulation brings its own time. Thread-safe.
class Timer {
 public:
  virtual ~Timer() = default;
  // Calls `callback` once, after the delay, never from within After. Callbacks must be short.
  virtual void After(absl::Duration delay, std::function<void()> callback) = 0;
};

// One thread that sleeps until the next callback is due, by a clock that nobody can set. Callbacks
// that are not due when it is destroyed are dropped.
class TimerThread : public Timer {
 public:
  TimerThread();
  ~TimerThread() override;
  void After(absl::Duration delay, std::function<void()> callback) override;

 private:
  using Clock = std::chrono::steady_clock;
  void Run();

  // Not absl::Mutex, since absl::CondVar sleeps by the wall clock.
  std::mutex mutex_;
  std::condition_variable changed_;
  // Members up to due_ are guarded by mutex_.
  bool stopped_ = false;
  uint64_t next_id_ = 0;
  std::map<std::pair<Clock::time_point, uint64_t>, std::function<void()>> due_;
  std::thread thread_;
};

}  // namespace continuo::gateway
