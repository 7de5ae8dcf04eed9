// SPDX-License-Identifier: Apache-2.0
// Tests of streams whose gateway ends.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "services/protocol/error.h"
#include "tests/gateway/relay/relay_simulation.h"

namespace continuo::gateway {
namespace {

TEST(StreamRelayEndTest, AGatewayThatEndsDeliversWhatItHasAndThenSaysContinue) {
  RelayWorld world(1);
  world.Start(Request("long", 500));
  world.sim.After(absl::Milliseconds(300), [&] {
    world.client.relay->End(
        protocol::WithReason(absl::UnavailableError("ends"), protocol::kReasonContinue));
  });
  world.sim.Run();
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonContinue);
  EXPECT_TRUE(Join(world.client.responses).gapless);
  EXPECT_EQ(world.InFlight(), 0);

  // The client continues elsewhere with what it got.
  v1::GenerateRequest request = Request("long", 500);
  for (const auto& response : world.client.responses) {
    request.mutable_continuation()->mutable_received()->MergeFrom(response);
  }
  RelayWorld elsewhere(2);
  elsewhere.Run(request);
  std::vector<v1::GenerateResponse> all = world.client.responses;
  all.insert(all.end(), elsewhere.client.responses.begin(), elsewhere.client.responses.end());
  EXPECT_EQ(Join(all), UndisturbedAnswer(Request("long", 500)));
}

TEST(StreamRelayEndTest, OfAClientThatDoesNotReadTheEndIsToldAllTheSame) {
  RelayWorld world(1);
  world.client.stalled = true;
  world.Start(Request("long", 500));
  const auto give_up = [&] { world.client.relay->GiveUp(); };
  world.sim.After(absl::Milliseconds(200), give_up);  // has no effect before the end
  world.sim.After(absl::Milliseconds(300), [&] {
    EXPECT_FALSE(world.client.given_up.has_value());
    world.client.relay->End(
        protocol::WithReason(absl::UnavailableError("ends"), protocol::kReasonContinue));
  });
  world.sim.After(absl::Milliseconds(400), give_up);
  world.sim.After(absl::Milliseconds(500), [&] {
    EXPECT_FALSE(world.client.status.has_value());
    ASSERT_TRUE(world.client.given_up.has_value());
    EXPECT_EQ(protocol::ReasonOf(*world.client.given_up), protocol::kReasonContinue);
    EXPECT_EQ(world.client.report.request_id, "id");
    EXPECT_EQ(world.client.report.duration, absl::Milliseconds(400));
    world.client.stalled = false;
    world.client.Written(false);
  });
  world.sim.Run();
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonContinue);
}

}  // namespace
}  // namespace continuo::gateway
