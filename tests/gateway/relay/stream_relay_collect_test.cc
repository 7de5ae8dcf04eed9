// SPDX-License-Identifier: Apache-2.0
// Tests of requests with output.collect: nothing is received before the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "services/protocol/error.h"
#include "tests/gateway/relay/relay_simulation.h"

namespace continuo::gateway {
namespace {

using ::testing::SizeIs;

v1::GenerateRequest CollectRequest() {
  v1::GenerateRequest request;
  request.set_text("once");
  request.mutable_stopping()->set_max_tokens(20);
  request.mutable_output()->set_collect(true);
  return request;
}

// Returns the same fault at the first `calls` calls.
auto FaultAtFirst(int calls, Fault fault) {
  return [=](const SimulatedFleet::Try&, int number) {
    return number < calls ? std::optional(fault) : std::nullopt;
  };
}

void ExpectOneUndisturbedResponse(const RelayWorld& world) {
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_THAT(world.client.responses, SizeIs(1));
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(CollectRequest()));
}

TEST(StreamRelayCollectTest, ARequestThatKillsThreeWorkersInARowIsPoison) {
  RelayWorld world(1, 5);
  world.fleet.faults = FaultAtFirst(5, {Fault::Kind::kKill, 1});  // after it was accepted
  world.Run(CollectRequest());
  EXPECT_TRUE(absl::IsInternal(*world.client.status)) << *world.client.status;
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonPoison);
  EXPECT_THAT(world.fleet.tries, SizeIs(3));
  EXPECT_THAT(world.client.responses, SizeIs(0));
}

TEST(StreamRelayCollectTest, TwoDeathsInARowAreSurvived) {
  RelayWorld world(1, 5);
  world.fleet.faults = FaultAtFirst(2, {Fault::Kind::kKill, 1});
  world.Run(CollectRequest());
  ExpectOneUndisturbedResponse(world);
  EXPECT_THAT(world.fleet.tries, SizeIs(3));
}

TEST(StreamRelayCollectTest, CutsAndDeathsBeforeItIsAcceptedAreNoPoison) {
  for (const Fault fault :
       {Fault{Fault::Kind::kCut, 1}, Fault{Fault::Kind::kDrain, 1}, Fault{Fault::Kind::kKill, 0}}) {
    RelayWorld world(1, 6);
    world.fleet.faults = FaultAtFirst(5, fault);
    world.Run(CollectRequest());
    ExpectOneUndisturbedResponse(world);
  }
}

TEST(StreamRelayCollectTest, AWorkerThatTellsNothingBeforeTheEndIsBelieved) {
  RelayWorld world(1, 5);
  world.fleet.tells_accepted = false;
  world.fleet.faults = FaultAtFirst(4, {Fault::Kind::kKill, 0});
  world.Run(CollectRequest());
  ExpectOneUndisturbedResponse(world);
}

TEST(StreamRelayCollectTest, TheReportTellsWhenItWasAccepted) {
  RelayWorld world(1);
  world.Run(CollectRequest());
  ExpectOneUndisturbedResponse(world);
  const RelayReport& report = world.client.report;
  EXPECT_GT(report.queue, absl::ZeroDuration());
  EXPECT_GT(report.prefill, absl::ZeroDuration());
  EXPECT_EQ(report.queue + report.prefill, report.time_to_first_token);
}

}  // namespace
}  // namespace continuo::gateway
