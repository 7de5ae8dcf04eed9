// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/scaling/autoscaler.h"

#include <gtest/gtest.h>

#include <vector>

#include "services/gateway/routing/load_view.h"
#include "tests/simulate/scaling/pool_test_base.h"

namespace continuo::simulate {
namespace {

class AutoscalerPoolTest : public PoolTestBase {
 protected:
  AutoscalerPoolTest() : PoolTestBase(/*start=*/absl::ZeroDuration()) {}
};

TEST_F(AutoscalerPoolTest, WithoutAGatewayToAskNoPodIsTakenAway) {
  const gateway::LoadView view;
  gateway::Demand demand(
      "1", [] { return gateway::DemandByModel(); }, &view, &loop_);
  std::vector<gateway::Demand*> gateways = {nullptr};
  // Neither Kubernetes' controller nor KEDA knows that nobody waits.
  Autoscaler autoscaler(
      {.by = AutoscalerOptions::By::kKeda,
       .min_replicas = 0,
       .max_replicas = 4,
       .scale_down = absl::Seconds(50)},
      "m", &workers_, &pods_, [&] { return gateways; }, &loop_);
  Run(absl::Minutes(10));
  EXPECT_EQ(pods_.wanted(), 4);
  gateways = {&demand};
  Run(absl::Minutes(2));
  EXPECT_EQ(pods_.wanted(), 0);
}

TEST_F(AutoscalerPoolTest, AValueIsOfThePodThatWasScraped) {
  Autoscaler autoscaler(
      // A rate would take two scrapes.
      {.min_replicas = 1, .max_replicas = 4, .token_time = 0, .scale_down = absl::Seconds(10)}, "m",
      &workers_, &pods_, [] { return std::vector<gateway::Demand*>(); }, &loop_);
  // All were scraped after 22.5 s; then others take their places.
  Run(absl::Seconds(23));
  pods_.Scale(0);
  Run(absl::Seconds(1));
  pods_.Scale(4);
  Run(absl::Seconds(1));
  ASSERT_EQ(pods_.Count(), (PodCounts{.serving = 4}));
  Run(absl::Seconds(6));
  EXPECT_EQ(pods_.wanted(), 4);
  // After the next scrape they are known to be idle.
  Run(absl::Seconds(15));
  EXPECT_EQ(pods_.wanted(), 3);
}

}  // namespace
}  // namespace continuo::simulate
