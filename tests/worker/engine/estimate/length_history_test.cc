// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/estimate/length_history.h"

#include <gtest/gtest.h>

namespace continuo::engine {
namespace {

TEST(LengthHistoryTest, WithoutHistoryTheGivenLengthIsExpected) {
  LengthHistory history(/*expected=*/100);
  EXPECT_EQ(history.Remaining(0, 1000, 0.5), 100);
  EXPECT_EQ(history.Remaining(0, 30, 0.5), 30);
  EXPECT_EQ(history.Remaining(80, 1000, 0.5), 80);  // twice what it has, in all
  EXPECT_EQ(history.Remaining(30, 30, 0.5), 0);
  EXPECT_EQ(history.Bound(0, 1000), 1000);
}

TEST(LengthHistoryTest, RemainingIsAQuantileOfTheLongerOnes) {
  LengthHistory history(100);
  for (int i = 1; i <= 128; ++i) history.Record(i);
  EXPECT_EQ(history.Remaining(0, 1000, 0.0), 1);
  EXPECT_EQ(history.Remaining(0, 1000, 0.5), 65);
  EXPECT_EQ(history.Remaining(63, 1000, 0.5), 34);
  EXPECT_EQ(history.Remaining(0, 20, 0.5), 20);
  EXPECT_EQ(history.Remaining(0, 1000, 0.999), 256);
  EXPECT_EQ(history.Bound(0, 1000), 256);
  EXPECT_EQ(history.Bound(200, 1000), 400);
}

TEST(LengthHistoryTest, OnlyTheLast128Count) {
  LengthHistory history(100);
  for (int i = 0; i < 500; ++i) history.Record(1000 + i);
  for (int i = 0; i < 128; ++i) history.Record(i % 7 + 1);
  EXPECT_EQ(history.Remaining(0, 5000, 0.98), 7);
  EXPECT_EQ(history.Bound(0, 5000), 14);
}

}  // namespace
}  // namespace continuo::engine
