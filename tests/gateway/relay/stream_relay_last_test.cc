// SPDX-License-Identifier: Apache-2.0
// Tests of the last response of a stream, which the client gets together with the status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/protocol/error.h"
#include "tests/gateway/relay/relay_simulation.h"

namespace continuo::gateway {
namespace {

using ::testing::SizeIs;

TEST(StreamRelayLastTest, TheSummaryAndTheStatusAreOneWrite) {
  int num_together = 0;
  for (int seed = 0; seed < 50; ++seed) {
    RelayWorld world(seed);
    world.client.write_delay = absl::Milliseconds(seed);
    world.Run(Request("last", 24));
    ASSERT_EQ(*world.client.status, absl::OkStatus());
    EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request("last", 24)));
    EXPECT_TRUE(world.client.responses.back().has_summary());
    // A client that still takes the response before the summary gets the status by itself.
    EXPECT_LE(world.client.num_last, 1);
    num_together += world.client.num_last;
  }
  EXPECT_GE(num_together, 40);
}

TEST(StreamRelayLastTest, ASummaryThatFillsTheOutboxIsFollowedByItsStatus) {
  RelayWorld world(1);
  world.options.outbox.max_bytes = 1;  // each response fills it
  world.Start(Request("last", 24));
  world.sim.After(absl::Minutes(1), [&] { world.client.relay->OnCancelled(); });
  world.sim.Run();
  ASSERT_TRUE(world.client.status.has_value());
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_TRUE(world.client.responses.back().has_summary());
}

TEST(StreamRelayLastTest, AClientThatLeavesWhileTheSummaryWaitsEndsTheCall) {
  RelayWorld world(1);
  const int num_responses = static_cast<int>([] {
    RelayWorld undisturbed(1);
    undisturbed.Run(Request("last", 24));
    return undisturbed.client.responses.size();
  }());
  // The worker says nothing after its summary.
  world.fleet.faults = FaultsAt({{Fault::Kind::kHang, num_responses}});
  world.Start(Request("last", 24));
  world.sim.After(absl::Seconds(1), [&] {
    EXPECT_THAT(world.client.responses, SizeIs(num_responses - 1));
    world.client.relay->OnCancelled();
  });
  world.sim.Run();
  EXPECT_TRUE(absl::IsCancelled(*world.client.status)) << *world.client.status;
  EXPECT_EQ(world.InFlight(), 0);
}

TEST(StreamRelayLastTest, AnErrorFollowsTheResponseThatWaits) {
  RelayWorld world(1);
  world.client.stalled = true;
  world.Start(Request("long", 500));
  world.sim.After(absl::Milliseconds(300), [&] {
    world.client.relay->End(
        protocol::WithReason(absl::UnavailableError("ends"), protocol::kReasonContinue));
    world.client.stalled = false;
    world.client.Written(true);
  });
  world.sim.Run();
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonContinue);
  EXPECT_TRUE(Join(world.client.responses).gapless);
  EXPECT_EQ(world.client.num_last, 1);
}

}  // namespace
}  // namespace continuo::gateway
