// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/event_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;

TEST(EventQueueTest, EventsBeforeTheOpeningAreKeptBackAndComeFirst) {
  EventQueue<int> queue;
  std::vector<int> handled;
  EXPECT_FALSE(queue.Push(1));
  EXPECT_FALSE(queue.Push(2));
  ASSERT_TRUE(queue.Open(3));
  queue.Drain([&](int event) { handled.push_back(event); });
  EXPECT_THAT(handled, ElementsAre(1, 2, 3));
}

TEST(EventQueueTest, AnEventOfAnEventComesAfterItFromTheSameHandler) {
  EventQueue<int> queue;
  std::vector<int> handled;
  ASSERT_TRUE(queue.Open(1));
  queue.Drain([&](int event) {
    if (event < 3) {
      EXPECT_FALSE(queue.Push(event + 1));
    }
    handled.push_back(event);
  });
  EXPECT_THAT(handled, ElementsAre(1, 2, 3));
  EXPECT_TRUE(queue.Push(4));
  queue.Drain([&](int event) { handled.push_back(event); });
  EXPECT_THAT(handled, ElementsAre(1, 2, 3, 4));
}

TEST(EventQueueTest, OneThreadHandlesAtATimeAndNoEventIsLost) {
  constexpr int kNumThreads = 4, kNumEvents = 10000;
  EventQueue<int> queue;
  std::atomic<int> num_handlers = 0;
  std::vector<int> handled;  // without a lock: by one thread at a time
  const auto handle = [&](int event) {
    EXPECT_EQ(num_handlers.fetch_add(1), 0);
    handled.push_back(event);
    num_handlers.fetch_sub(1);
  };
  ASSERT_TRUE(queue.Open(0));
  queue.Drain(handle);
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&] {
      for (int event = 1; event <= kNumEvents; ++event) {
        if (queue.Push(event)) queue.Drain(handle);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(handled.size(), 1 + kNumThreads * kNumEvents);
}

}  // namespace
}  // namespace continuo::gateway
