// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/event/event_loop.h"

#include <gmock/gmock.h>

#include <memory>

namespace continuo::simulate {
namespace {

using ::testing::ElementsAre;

TEST(EventLoopTest, EventsRunInTheOrderOfTheirTimes) {
  EventLoop loop;
  std::vector<int> ran;
  loop.After(absl::Milliseconds(3), [&] { ran.push_back(3); });
  loop.After(absl::Milliseconds(1), [&] { ran.push_back(1); });
  loop.After(absl::Milliseconds(2), [&] { ran.push_back(2); });
  while (loop.RunNext()) {
  }
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
}

TEST(EventLoopTest, EventsOfOneTimeRunInTheOrderInWhichTheyWereAdded) {
  EventLoop loop;
  std::vector<int> ran;
  for (int i = 0; i < 9; ++i) loop.After(absl::Seconds(1), [&, i] { ran.push_back(i); });
  while (loop.RunNext()) {
  }
  EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(EventLoopTest, TheClockShowsTheTimeOfTheEvent) {
  EventLoop loop;
  const absl::Time wall = loop.Now();
  const absl::Duration elapsed = loop.Elapsed();
  loop.After(absl::Hours(5), [&] {
    EXPECT_EQ(loop.Now() - wall, absl::Hours(5));
    EXPECT_EQ(loop.Elapsed() - elapsed, absl::Hours(5));
  });
  EXPECT_TRUE(loop.RunNext());
  EXPECT_FALSE(loop.RunNext());
  loop.After(-absl::Hours(1), [&] { EXPECT_EQ(loop.Now() - wall, absl::Hours(5)); });
  EXPECT_TRUE(loop.RunNext());
}

TEST(EventLoopTest, NobodyIsWokenTooEarly) {
  EventLoop loop;
  const absl::Duration due = loop.Elapsed() + absl::Nanoseconds(1) / 4;
  int woken = 0;
  loop.After(due - loop.Elapsed(), [&] {
    ++woken;
    EXPECT_GE(loop.Elapsed(), due);
  });
  while (loop.RunNext()) {
  }
  EXPECT_EQ(woken, 1);
}

TEST(EventLoopTest, RunUntilStopsBeforeLaterEvents) {
  EventLoop loop;
  const absl::Duration begin = loop.Elapsed();
  int ran = 0;
  loop.After(absl::Seconds(1), [&] {
    ++ran;
    loop.After(absl::Seconds(1), [&] { ++ran; });
  });
  loop.After(absl::Seconds(3), [&] { ++ran; });
  loop.RunUntil(begin + absl::Seconds(2.5));
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(loop.Elapsed() - begin, absl::Seconds(2.5));
  EXPECT_EQ(loop.num_due(), 1u);
}

TEST(EventLoopTest, ClearDropsEventsThatTheDroppedOnesAdd) {
  EventLoop loop;
  std::shared_ptr<int> owner(new int, [&](const int* owned) {
    delete owned;
    loop.After(absl::Seconds(1), [] {});
  });
  std::weak_ptr<int> weak = owner;
  loop.After(absl::Seconds(1), [held = owner] {});
  owner.reset();
  ASSERT_FALSE(weak.expired());
  loop.Clear();
  EXPECT_TRUE(weak.expired());
  EXPECT_EQ(loop.num_due(), 0u);
}

TEST(MachineClockTest, OnlyTheWallTimeJumps) {
  EventLoop loop;
  MachineClock clock(&loop);
  clock.Jump(-absl::Hours(2));
  EXPECT_EQ(loop.Now() - clock.Now(), absl::Hours(2));
  EXPECT_EQ(loop.Elapsed(), clock.Elapsed());
}

}  // namespace
}  // namespace continuo::simulate
