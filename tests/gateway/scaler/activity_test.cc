// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/activity.h"

#include <gtest/gtest.h>

#include <optional>

namespace continuo::gateway {
namespace {

constexpr absl::Duration kStart = absl::Seconds(100);
constexpr absl::Duration kTick = absl::Milliseconds(1);

TEST(ActivityTest, TheStateIsSentAtOnceAndThenEachChange) {
  Activity activity;
  EXPECT_EQ(activity.Next(false, true, kStart), false);
  EXPECT_EQ(activity.Next(false, true, kStart + kTick), std::nullopt);
  EXPECT_EQ(activity.Next(true, true, kStart + 2 * kTick), true);
  EXPECT_EQ(activity.Next(true, true, kStart + absl::Hours(1)), std::nullopt);
}

TEST(ActivityTest, ADemandOfBeforeIsSentAtOnce) {
  Activity activity;
  EXPECT_EQ(activity.Next(true, false, kStart), true);
}

TEST(ActivityTest, AModelIsInactiveOnceItHasBeenQuietForAWhile) {
  Activity activity;
  EXPECT_EQ(activity.Next(true, true, kStart), true);
  EXPECT_EQ(activity.Next(false, true, kStart + Activity::kQuiet - kTick), std::nullopt);
  // Another request begins the pause anew.
  EXPECT_EQ(activity.Next(true, true, kStart + Activity::kQuiet), std::nullopt);
  EXPECT_EQ(activity.Next(false, true, kStart + 2 * Activity::kQuiet - kTick), std::nullopt);
  EXPECT_EQ(activity.Next(false, true, kStart + 2 * Activity::kQuiet), false);
}

TEST(ActivityTest, ItIsRepeatedWhileRequestsWaitWithoutAWorker) {
  Activity activity;
  EXPECT_EQ(activity.Next(true, false, kStart), true);
  EXPECT_EQ(activity.Next(true, false, kStart + Activity::kRepeat - kTick), std::nullopt);
  EXPECT_EQ(activity.Next(true, false, kStart + Activity::kRepeat), true);
  EXPECT_EQ(activity.Next(true, true, kStart + 2 * Activity::kRepeat), std::nullopt);
  // Who does not wait needs no worker.
  EXPECT_EQ(activity.Next(false, false, kStart + 2 * Activity::kRepeat + kTick), std::nullopt);
}

}  // namespace
}  // namespace continuo::gateway
