// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/silence.h"

#include <gtest/gtest.h>

#include <vector>

namespace continuo::gateway {
namespace {

// `size` ages spread evenly up to `oldest`.
std::vector<absl::Duration> Spread(int size, absl::Duration oldest) {
  std::vector<absl::Duration> ages;
  for (int i = 1; i <= size; ++i) ages.push_back(oldest * i / size);
  return ages;
}

TEST(FleetSilenceLimitTest, AFleetThatReportsHasAShortOne) {
  EXPECT_LT(FleetSilenceLimit(Spread(1000, absl::Milliseconds(500))), absl::Milliseconds(1010));
}

TEST(FleetSilenceLimitTest, AGatewayThatReadsLateWaitsAsMuchLonger) {
  // Each report is read five seconds after the one before: nobody is silent.
  EXPECT_GT(FleetSilenceLimit(Spread(1000, absl::Seconds(5))), absl::Seconds(5));
}

TEST(FleetSilenceLimitTest, UpToThreeQuartersMayBeSilent) {
  std::vector<absl::Duration> ages(100, absl::Seconds(60));
  for (int i = 0; i < 26; ++i) ages[i] = absl::Milliseconds(100);
  EXPECT_EQ(FleetSilenceLimit(ages), absl::Milliseconds(100) * kSilentAges);
  ages[25] = absl::Seconds(60);
  EXPECT_GT(FleetSilenceLimit(ages), absl::Seconds(60));
}

TEST(FleetSilenceLimitTest, ASmallFleetHasNone) {
  EXPECT_EQ(FleetSilenceLimit({}), absl::ZeroDuration());
  EXPECT_EQ(FleetSilenceLimit(Spread(kMinFleet - 1, absl::Hours(1))), absl::ZeroDuration());
  EXPECT_GT(FleetSilenceLimit(Spread(kMinFleet, absl::Hours(1))), absl::Hours(1));
}

}  // namespace
}  // namespace continuo::gateway
