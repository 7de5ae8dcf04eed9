// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/timer.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"

namespace {
// The offset of this program's wall clock to the machine's.
std::atomic<int64_t> wall_ahead_seconds = 0;
}  // namespace

// Replaces libc's function for the whole program, so that the test can set the wall clock.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += wall_ahead_seconds;
  return result;
}

namespace continuo::gateway {
namespace {

TEST(TimerThreadTest, CallbacksComeInTheOrderOfTheirTime) {
  TimerThread timer;
  std::vector<int> order;
  absl::Notification done;
  timer.After(absl::Milliseconds(30), [&] {
    order.push_back(3);
    done.Notify();
  });
  timer.After(absl::Milliseconds(20), [&] { order.push_back(2); });
  timer.After(absl::ZeroDuration(), [&] { order.push_back(1); });
  done.WaitForNotification();
  EXPECT_EQ(order, std::vector<int>({1, 2, 3}));
}

TEST(TimerThreadTest, ACallbackMayAskForAnother) {
  TimerThread timer;
  absl::Notification done;
  timer.After(absl::ZeroDuration(),
              [&] { timer.After(absl::Milliseconds(1), [&] { done.Notify(); }); });
  done.WaitForNotification();
}

TEST(TimerThreadTest, WhatIsNotDueIsDroppedAtTheEnd) {
  bool called = false;
  {
    TimerThread timer;
    timer.After(absl::InfiniteDuration(), [&] { called = true; });
    timer.After(absl::Hours(1), [&] { called = true; });
  }
  EXPECT_FALSE(called);
}

TEST(TimerThreadTest, AClockThatIsSetBackHoldsNothingUp) {
  TimerThread timer;
  absl::Notification done;
  timer.After(absl::Milliseconds(20), [&] { done.Notify(); });
  wall_ahead_seconds = -3600;
  done.WaitForNotification();
  wall_ahead_seconds = 0;
}

}  // namespace
}  // namespace continuo::gateway
