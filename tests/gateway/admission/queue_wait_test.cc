// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/admission/queue_wait.h"

#include <gtest/gtest.h>

#include <string>

namespace continuo::gateway {
namespace {

class QueueWaitTest : public ::testing::Test {
 protected:
  void Send(const std::string& tenant, int64_t tokens) {
    wait_.Join(tenant, tokens);
    wait_.Sent(now_);
  }
  void Read(const std::string& tenant, int64_t tokens) {
    wait_.Read(tokens, now_);
    wait_.Leave(tenant, tokens);
  }
  // 100 tokens a second leave the queue, and as many join it.
  void RunForTenSeconds() {
    for (int i = 0; i < 5; ++i) Send("a", 100);
    for (int i = 0; i < 10; ++i) {
      now_ += absl::Seconds(1);
      Read("a", 100);
      Send("a", 100);
    }
  }
  double Seconds(const std::string& tenant, int64_t tokens) const {
    return absl::ToDoubleSeconds(wait_.Predict(tenant, tokens, now_));
  }

  QueueWait wait_;
  absl::Duration now_ = absl::Hours(1);
};

TEST_F(QueueWaitTest, TheTokensBeforeOneOverTheRateAreTheWait) {
  EXPECT_EQ(Seconds("a", 100), 0);
  RunForTenSeconds();
  EXPECT_NEAR(Seconds("a", 100), 5, 0.01);
  for (int i = 0; i < 45; ++i) Send("a", 100);
  EXPECT_NEAR(Seconds("a", 100), 50, 0.1);
}

TEST_F(QueueWaitTest, TenantsTakeTurns) {
  RunForTenSeconds();
  // Its own tokens are ahead, and as many of the other tenant.
  EXPECT_NEAR(Seconds("b", 100), 1, 0.01);
  Send("b", 100);
  EXPECT_NEAR(Seconds("b", 100), 3, 0.01);
  // All tokens of the other tenant are ahead of a prompt that is longer.
  EXPECT_NEAR(Seconds("c", 10'000), 6, 0.01);
}

TEST_F(QueueWaitTest, WhoGivesUpIsNotServed) {
  RunForTenSeconds();
  // One of ten is begun, nine leave.
  for (int i = 0; i < 50; ++i) {
    for (int j = 0; j < 10; ++j) Send("a", 100);
    now_ += absl::Seconds(1);
    Read("a", 100);
    for (int j = 0; j < 9; ++j) {
      wait_.Unsent();
      wait_.Leave("a", 100);
    }
  }
  EXPECT_NEAR(Seconds("a", 100), 5, 0.01);
}

TEST_F(QueueWaitTest, WhileNothingIsReadTheWaitGrows) {
  RunForTenSeconds();
  now_ += absl::Seconds(20);
  EXPECT_GT(Seconds("a", 100), 15);
}

TEST_F(QueueWaitTest, AQueueThatIsEmptyNowAndThenTellsNothing) {
  for (int i = 0; i < 100; ++i) {
    for (int j = 0; j < 5; ++j) Send("a", 1);
    now_ += absl::Milliseconds(100);
    for (int j = 0; j < 5; ++j) {
      now_ += absl::Milliseconds(10);
      Read("a", 1);
    }
    now_ += absl::Milliseconds(100);
  }
  for (int j = 0; j < 1000; ++j) Send("a", 1);
  EXPECT_EQ(Seconds("a", 1), 0);
}

TEST_F(QueueWaitTest, WithoutAWorkerNoTimePasses) {
  RunForTenSeconds();
  for (int i = 0; i < 5; ++i) wait_.Unsent();
  now_ += absl::Seconds(5);
  EXPECT_NEAR(Seconds("a", 100), 5, 0.01);
  for (int i = 0; i < 5; ++i) wait_.Sent(now_);
  now_ += absl::Seconds(1);
  Read("a", 100);
  now_ += absl::Seconds(1);
  Read("a", 100);
  EXPECT_NEAR(Seconds("a", 100), 3, 0.01);
}

TEST_F(QueueWaitTest, ItIsIdleWhenNothingIsQueuedOrRemembered) {
  EXPECT_TRUE(wait_.IsIdle(now_));
  RunForTenSeconds();
  EXPECT_FALSE(wait_.IsIdle(now_));
  for (int i = 0; i < 5; ++i) Read("a", 100);
  EXPECT_FALSE(wait_.IsIdle(now_));
  now_ += absl::Seconds(11);
  EXPECT_TRUE(wait_.IsIdle(now_));
}

// A queued request keeps a reference to its queue.
TEST_F(QueueWaitTest, ItIsNotIdleWhileAPromptWithoutATokenIsQueued) {
  wait_.Join("a", 0);
  EXPECT_FALSE(wait_.IsIdle(now_));
  wait_.Sent(now_);
  wait_.Read(0, now_);
  EXPECT_FALSE(wait_.IsIdle(now_));
  wait_.Leave("a", 0);
  EXPECT_TRUE(wait_.IsIdle(now_));
}

}  // namespace
}  // namespace continuo::gateway
