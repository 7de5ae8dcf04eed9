// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/scaling/horizontal_scaler.h"

#include <gmock/gmock.h>

namespace continuo::simulate {
namespace {

constexpr absl::Duration kSync = absl::Seconds(15);

ScalingMetric External(double sum, double target) { return {.target = target, .values = {sum}}; }

ScalingMetric PerPod(std::vector<double> values, double target) {
  return {.target = target, .values = std::move(values), .is_per_pod = true};
}

TEST(ReplicasForTest, ASumIsDividedByTheTarget) {
  EXPECT_EQ(ReplicasFor(External(2.8, 0.7), 2), 4);
  EXPECT_EQ(ReplicasFor(External(2.9, 0.7), 2), 5);
  EXPECT_EQ(ReplicasFor(External(0.1, 0.7), 2), 1);
  EXPECT_EQ(ReplicasFor(External(0, 0.7), 2), 0);
}

TEST(ReplicasForTest, ATenthMoreOrLessChangesNothing) {
  EXPECT_EQ(ReplicasFor(External(10 * 1.09, 1), 10), 10);
  EXPECT_EQ(ReplicasFor(External(10 * 1.11, 1), 10), 12);
  EXPECT_EQ(ReplicasFor(External(10 * 0.91, 1), 10), 10);
  EXPECT_EQ(ReplicasFor(External(10 * 0.88, 1), 10), 9);
  EXPECT_EQ(ReplicasFor(PerPod({1.09, 1.09}, 1), 2), 2);
}

TEST(ReplicasForTest, APodWithoutAValueSpeaksAgainstAChange) {
  // Two busy pods and two that start: these count as empty, so there are enough.
  EXPECT_EQ(ReplicasFor(PerPod({1.4, 1.4}, 0.7), 4), 4);
  EXPECT_EQ(ReplicasFor(PerPod({1.4, 1.4}, 0.7), 3), 4);
  // Two idle pods and one that starts: it counts as one at its target.
  EXPECT_EQ(ReplicasFor(PerPod({0, 0}, 0.7), 3), 1);
  EXPECT_EQ(ReplicasFor(PerPod({0, 0}, 0.7), 2), 0);
  EXPECT_EQ(ReplicasFor(PerPod({}, 0.7), 2), std::nullopt);
}

TEST(HorizontalScalerTest, ThePoolGrowsAtOnceByFourOrToTwiceAsMany) {
  HorizontalScaler scaler({.min_replicas = 1, .max_replicas = 100}, 1, absl::ZeroDuration());
  int replicas = 1;
  std::vector<int> seen;
  for (int i = 1; i <= 6; ++i) {
    replicas = scaler.Next({External(60, 1)}, replicas, i * kSync);
    seen.push_back(replicas);
  }
  EXPECT_THAT(seen, ::testing::ElementsAre(5, 10, 20, 40, 60, 60));
}

TEST(HorizontalScalerTest, TheLargestThatAMetricAsksForCountsWithinTheBounds) {
  HorizontalScaler scaler({.min_replicas = 2, .max_replicas = 4}, 3, absl::ZeroDuration());
  EXPECT_EQ(scaler.Next({External(0.1, 1), External(9, 1)}, 3, kSync), 4);
  EXPECT_EQ(scaler.Next({External(0, 1)}, 4, absl::Hours(1)), 3);
  EXPECT_EQ(scaler.Next({External(0, 1)}, 3, absl::Hours(2)), 2);
  EXPECT_EQ(scaler.Next({External(0, 1)}, 2, absl::Hours(3)), 2);
}

TEST(HorizontalScalerTest, ThePoolShrinksByOneInHalfAMinuteAfterTheWindow) {
  HorizontalScaler scaler({.max_replicas = 10, .scale_down = absl::Minutes(5)}, 1,
                          absl::ZeroDuration());
  int replicas = scaler.Next({External(5, 1)}, 1, kSync);
  ASSERT_EQ(replicas, 5);
  for (absl::Duration now = 2 * kSync; now < kSync + absl::Minutes(5); now += kSync) {
    replicas = scaler.Next({External(1, 1)}, replicas, now);
    EXPECT_EQ(replicas, 5) << now;
  }
  std::vector<int> seen;
  for (int i = 0; i < 8; ++i) {
    replicas = scaler.Next({External(1, 1)}, replicas, kSync + absl::Minutes(5) + i * kSync);
    seen.push_back(replicas);
  }
  EXPECT_THAT(seen, ::testing::ElementsAre(4, 4, 3, 3, 2, 2, 1, 1));
}

TEST(HorizontalScalerTest, APeakWithinTheWindowKeepsThePods) {
  HorizontalScaler scaler({.max_replicas = 10, .scale_down = absl::Minutes(5)}, 3,
                          absl::ZeroDuration());
  for (int i = 1; i < 200; ++i) {
    // Every four minutes all three are needed once.
    EXPECT_EQ(scaler.Next({External(i % 16 == 0 ? 3 : 1, 1)}, 3, i * kSync), 3) << i;
  }
}

TEST(HorizontalScalerTest, AMetricThatIsMissingTakesNoPodAway) {
  HorizontalScaler scaler({.max_replicas = 10, .scale_down = kSync}, 3, absl::ZeroDuration());
  const absl::Duration later = absl::Hours(1);
  EXPECT_EQ(scaler.Next({PerPod({}, 1), External(1, 1)}, 3, later), 3);
  EXPECT_EQ(scaler.Next({PerPod({}, 1), External(5, 1)}, 3, later + kSync), 5);
  const ScalingMetric failing = {.is_available = false};
  EXPECT_EQ(scaler.Next({External(1, 1), failing}, 5, 2 * later), 5);
  EXPECT_EQ(scaler.Next({External(7, 1), failing}, 5, 2 * later + kSync), 7);
}

TEST(HorizontalScalerTest, ATargetWithoutReplicasIsLeftAlone) {
  HorizontalScaler scaler({.max_replicas = 10}, 0, absl::ZeroDuration());
  EXPECT_EQ(scaler.Next({External(5, 1)}, 0, kSync), 0);
}

}  // namespace
}  // namespace continuo::simulate
