// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/queue_quota.h"

#include <gmock/gmock.h>

#include <limits>

namespace continuo::engine {
namespace {

bool Takes(QueueQuota& quota, const std::string& tenant, int64_t tokens) {
  if (!quota.Check(tenant, tokens).ok()) return false;
  quota.Add(tenant, tokens);
  return true;
}

TEST(QueueQuotaTest, AFullQueueRefusesWithTheNumbers) {
  QueueQuota quota(100);
  ASSERT_TRUE(Takes(quota, "a", 60));
  const absl::Status status = quota.Check("a", 50);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "60 prompt tokens are waiting, 50 more would exceed 100");
  EXPECT_TRUE(Takes(quota, "a", 40));
}

TEST(QueueQuotaTest, AnEmptyQueueTakesOneRequestHoweverLong) {
  QueueQuota quota(100);
  EXPECT_TRUE(Takes(quota, "a", 5000));
  EXPECT_FALSE(Takes(quota, "a", 1));
  quota.Remove("a", 5000);
  EXPECT_TRUE(Takes(quota, "a", 1));
}

TEST(QueueQuotaTest, WhoFloodsDoesNotLockOthersOut) {
  QueueQuota quota(100);
  ASSERT_TRUE(Takes(quota, "flood", 100));
  EXPECT_FALSE(Takes(quota, "flood", 1));
  EXPECT_TRUE(Takes(quota, "light", 50));
  EXPECT_FALSE(Takes(quota, "light", 1));
  EXPECT_TRUE(Takes(quota, "third", 33));
}

TEST(QueueQuotaTest, ManyTenantsFillItTwiceAtMost) {
  QueueQuota quota(1000);
  for (int i = 0; i < 1000; ++i) {
    while (Takes(quota, std::to_string(i), 1)) {
    }
  }
  EXPECT_GT(quota.tokens(), 1500);
  EXPECT_LE(quota.tokens(), 2000);
}

TEST(QueueQuotaTest, WhatHasLeftMakesRoom) {
  QueueQuota quota(100);
  ASSERT_TRUE(Takes(quota, "a", 100));
  quota.Remove("a", 30);
  EXPECT_TRUE(Takes(quota, "a", 30));
  quota.Remove("a", 100);
  EXPECT_EQ(quota.tokens(), 0);
}

TEST(QueueQuotaTest, TheGreatestNumbersDoNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  QueueQuota quota(kMost);
  ASSERT_TRUE(Takes(quota, "a", 5));
  EXPECT_FALSE(Takes(quota, "a", kMost));
  EXPECT_FALSE(Takes(quota, "b", kMost));
}

}  // namespace
}  // namespace continuo::engine
