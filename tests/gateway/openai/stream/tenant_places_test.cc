// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/replay_limiter.h"

#include <gtest/gtest.h>

#include <vector>

#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

TEST(ReplayLimiterTest, ATenantHasSoManyPlaces) {
  ReplayLimiter limiter;
  std::vector<ReplayLimiter::Place> places;
  for (int i = 0; i < 2; ++i) places.push_back(*limiter.Enter("t", 2));
  const absl::Status full = limiter.Enter("t", 2).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(protocol::ReasonOf(full), protocol::kReasonRateLimited);
  EXPECT_TRUE(protocol::RetryDelayOf(full).has_value());
  EXPECT_TRUE(limiter.Enter("u", 2).ok());
  EXPECT_TRUE(limiter.Enter("t", 0).ok()) << "no limit";
  places[0].Release();
  places[0].Release();
  places[1] = *limiter.Enter("t", 2);
  EXPECT_TRUE(limiter.Enter("t", 2).ok());
  places.push_back(*limiter.Enter("t", 2));
  EXPECT_FALSE(limiter.Enter("t", 2).ok());
  places.clear();
  EXPECT_TRUE(limiter.Enter("t", 1).ok());
}

}  // namespace
}  // namespace continuo::gateway::openai
