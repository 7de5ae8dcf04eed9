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

constexpr int64_t kMiB = 1 << 20;

TEST(FitMemoryTest, ALargeContainerChangesNothing) {
  GatewayConfig config;
  const GatewayConfig before = config;
  FitMemory(4096 * kMiB, {}, &config);
  EXPECT_EQ(All(config), All(before));
  EXPECT_EQ(config.http.max_answer_bytes, before.http.max_answer_bytes);
}

TEST(FitMemoryTest, ASmallOneIsNeverPromisedMoreThanThreeQuarters) {
  for (const int64_t memory : {2048 * kMiB, 1024 * kMiB, 64 * kMiB}) {
    GatewayConfig config;
    FitMemory(static_cast<uint64_t>(memory), {}, &config);
    EXPECT_LE(All(config), memory * 3 / 4);
    EXPECT_GT(All(config), memory * 7 / 10);
    // Everybody gives the same part.
    EXPECT_NEAR(static_cast<double>(config.admission.max_open_bytes),
                static_cast<double>(config.max_buffer_bytes), 1);
    EXPECT_LE(config.http.max_answer_bytes, config.http.max_answers_bytes);
  }
}

TEST(FitMemoryTest, WhatWasChosenStaysAndTheRestMakesRoom) {
  GatewayConfig config;
  config.max_buffer_bytes = 1024 * kMiB;
  FitMemory(2048 * kMiB, {.buffer_bytes = true}, &config);
  EXPECT_EQ(config.max_buffer_bytes, 1024 * kMiB);
  EXPECT_LE(All(config), 1536 * kMiB);
  EXPECT_GT(All(config), 1535 * kMiB);
}

TEST(FitMemoryTest, EachLimitKeepsWhatItsFlagTakesAtLeast) {
  for (const int64_t memory : {int64_t{0}, kMiB, 64 * kMiB}) {
    GatewayConfig config;
    config.admission.max_open_bytes = 3072 * kMiB;
    FitMemory(static_cast<uint64_t>(memory), {.open_bytes = true}, &config);
    EXPECT_EQ(config.admission.max_open_bytes, 3072 * kMiB);
    EXPECT_EQ(config.max_buffer_bytes, 16 * kMiB);
    EXPECT_EQ(config.http.max_bodies_bytes, kMiB);
    EXPECT_EQ(config.http.max_answer_bytes, kMiB);
  }
}

TEST(HttpLimitsOfTest, ABodyIsARequestAndHasRoom) {
  GatewayConfig config;
  EXPECT_EQ(HttpLimitsOf(config).max_body_bytes, 8 * kMiB);
  config.max_request_bytes = 64 * kMiB;
  EXPECT_EQ(HttpLimitsOf(config).max_body_bytes, 64 * kMiB);
  config.http.max_bodies_bytes = 35 * kMiB;
  EXPECT_EQ(HttpLimitsOf(config).max_body_bytes, 35 * kMiB / 2);
}

}  // namespace
}  // namespace continuo::gateway
