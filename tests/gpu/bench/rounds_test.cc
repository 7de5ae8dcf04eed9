// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace continuo {
namespace {

using ::testing::ElementsAre;

TEST(RoundsTest, ThoseInWhichACeilingMovedAreThrownAway) {
  // Two ceilings, and the measured thing, which may move.
  const std::vector<Round> rounds = {
      {1.00, 10.0, 5}, {1.04, 10.0, 9}, {1.00, 10.6, 5}, {0.90, 10.0, 5}, {1.00, 9.8, 1}};
  EXPECT_THAT(SteadyRounds(rounds, 2), ElementsAre(rounds[0], rounds[1], rounds[4]));
  EXPECT_EQ(SteadyRounds(rounds, 1).size(), 4);
  EXPECT_EQ(SteadyRounds(rounds, 0).size(), 5);
  EXPECT_TRUE(SteadyRounds({}, 2).empty());
}

TEST(RoundsTest, ThingsTakeTurnsUntilEnoughRoundsAreSteady) {
  std::string order;
  const std::vector<double> ceiling = {1, 1, 2, 1, 1, 1};  // by round
  size_t round = 0;
  const std::vector<std::function<double()>> things = {[&] {
                                                         order += "A";
                                                         return ceiling[round++];
                                                       },
                                                       [&] {
                                                         order += "B";
                                                         return 5.0;
                                                       }};
  EXPECT_EQ(MeasureInTurn(things, 1, /*wanted=*/4, /*most=*/20).size(), 5);
  EXPECT_EQ(order, "ABABABABAB");
  round = 0;
  EXPECT_EQ(MeasureInTurn(things, 1, /*wanted=*/4, /*most=*/3).size(), 3);
  round = 0;
  EXPECT_EQ(MeasureInTurn(things, 0, /*wanted=*/4, /*most=*/20).size(), 4);
}

TEST(RoundsTest, ASpreadIsOfOneThing) {
  const std::vector<Round> rounds = {{1, 30}, {2, 10}, {9, 20}};
  EXPECT_EQ(SpreadOf(rounds, 0).median, 2);
  EXPECT_EQ(SpreadOf(rounds, 1).median, 20);
  EXPECT_EQ(SpreadOf(rounds, 1).least, 10);
  EXPECT_EQ(SpreadOf(rounds, 1).most, 30);
  EXPECT_EQ(SpreadOf({}, 1).median, 0);
}

TEST(RoundsTest, AnOutlierDoesNotMoveAMedian) {
  EXPECT_EQ(MedianOf({5, 1, 1000}), 5);
  EXPECT_EQ(MedianOf({3}), 3);
}

TEST(RoundsTest, ACallIsBoundByBytesOrByOperations) {
  // 100 bytes/s, and 1,000 operations/s of a product that also reads.
  const std::vector<Amount> ceilings = {{.bytes = 200}, {.bytes = 4000, .flops = 500}};
  const std::vector<double> seconds = {2, 0.5};
  EXPECT_EQ(LeastSeconds({.bytes = 300}, ceilings, seconds), 3);
  EXPECT_EQ(LeastSeconds({.bytes = 300, .flops = 2000}, ceilings, seconds), 3);
  EXPECT_EQ(LeastSeconds({.bytes = 300, .flops = 5000}, ceilings, seconds), 5);
  EXPECT_EQ(LeastSeconds({.bytes = 300, .flops = 5000}, std::span(ceilings).first(1), seconds), 3);
  EXPECT_EQ(LeastSeconds({.bytes = 300}, {}, {}), 0);
}

}  // namespace
}  // namespace continuo
