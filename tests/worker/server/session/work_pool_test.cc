// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/work_pool.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/synchronization/notification.h"

namespace continuo::server {
namespace {

TEST(WorkPoolTest, WorkIsDoneInOrderOfPosting) {
  WorkPool pool(1);
  std::string done;
  for (const char c : {'a', 'b', 'c'}) pool.Post([&done, c] { done += c; });
  pool.Join();
  EXPECT_EQ(done, "abc");
}

TEST(WorkPoolTest, WithoutThreadsWorkIsDoneByWhoPostsIt) {
  WorkPool pool(0);
  std::string done;
  pool.Post([&] { done += 'a'; }, 5);
  EXPECT_EQ(done, "a");
  EXPECT_EQ(pool.waiting_weight(), 0u);
  pool.Join();
}

TEST(WorkPoolTest, JoinWaitsForWhatRunsAndWhatItPosted) {
  WorkPool pool(2);
  absl::Notification begun;
  bool done = false;
  pool.Post([&] {
    begun.Notify();
    pool.Post([&] { done = true; });
  });
  begun.WaitForNotification();
  pool.Join();
  EXPECT_TRUE(done);
  pool.Join();  // nothing to wait for
}

TEST(WorkPoolTest, WeightIsCountedUntilTheWorkBegins) {
  WorkPool pool(1);
  absl::Notification begun, gate;
  pool.Post(
      [&] {
        begun.Notify();
        gate.WaitForNotification();
      },
      5);
  begun.WaitForNotification();
  EXPECT_EQ(pool.waiting_weight(), 0u);
  pool.Post([] {}, 7);
  EXPECT_EQ(pool.waiting_weight(), 7u);
  gate.Notify();
  pool.Join();
  EXPECT_EQ(pool.waiting_weight(), 0u);
}

}  // namespace
}  // namespace continuo::server
