// SPDX-License-Identifier: Apache-2.0
#include "services/base/random.h"

#include <gtest/gtest.h>

namespace continuo {
namespace {

// The numbers of the published C code (Vigna, splitmix64.c) for the seed 1234567.
TEST(SplitMix64Test, GivesThePublishedNumbers) {
  SplitMix64 random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
  EXPECT_EQ(random.Next(), 4593380528125082431u);
}

TEST(SplitMix64Test, AtGivesEachNumberWithoutTheOnesBefore) {
  SplitMix64 random(7);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(SplitMix64::At(7, i), random.Next());
}

TEST(SplitMix64Test, UniformNumbersAreBelowOneAndHaveTheirMeanInTheMiddle) {
  SplitMix64 random(3);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = random.NextUniform();
    EXPECT_GE(x, 0);
    EXPECT_LT(x, 1);
    sum += x;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
}

}  // namespace
}  // namespace continuo
