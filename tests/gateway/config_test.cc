// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/config.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace continuo::gateway {
namespace {

int64_t All(const GatewayConfig& c) {
  return static_cast<int64_t>(c.max_buffer_bytes) + c.admission.max_open_bytes +
         c.forwarded.max_open_bytes + c.http.max_bodies_bytes + c.http.max_answers_bytes;
}

TEST(FitMemoryTest, ALargeContainerChangesNothing) {
  GatewayConfig config;
  const GatewayConfig before = config;
  FitMemory(uint64_t{4} << 30, &config);
  EXPECT_EQ(All(config), All(before));
  EXPECT_EQ(config.http.max_answer_bytes, before.http.max_answer_bytes);
}

TEST(FitMemoryTest, ASmallOneIsNeverPromisedMoreThanThreeQuarters) {
  for (const int64_t memory : {int64_t{2} << 30, int64_t{1} << 30, int64_t{64} << 20}) {
    GatewayConfig config;
    FitMemory(static_cast<uint64_t>(memory), &config);
    EXPECT_LE(All(config), memory * 3 / 4);
    EXPECT_GT(All(config), memory * 7 / 10);
    // Everybody gives the same part.
    EXPECT_NEAR(static_cast<double>(config.admission.max_open_bytes),
                static_cast<double>(config.max_buffer_bytes), 1);
    EXPECT_LE(config.http.max_answer_bytes, config.http.max_answers_bytes);
    EXPECT_LE(static_cast<int64_t>(config.http.max_body_bytes), config.http.max_bodies_bytes);
  }
}

TEST(FitMemoryTest, NothingLeftIsStillSomething) {
  GatewayConfig config;
  FitMemory(0, &config);
  EXPECT_GT(config.max_buffer_bytes, 0u);
  EXPECT_GT(config.admission.max_open_bytes, 0);
}

}  // namespace
}  // namespace continuo::gateway
