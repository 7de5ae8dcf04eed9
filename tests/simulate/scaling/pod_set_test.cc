// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/scaling/pod_set.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/simulate/scaling/pool_test_base.h"

namespace continuo::simulate {
namespace {

class PodSetTest : public PoolTestBase {
 protected:
  PodSetTest() : PoolTestBase(/*start=*/absl::Seconds(30)) {}
};

TEST_F(PodSetTest, APodThatWaitsForAPlaceStartsOnceOneHasDrained) {
  pods_.Scale(3);
  pods_.Scale(4);
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 3, .draining = 1}));
  EXPECT_TRUE(pods_.CheckInvariants().ok()) << pods_.CheckInvariants();
  Run(absl::Seconds(1));
  EXPECT_EQ(pods_.Count(), (PodCounts{.starting = 1, .serving = 3}));
  Run(absl::Seconds(30));
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 4}));
  EXPECT_TRUE(pods_.CheckInvariants().ok()) << pods_.CheckInvariants();
}

TEST_F(PodSetTest, APodThatWaitsForAPlaceGoesBeforeThoseThatServe) {
  pods_.Scale(3);
  pods_.Scale(4);
  pods_.Scale(3);
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 3, .draining = 1}));
  EXPECT_TRUE(pods_.CheckInvariants().ok()) << pods_.CheckInvariants();
  Run(absl::Minutes(1));
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 3}));
  EXPECT_TRUE(pods_.CheckInvariants().ok()) << pods_.CheckInvariants();
}

TEST_F(PodSetTest, OneOfTwoThatAreTooManyWaitsForAPlace) {
  pods_.Scale(3);
  pods_.Scale(4);
  pods_.Scale(2);
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 2, .draining = 2}));
  Run(absl::Minutes(1));
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 2}));
  EXPECT_TRUE(pods_.CheckInvariants().ok()) << pods_.CheckInvariants();
}

TEST_F(PodSetTest, PodsThatStartGoFirstAndThenThoseWhoseProcessIsDown) {
  pods_.Scale(3);
  Run(absl::Seconds(1));
  pods_.Scale(4);
  workers_[0]->Crash();
  EXPECT_EQ(pods_.Count(), (PodCounts{.starting = 1, .serving = 3}));
  pods_.Scale(3);
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 3}));
  pods_.Scale(2);
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 2}));
  EXPECT_FALSE(pods_.IsServing(0));
  pods_.Scale(1);
  EXPECT_EQ(pods_.Count(), (PodCounts{.serving = 1, .draining = 1}));
}

// A planted fault: a worker runs in a place that has no pod.
TEST_F(PodSetTest, AWorkerThatRunsWithoutAPodIsFound) {
  pods_.Scale(3);
  Run(absl::Seconds(1));
  ASSERT_TRUE(pods_.CheckInvariants().ok()) << pods_.CheckInvariants();
  workers_[3]->Restart();
  EXPECT_THAT(std::string(pods_.CheckInvariants().message()),
              ::testing::HasSubstr("worker 3 runs without a pod"));
}

}  // namespace
}  // namespace continuo::simulate
