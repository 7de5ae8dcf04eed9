// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/scaling/counter_rate.h"

#include <gtest/gtest.h>

namespace continuo::simulate {
namespace {

TEST(CounterRateTest, IsTheGrowthASecondOverTheWindow) {
  CounterRate rate(absl::Seconds(60));
  EXPECT_FALSE(rate.At(absl::ZeroDuration()).has_value());
  rate.Add(100, absl::Seconds(0));
  EXPECT_FALSE(rate.At(absl::Seconds(0)).has_value());
  rate.Add(103, absl::Seconds(15));
  EXPECT_DOUBLE_EQ(*rate.At(absl::Seconds(15)), 0.2);
  rate.Add(115, absl::Seconds(30));
  EXPECT_DOUBLE_EQ(*rate.At(absl::Seconds(30)), 0.5);
  // The first sample has left the window.
  EXPECT_DOUBLE_EQ(*rate.At(absl::Seconds(65)), 0.8);
  // One is left, then none.
  EXPECT_FALSE(rate.At(absl::Seconds(80)).has_value());
  EXPECT_FALSE(rate.At(absl::Seconds(200)).has_value());
}

TEST(CounterRateTest, ACounterThatFallsHasBegunAnew) {
  CounterRate rate(absl::Seconds(60));
  rate.Add(50, absl::Seconds(0));
  rate.Add(2, absl::Seconds(10));
  rate.Add(4, absl::Seconds(20));
  EXPECT_DOUBLE_EQ(*rate.At(absl::Seconds(20)), 0.2);
}

}  // namespace
}  // namespace continuo::simulate
