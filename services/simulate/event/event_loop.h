// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/relay/timer.h"

namespace continuo::simulate {

// A virtual clock and the events on it. Nothing happens between two events, so a simulated hour
// takes as long as its events take to handle. Events of the same time run in the order in which
// they were added. Not thread-safe.
class EventLoop : public Clock, public gateway::Timer {
 public:
  absl::Time Now() const override { return kEpoch + Elapsed(); }
  absl::Duration Elapsed() const override { return absl::Nanoseconds(now_); }

  // A delay below zero counts as zero.
  void After(absl::Duration delay, std::function<void()> callback) override;
  // Runs the next event. Returns false if there is none.
  bool RunNext();
  // Runs all events up to that time, by Elapsed.
  void RunUntil(absl::Duration time);

  // Drops all events.
  void Clear();

  // For tests.
  size_t num_due() const { return events_.size(); }
  uint64_t num_run() const { return num_run_; }

 private:
  // The simulated time begins here, far from zero, which some classes take for "never".
  static constexpr absl::Time kEpoch = absl::FromUnixSeconds(1'800'000'000);
  static constexpr int64_t kStart = 1'000'000'000;

  struct Event {
    int64_t time;  // in ns
    uint64_t number;
    std::function<void()> callback;
  };
  static bool IsLater(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }

  int64_t now_ = kStart;
  uint64_t next_number_ = 0, num_run_ = 0;
  std::vector<Event> events_;  // a heap, the earliest first
};

// The clock of one machine. Its wall time can jump, as when somebody sets it; its elapsed time
// cannot. Not thread-safe.
class MachineClock : public Clock {
 public:
  // `loop` outlives the clock.
  explicit MachineClock(const EventLoop* loop) : loop_(loop) {}

  absl::Time Now() const override { return loop_->Now() + offset_; }
  absl::Duration Elapsed() const override { return loop_->Elapsed(); }
  void Jump(absl::Duration by) { offset_ += by; }

 private:
  const EventLoop* const loop_;
  absl::Duration offset_;
};

}  // namespace continuo::simulate
