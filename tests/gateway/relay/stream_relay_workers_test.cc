// SPDX-License-Identifier: Apache-2.0
// Tests of the workers that a stream waits for, and for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/gateway/relay/stream_relay.h"
#include "services/protocol/error.h"
#include "tests/gateway/relay/relay_simulation.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(StreamRelayWorkersTest, AWorkerThatStartsLateRescuesTheStream) {
  RelayWorld world(1, 1);
  world.fleet.faults = FaultsAt({{Fault::Kind::kKill, 3}});
  world.fleet.restart_after = std::nullopt;
  world.Start(Request());
  world.sim.After(absl::Seconds(20), [&] { world.fleet.AddWorker("late:1"); });
  world.sim.Run();
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request()));
}

TEST(StreamRelayWorkersTest, WithoutAnyWorkerTheStreamEndsAfterTheWait) {
  RelayWorld world(1, 1);
  world.fleet.faults = FaultsAt({{Fault::Kind::kKill, 3}});
  world.fleet.restart_after = std::nullopt;
  const absl::Time start = world.sim.clock.Now();
  world.Run(Request());
  EXPECT_TRUE(absl::IsUnavailable(*world.client.status));
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonNoWorker);
  EXPECT_NEAR(absl::ToDoubleSeconds(world.client.finish_time - start), 30, 1);
}

TEST(StreamRelayWorkersTest, AStreamThatEndsBeforeItsFirstCallIsOfItsModel) {
  v1::GenerateRequest named = Request();
  named.set_model(FakeGeneration::Worker().model);
  v1::GenerateRequest continued = Request();
  continued.mutable_continuation()->mutable_received()->mutable_accepted()->set_model(
      named.model());
  for (const v1::GenerateRequest& request : {named, continued}) {
    RelayWorld world(1, 1);
    world.fleet.SetState("w0:1", WorkerState::kLost);
    world.Run(request);
    EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonNoWorker);
    EXPECT_EQ(world.client.report.model, named.model());
  }
}

TEST(StreamRelayWorkersTest, TheWaitIsCountedAnewAfterProgress) {
  RelayWorld world(1, 1);
  world.fleet.faults = FaultsAt({{Fault::Kind::kKill, 3}, {Fault::Kind::kKill, 3}});
  world.fleet.restart_after = absl::Seconds(20);
  world.Run(Request("once", 40));
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request("once", 40)));
}

TEST(StreamRelayWorkersTest, TheDeadlineBoundsTheWaitForAWorker) {
  RelayWorld world(1, 0);
  world.Start(Request(), absl::Seconds(3));
  const absl::Time start = world.sim.clock.Now();
  world.sim.Run();
  EXPECT_TRUE(absl::IsDeadlineExceeded(*world.client.status)) << *world.client.status;
  EXPECT_EQ(world.client.finish_time - start, absl::Seconds(3));
}

TEST(StreamRelayWorkersTest, WithoutAnEqualFingerprintItGoesOnInexactly) {
  RelayWorld world(1, 1);
  world.fleet.AddWorker("other:1", {.fingerprint = "G"});
  world.fleet.SetState("other:1", WorkerState::kDraining);
  world.fleet.faults = FaultsAt({{Fault::Kind::kKill, 3}});
  world.fleet.restart_after = std::nullopt;
  world.Start(Request());
  world.sim.After(absl::Milliseconds(1),
                  [&] { world.fleet.SetState("other:1", WorkerState::kServing); });
  world.sim.Run();
  ASSERT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(world.fleet.tries[1].address, "other:1");
  EXPECT_TRUE(world.client.responses.back().summary().inexact());
  EXPECT_TRUE(Join(world.client.responses).gapless);
}

TEST(StreamRelayWorkersTest, ExactOnlyEndsWhereItCouldOnlyGoOnInexactly) {
  RelayWorld world(1, 1);
  world.fleet.AddWorker("other:1", {.fingerprint = "G"});
  world.fleet.SetState("other:1", WorkerState::kDraining);
  world.fleet.faults = FaultsAt({{Fault::Kind::kKill, 3}});
  world.fleet.restart_after = std::nullopt;
  v1::GenerateRequest request = Request();
  request.set_exact_only(true);
  world.Start(request);
  world.sim.After(absl::Milliseconds(1),
                  [&] { world.fleet.SetState("other:1", WorkerState::kServing); });
  world.sim.Run();
  EXPECT_TRUE(absl::IsUnavailable(*world.client.status));
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonNoWorker);
  EXPECT_THAT(world.fleet.tries, SizeIs(1));
}

TEST(StreamRelayWorkersTest, ExactOnlyIsRejectedAtOnceWhereWorkersHaveNoFingerprint) {
  RelayWorld world(1);
  world.fleet.faults = [](const SimulatedFleet::Try&, int) {
    return Fault{Fault::Kind::kInexact, 0};
  };
  v1::GenerateRequest request = Request();
  request.set_exact_only(true);
  world.Run(request);
  EXPECT_TRUE(absl::IsUnavailable(*world.client.status));
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonNoWorker);
  EXPECT_THAT(world.fleet.tries, SizeIs(1));
}

TEST(StreamRelayWorkersTest, AnotherTokenizerEndsTheStream) {
  RelayWorld world(1, 1);
  world.fleet.AddWorker("other:1", {.fingerprint = "G", .tokenizer_fingerprint = "U"});
  world.fleet.SetState("other:1", WorkerState::kDraining);
  world.fleet.faults = FaultsAt({{Fault::Kind::kKill, 3}});
  world.fleet.restart_after = std::nullopt;
  world.Start(Request());
  world.sim.After(absl::Milliseconds(1),
                  [&] { world.fleet.SetState("other:1", WorkerState::kServing); });
  // The stream waits for its worker as long as that is listed.
  world.sim.After(absl::Seconds(5), [&] {
    EXPECT_FALSE(world.client.status.has_value());
    world.fleet.RemoveWorker("w0:1");
  });
  world.sim.Run();
  ASSERT_TRUE(world.client.status.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(*world.client.status)) << *world.client.status;
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonModelChanged);
}

TEST(StreamRelayWorkersTest, ChangesOfTheWorkersLeaveNoTimers) {
  RelayWorld world(1, 1);
  world.fleet.SetState("w0:1", WorkerState::kLoading);
  world.Start(Request());
  world.sim.After(absl::Seconds(1), [&] {
    const size_t num_due = world.sim.num_due();
    for (int i = 0; i < 1000; ++i) world.fleet.Publish();
    EXPECT_LE(world.sim.num_due(), num_due + 1);
    world.fleet.SetState("w0:1", WorkerState::kServing);
  });
  world.sim.Run();
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request()));
}

TEST(StreamRelayWorkersTest, AnotherFingerprintIsNotTakenWhileItsOwnWorkerReconnects) {
  RelayWorld world(1, 1);
  world.fleet.AddWorker("other:1", {.fingerprint = "G"});
  world.fleet.SetState("other:1", WorkerState::kDraining);
  world.fleet.faults = FaultsAt({{Fault::Kind::kKill, 3}});
  world.fleet.restart_after = absl::Milliseconds(300);
  world.Start(Request());
  world.sim.After(absl::Milliseconds(1),
                  [&] { world.fleet.SetState("other:1", WorkerState::kServing); });
  world.sim.Run();
  ASSERT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(world.fleet.tries[1].address, "w0:1");
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request()));
}

}  // namespace
}  // namespace continuo::gateway
