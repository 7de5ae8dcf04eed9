// SPDX-License-Identifier: Apache-2.0
// Tests of streams that replace one another at a gateway.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/protocol/error.h"
#include "tests/gateway/relay/relay_simulation.h"

namespace continuo::gateway {
namespace {

v1::GenerateRequest Continued(const std::vector<v1::GenerateResponse>& responses) {
  v1::GenerateRequest request = Request("long", 200);
  request.mutable_continuation();
  for (const auto& response : responses) {
    request.mutable_continuation()->mutable_received()->MergeFrom(response);
  }
  return request;
}

void ExpectReplaced(const SimulatedClient& client) {
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->code(), absl::StatusCode::kAborted);
  EXPECT_EQ(protocol::ReasonOf(*client.status), protocol::kReasonAborted);
}

// A stream is replaced at any moment of its life, by a chain of clients that each go on with what
// the ones before received.
TEST(StreamRelayReplaceTest, NoTwoWorkersComputeAStreamAtATime) {
  for (int seed = 0; seed < 60; ++seed) {
    RelayWorld world(seed);
    std::vector<std::unique_ptr<SimulatedClient>> clients;
    world.Start(Request("long", 200));
    std::vector<v1::GenerateResponse> received;
    SimulatedClient* last = &world.client;
    for (int i = 1; i <= 3; ++i) {
      world.sim.Run(world.sim.clock.Now() + world.sim.Delay(absl::Milliseconds(900)));
      // The client has what has been written so far; the rest is lost with the connection.
      received.insert(received.end(), last->responses.begin(), last->responses.end());
      clients.push_back(std::make_unique<SimulatedClient>(&world.sim));
      SimulatedClient* const next = clients.back().get();
      const size_t num_before = received.size();
      world.Open(Continued(received), next);
      if (!last->status.has_value()) next->relay->Replace(*last->relay);
      // The one before may get a little more, which its client does not read.
      received.resize(num_before);
      next->relay->Start();
      last = next;
    }
    world.sim.Run();
    EXPECT_EQ(world.fleet.max_live, 1) << seed;
    EXPECT_EQ(world.InFlight(), 0) << seed;
    EXPECT_EQ(*last->status, absl::OkStatus()) << seed;
    received.insert(received.end(), last->responses.begin(), last->responses.end());
    EXPECT_EQ(Join(received), UndisturbedAnswer(Request("long", 200))) << seed;
  }
}

TEST(StreamRelayReplaceTest, TheOneBeforeIsAborted) {
  RelayWorld world(1);
  SimulatedClient next(&world.sim);
  world.Start(Request("long", 200));
  world.sim.Run(world.sim.clock.Now() + absl::Milliseconds(300));
  world.Open(Continued(world.client.responses), &next);
  next.relay->Replace(*world.client.relay);
  next.relay->Start();
  world.sim.Run();
  ExpectReplaced(world.client);
  EXPECT_EQ(*next.status, absl::OkStatus());
}

TEST(StreamRelayReplaceTest, AContinuationGoesToTheWorkerThatItComesFrom) {
  for (int seed = 0; seed < 20; ++seed) {
    RelayWorld world(seed, /*num_workers=*/8);
    SimulatedClient next(&world.sim);
    world.Start(Request("long", 200));
    world.sim.Run(world.sim.clock.Now() + absl::Milliseconds(300));
    ASSERT_FALSE(world.client.responses.empty());
    world.Open(Continued(world.client.responses), &next);
    next.relay->Replace(*world.client.relay);
    next.relay->Start();
    world.sim.Run();
    ASSERT_EQ(world.fleet.tries.size(), 2);
    EXPECT_EQ(world.fleet.tries[0].address, world.fleet.tries[1].address) << seed;
  }
}

TEST(StreamRelayReplaceTest, AReplacedStreamThatHasNotStartedHoldsUpNobody) {
  // The third one replaces the second one before that has started; the first one still runs.
  RelayWorld world(1);
  SimulatedClient second(&world.sim), third(&world.sim);
  world.Start(Request("long", 200));
  world.sim.Run(world.sim.clock.Now() + absl::Milliseconds(300));
  world.Open(Continued({}), &second);
  second.relay->Replace(*world.client.relay);
  world.Open(Continued({}), &third);
  third.relay->Replace(*second.relay);
  third.relay->Start();
  second.relay->Start();
  world.sim.Run();
  ExpectReplaced(world.client);
  ExpectReplaced(second);
  EXPECT_EQ(*third.status, absl::OkStatus());
  EXPECT_EQ(Join(third.responses), UndisturbedAnswer(Request("long", 200)));
  EXPECT_EQ(world.fleet.max_live, 1);
}

TEST(StreamRelayReplaceTest, OneThatHasEndedIsReplacedAtOnce) {
  RelayWorld world(1);
  SimulatedClient next(&world.sim);
  world.Start(Request("long", 200));
  world.sim.Run();
  ASSERT_EQ(*world.client.status, absl::OkStatus());
  world.Open(Continued({}), &next);
  next.relay->Replace(*world.client.relay);
  next.relay->Start();
  world.sim.Run();
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(*next.status, absl::OkStatus());
}

TEST(StreamRelayReplaceTest, AClientThatLeavesWhileItWaitsFreesTheNextOne) {
  RelayWorld world(1);
  SimulatedClient second(&world.sim), third(&world.sim);
  world.Open(Request("long", 200), &world.client);  // not started: its end is not handled yet
  world.Open(Continued({}), &second);
  second.relay->Replace(*world.client.relay);
  second.relay->Start();
  second.relay->OnCancelled();
  world.Open(Continued({}), &third);
  third.relay->Replace(*second.relay);
  third.relay->Start();
  world.Report();
  world.sim.Run(world.sim.clock.Now() + absl::Seconds(1));
  EXPECT_TRUE(absl::IsCancelled(*second.status));
  EXPECT_TRUE(world.fleet.tries.empty());
  second.relay.reset();
  world.client.relay->Start();
  world.sim.Run();
  ExpectReplaced(world.client);
  EXPECT_EQ(*third.status, absl::OkStatus());
  EXPECT_EQ(world.fleet.tries.size(), 1);
}

}  // namespace
}  // namespace continuo::gateway
