// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/stream_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/base/check.h"
#include "services/protocol/error.h"
#include "tests/gateway/relay/relay_simulation.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Sets at random every field that changes the state to be kept over a migration.
v1::GenerateRequest RandomRequest(Simulation& sim) {
  v1::GenerateRequest request = Request("p" + std::to_string(sim.Draw(1000)), 1 + sim.Draw(40));
  request.mutable_sampling()->set_seed(sim.random());
  if (sim.Draw(2)) request.mutable_sampling()->set_num_sequences(1 + sim.Draw(4));
  if (sim.Draw(3) == 0) request.mutable_output()->set_logprobs(1);
  if (sim.Draw(3) == 0) request.mutable_output()->set_prompt_logprobs(1);
  if (sim.Draw(8) == 0) request.mutable_output()->set_collect(true);
  return request;
}

TEST(StreamRelayTest, AnUndisturbedStreamPassesAsItIs) {
  RelayWorld world(1);
  world.Run(Request());
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request()));
  EXPECT_THAT(world.fleet.tries, SizeIs(1));
  EXPECT_FALSE(world.fleet.tries[0].request.has_continuation());
  EXPECT_FALSE(world.fleet.tries[0].is_migration);
  EXPECT_EQ(world.client.report.migrations, 0);
  EXPECT_EQ(world.client.report.completion_tokens, Join(world.client.responses).completion_tokens);
}

TEST(StreamRelayTest, AStreamCutAnywhereGoesOnExactly) {
  for (const Fault::Kind kind :
       {Fault::Kind::kCut, Fault::Kind::kCancelled, Fault::Kind::kReset, Fault::Kind::kEarlyOk,
        Fault::Kind::kDrain, Fault::Kind::kGap, Fault::Kind::kKill, Fault::Kind::kHang}) {
    // The last of these cuts come between summary and status, and after the end.
    for (int cut = 0; cut < 16; ++cut) {
      RelayWorld world(100 + cut);
      world.fleet.faults = FaultsAt({{kind, cut}});
      world.Run(Request("cut", 24));
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << " after " << cut);
      ASSERT_EQ(*world.client.status, absl::OkStatus());
      ASSERT_EQ(Join(world.client.responses), UndisturbedAnswer(Request("cut", 24)));
    }
  }
}

TEST(StreamRelayTest, TheReportTellsWhereTheTimeWent) {
  RelayWorld world(7);
  world.fleet.faults = FaultsAt({{Fault::Kind::kCut, 4}});
  world.Run(Request("cut", 24));
  const RelayReport& report = world.client.report;
  EXPECT_EQ(report.migrations, 1);
  ASSERT_THAT(report.attempts, SizeIs(2));
  EXPECT_EQ(report.attempts[0].reason, "lost");
  EXPECT_EQ(report.attempts[1].reason, "");
  EXPECT_EQ(report.attempts[1].worker, report.worker);
  EXPECT_LT(report.attempts[0].begin, report.attempts[0].end);
  EXPECT_LT(report.attempts[0].end, report.attempts[1].begin);
  EXPECT_LT(report.attempts[1].begin, report.attempts[1].end);
  EXPECT_LE(report.attempts[1].end, report.duration);
  // A worker was there at once, and after the migration's back-off.
  EXPECT_EQ(report.attempts[0].begin, absl::ZeroDuration());
  EXPECT_EQ(report.without_worker, report.attempts[1].begin - report.attempts[0].end);
  EXPECT_GT(report.stall, report.without_worker);
  EXPECT_GE(report.longest_gap, report.stall);
  EXPECT_LT(report.longest_gap, report.duration);
  EXPECT_GT(report.queue, absl::ZeroDuration());
  EXPECT_GT(report.prefill, absl::ZeroDuration());
  EXPECT_EQ(report.queue + report.prefill, report.time_to_first_token);
}

// The simulation's clock, but time passes with every look at it.
class TickingClock : public Clock {
 public:
  explicit TickingClock(const Clock* clock) : clock_(clock) {}
  absl::Time Now() const override { return clock_->Now(); }
  absl::Duration Elapsed() const override {
    return clock_->Elapsed() + absl::Nanoseconds(++num_looks_);
  }

 private:
  const Clock* const clock_;
  mutable int64_t num_looks_ = 0;
};

TEST(StreamRelayTest, AFirstTokenThatComesWithAcceptedTookNoNegativeTime) {
  RelayWorld world(7);
  const TickingClock clock(&world.sim.clock);
  world.clock = &clock;
  v1::Accepted accepted;
  world.fleet.edit = [&](v1::GenerateResponse& response) {
    if (response.has_accepted()) {
      accepted.Swap(response.mutable_accepted());
      response.clear_accepted();
    } else if (accepted.ByteSizeLong() > 0) {
      response.mutable_accepted()->Swap(&accepted);
    }
  };
  world.Run(Request());
  EXPECT_TRUE(world.client.status->ok());
  const RelayReport& report = world.client.report;
  EXPECT_EQ(report.prefill, absl::ZeroDuration());
  EXPECT_LE(report.queue, report.time_to_first_token);
}

TEST(StreamRelayTest, TheReportTellsOfAPromptWhoseClientLeavesEarly) {
  for (const bool accepted : {true, false}) {
    RelayWorld world(1);
    world.Start(Request());
    const absl::Duration time = accepted ? absl::Milliseconds(100) : absl::ZeroDuration();
    world.sim.After(time, [&] { world.client.relay->OnCancelled(); });
    world.sim.Run();
    EXPECT_TRUE(absl::IsCancelled(*world.client.status));
    EXPECT_EQ(world.client.report.prompt_tokens, accepted ? 7 : 0);
  }
}

TEST(StreamRelayTest, AStreamThatNoWorkerTakesWaitsForAllOfIt) {
  RelayWorld world(7, 0);
  world.Run(Request());
  EXPECT_FALSE(world.client.status->ok());
  const RelayReport& report = world.client.report;
  EXPECT_THAT(report.attempts, SizeIs(0));
  EXPECT_GT(report.without_worker, absl::ZeroDuration());
  EXPECT_EQ(report.without_worker, report.duration);
  EXPECT_EQ(report.queue, absl::InfiniteDuration());
  EXPECT_EQ(report.prefill, absl::InfiniteDuration());
}

TEST(StreamRelayTest, RandomFaultsNeverChangeWhatTheClientGets) {
  int migrations = 0, kills = 0;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    RelayWorld world(seed, 1 + static_cast<int>(seed % 4));
    Simulation& sim = world.sim;
    const v1::GenerateRequest request = RandomRequest(sim);
    int left = sim.Draw(6);
    world.fleet.faults = [&](const SimulatedFleet::Try&, int) -> std::optional<Fault> {
      if (left-- <= 0) return std::nullopt;
      constexpr Fault::Kind kKinds[] = {Fault::Kind::kCut,     Fault::Kind::kCancelled,
                                        Fault::Kind::kEarlyOk, Fault::Kind::kDrain,
                                        Fault::Kind::kKill,    Fault::Kind::kHang};
      // A process dies after at least one token, so the request is no query of death.
      const Fault::Kind kind = kKinds[sim.Draw(6)];
      const bool dies = kind == Fault::Kind::kKill || kind == Fault::Kind::kHang;
      kills += kind == Fault::Kind::kKill;
      return Fault{kind, (dies ? 4 : 0) + sim.Draw(10)};
    };
    world.Run(request);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_TRUE(world.client.status.has_value());
    ASSERT_EQ(*world.client.status, absl::OkStatus());
    ASSERT_EQ(Join(world.client.responses), UndisturbedAnswer(request));
    ASSERT_EQ(world.InFlight(), 0);
    ASSERT_EQ(world.fleet.num_live, 0);
    ASSERT_EQ(world.fleet.max_live, 1);
    ASSERT_EQ(world.admission.counts().open_requests, 0);
    for (size_t i = 1; i < world.fleet.tries.size(); ++i) {
      ASSERT_TRUE(world.fleet.tries[i].is_migration);
      ASSERT_TRUE(world.fleet.tries[i].request.has_continuation());
      ASSERT_EQ(world.fleet.tries[i].context.request_id, "id");
    }
    const RelayReport& report = world.client.report;
    migrations += report.migrations;
    ASSERT_EQ(report.attempts.size(),
              std::min<size_t>(1 + report.migrations, RelayReport::kMaxAttempts));
    absl::Duration accounted = report.without_worker;
    for (const RelayAttempt& attempt : report.attempts) accounted += attempt.end - attempt.begin;
    ASSERT_LE(accounted, report.duration);
  }
  EXPECT_GT(migrations, 6000);
  EXPECT_GT(kills, 1000);
}

TEST(StreamRelayTest, NothingIsLeftBehindWhereverTheClientCancels) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    RelayWorld world(seed);
    world.fleet.faults = FaultsAt({{Fault::Kind::kCut, world.sim.Draw(5)}});
    world.Start(Request());
    world.sim.After(world.sim.Delay(absl::Milliseconds(400)), [&] {
      world.client.gone = true;
      world.client.relay->OnCancelled();
    });
    world.sim.Run();
    ASSERT_TRUE(world.client.status.has_value());
    ASSERT_EQ(world.InFlight(), 0);
    ASSERT_EQ(world.fleet.num_live, 0);
    ASSERT_EQ(world.admission.counts().open_requests, 0);
  }
}

TEST(StreamRelayTest, AMigrationCarriesWhatWasReceivedWithoutText) {
  RelayWorld world(3);
  world.fleet.faults = FaultsAt({{Fault::Kind::kCut, 4}});
  world.Run(Request());
  ASSERT_THAT(world.fleet.tries, SizeIs(2));
  const v1::GenerateResponse& received = world.fleet.tries[1].request.continuation().received();
  EXPECT_EQ(received.sequence(), 3);
  EXPECT_EQ(received.accepted().request_id(), "id");
  ASSERT_THAT(received.deltas(), SizeIs(1));
  EXPECT_GE(received.deltas(0).token_ids_size(), 3);
  EXPECT_EQ(received.deltas(0).text(), "");
  EXPECT_THAT(world.observer.migrations, ElementsAre("lost"));
  EXPECT_THAT(world.observer.stalls, SizeIs(1));
  EXPECT_LT(world.observer.stalls[0], absl::Milliseconds(100));
}

TEST(StreamRelayTest, AMigrationBeforeAnythingArrivedHasAnEmptyContinuation) {
  RelayWorld world(3);
  world.fleet.faults = FaultsAt({{Fault::Kind::kCut, 0}});
  world.Run(Request());
  ASSERT_THAT(world.fleet.tries, SizeIs(2));
  EXPECT_TRUE(world.fleet.tries[1].request.has_continuation());
  EXPECT_FALSE(world.fleet.tries[1].request.continuation().has_received());
  EXPECT_NE(world.fleet.tries[0].address, world.fleet.tries[1].address);
}

TEST(StreamRelayTest, AClientsOwnContinuationIsTheBeginningOfWhatWasReceived) {
  // The client brings along the first four responses of an undisturbed worker.
  FakeGeneration first({.name = "elsewhere"}, Request(), "id");
  v1::GenerateRequest request = Request();
  std::vector<v1::GenerateResponse> before;
  for (int i = 0; i < 4; ++i) {
    before.push_back(*first.Next());
    request.mutable_continuation()->mutable_received()->MergeFrom(before.back());
  }
  RelayWorld world(5);
  world.fleet.faults = FaultsAt({{Fault::Kind::kCut, 2}, {Fault::Kind::kCut, 0}});
  world.Run(request);
  ASSERT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(world.client.responses[0].sequence(), 4);
  before.insert(before.end(), world.client.responses.begin(), world.client.responses.end());
  EXPECT_EQ(Join(before), UndisturbedAnswer(Request()));
  EXPECT_FALSE(world.fleet.tries[0].is_migration);
  EXPECT_TRUE(world.fleet.tries[1].is_migration);
}

TEST(StreamRelayTest, ARequestThatKillsThreeWorkersInARowIsPoison) {
  RelayWorld world(1, 5);
  world.fleet.faults = [](const SimulatedFleet::Try&, int) {
    return Fault{Fault::Kind::kKill, 1};  // after Accepted
  };
  world.Run(Request());
  EXPECT_TRUE(absl::IsInternal(*world.client.status)) << *world.client.status;
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonPoison);
  EXPECT_THAT(world.fleet.tries, SizeIs(3));
}

TEST(StreamRelayTest, CutsDrainsAndDeathsBeforeAcceptedAreNoPoison) {
  for (const Fault fault : {Fault{Fault::Kind::kCut, 1}, Fault{Fault::Kind::kDrain, 1},
                            Fault{Fault::Kind::kKill, 0}, Fault{Fault::Kind::kEarlyOk, 1}}) {
    RelayWorld world(1, 5);
    world.fleet.faults = FaultsAt({fault, fault, fault, fault, fault});
    world.Run(Request());
    EXPECT_EQ(*world.client.status, absl::OkStatus()) << static_cast<int>(fault.kind);
    EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request()));
  }
}

TEST(StreamRelayTest, ThreeLongCutsAreNoPoison) {
  RelayWorld world(1, 4);
  const Fault cut = {Fault::Kind::kLongCut, 1};
  world.fleet.faults = FaultsAt({cut, cut, cut});
  const absl::Time start = world.sim.clock.Now();
  world.Run(Request());
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request()));
  EXPECT_THAT(world.fleet.tries, SizeIs(4));
  // Each is noticed after two seconds; then the first one is waited for.
  EXPECT_LT(world.client.finish_time - start, absl::Seconds(15));
}

TEST(StreamRelayTest, AProcessThatTurnsOutToHaveDiedCountsWhileItIsWaitedFor) {
  RelayWorld world(1, 4);
  const Fault dies = {Fault::Kind::kKill, 1}, cut = {Fault::Kind::kLongCut, 1};
  world.fleet.faults = FaultsAt({dies, dies, cut});
  world.sim.After(absl::Seconds(4), [&] {
    world.fleet.SetState(world.fleet.tries[2].address, WorkerState::kLost, /*refused=*/true);
  });
  world.Run(Request());
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonPoison);
  EXPECT_THAT(world.fleet.tries, SizeIs(3));
}

TEST(StreamRelayTest, ARequestThatHangsThreeWorkersHangsNoFourth) {
  for (const bool restarted : {false, true}) {
    RelayWorld world(1, 5);
    world.fleet.faults = [&](const SimulatedFleet::Try& call, int) {
      if (restarted) {
        // The liveness probe fails, so the worker is restarted.
        world.sim.After(absl::Seconds(20), [&world, address = call.address] {
          world.fleet.Kill(address, absl::Milliseconds(300));
        });
      }
      return Fault{Fault::Kind::kHungEngine, 1};
    };
    world.Run(Request());
    EXPECT_EQ(protocol::ReasonOf(*world.client.status),
              restarted ? protocol::kReasonPoison : protocol::kReasonWorkerLost);
    EXPECT_THAT(world.fleet.tries, SizeIs(3));
  }
}

TEST(StreamRelayTest, DeathsWithProgressInBetweenAreNoPoison) {
  RelayWorld world(1, 6);
  const Fault dies = {Fault::Kind::kKill, 1}, dies_later = {Fault::Kind::kKill, 3};
  world.fleet.faults = FaultsAt({dies, dies, dies_later, dies, dies, dies_later, dies, dies});
  world.Run(Request("once", 40));
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request("once", 40)));
  EXPECT_THAT(world.fleet.tries, SizeIs(9));
}

TEST(StreamRelayTest, AWorkerThatAlwaysFailsIsGivenUpInTheEnd) {
  RelayWorld world(1, 1);
  world.fleet.faults = [](const SimulatedFleet::Try&, int) { return Fault{Fault::Kind::kCut, 1}; };
  const absl::Time start = world.sim.clock.Now();
  world.Run(Request());
  EXPECT_TRUE(absl::IsUnavailable(*world.client.status));
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonWorkerLost);
  EXPECT_LT(world.client.finish_time - start, absl::Seconds(60));
  EXPECT_LT(world.fleet.tries.size(), 60);
}

// A crowd of streams that begin together and share a fleet.
struct Crowd {
  Crowd(RelayWorld& world, int size, RetryBudget* budget) {
    const RelayEnvironment environment = {.router = &world.fleet.router,
                                          .transport = &world.fleet,
                                          .timer = &world.sim,
                                          .clock = &world.sim.clock,
                                          .observer = &world.observer,
                                          .budget = budget};
    for (int i = 0; i < size; ++i) {
      clients.push_back(std::make_unique<SimulatedClient>(&world.sim));
      RelayRequest request;
      request.request = Request("crowd " + std::to_string(i));
      request.context.request_id = std::to_string(i);
      request.context.tenant = "default";
      request.seed = world.sim.random();
      clients.back()->relay =
          std::make_shared<StreamRelay>(environment, std::move(request), clients.back().get());
    }
    for (const auto& client : clients) client->relay->Start();
    // Workers report for as long as anybody needs them.
    Report(world);
  }
  void Report(RelayWorld& world) {
    world.fleet.Publish();
    for (const auto& client : clients) {
      if (client->status.has_value()) continue;
      world.sim.After(absl::Milliseconds(250), [&] { Report(world); });
      return;
    }
  }
  std::vector<std::unique_ptr<SimulatedClient>> clients;
};

TEST(StreamRelayTest, WhereEverythingFailsTriesAreBoundedByTheBudgetOfAllStreams) {
  constexpr int kStreams = 300;
  for (const bool has_budget : {true, false}) {
    RelayWorld world(1);
    RetryBudget budget;
    world.fleet.faults = [](const SimulatedFleet::Try&, int) {
      return Fault{Fault::Kind::kCut, 1};
    };
    Crowd crowd(world, kStreams, has_budget ? &budget : nullptr);
    world.sim.Run();
    for (const auto& client : crowd.clients) {
      ASSERT_TRUE(client->status.has_value());
      EXPECT_EQ(protocol::ReasonOf(*client->status), protocol::kReasonWorkerLost);
    }
    // Each stream once, and once more; then 100 and 0.2 a stream are saved up, and 10 and a tenth
    // of the streams come each second for 30 s.
    if (has_budget) {
      EXPECT_LT(world.fleet.tries.size(),
                2 * kStreams + (100 + 0.2 * kStreams) + 31 * (10 + 0.1 * kStreams));
    } else {
      EXPECT_GT(world.fleet.tries.size(), 10 * kStreams);
    }
  }
}

TEST(StreamRelayTest, ManyStreamsOfOneDeadWorkerMigrateAtOnceWhateverTheBudgetHas) {
  RelayWorld world(1);
  RetryBudget budget({.per_request = 0, .per_second = 0, .max = 0});
  Crowd crowd(world, 300, &budget);
  world.sim.After(absl::Milliseconds(150), [&] { world.fleet.Kill("w0:1", std::nullopt); });
  world.sim.Run();
  for (const auto& client : crowd.clients) {
    ASSERT_EQ(*client->status, absl::OkStatus());
    EXPECT_LE(client->report.migrations, 1);
  }
  EXPECT_GT(world.observer.migrations.size(), 60);
  for (const absl::Duration stall : world.observer.stalls) {
    EXPECT_LT(stall, absl::Milliseconds(200));
  }
}

TEST(StreamRelayTest, ManyStreamsThatLoseTheirWorkerThreeTimesInARowAllGoOn) {
  constexpr int kStreams = 3000;
  RelayWorld world(1, 1);
  std::map<std::string, int> tries;
  world.fleet.faults = [&](const SimulatedFleet::Try& call, int) -> std::optional<Fault> {
    if (++tries[call.context.request_id] > 3) return std::nullopt;
    return Fault{Fault::Kind::kCut, 1};
  };
  RetryBudget budget;
  Crowd crowd(world, kStreams, &budget);
  world.sim.Run();
  for (const auto& client : crowd.clients) {
    ASSERT_TRUE(client->status.has_value());
    ASSERT_EQ(*client->status, absl::OkStatus());
    EXPECT_EQ(client->report.migrations, 3);
  }
  // The first migration took nothing from the budget; it gives each a second one in ten seconds,
  // and a third one in ten more.
  const auto [first, last] = std::ranges::minmax(world.observer.stalls);
  EXPECT_LT(first, absl::Seconds(3));
  EXPECT_LT(last, absl::Seconds(21));
}

TEST(StreamRelayTest, WhereTheBudgetIsSpentARefusalIsPassedOnAtOnce) {
  RelayWorld world(1);
  RetryBudget budget({.per_request = 0, .per_second = 0, .max = 0});
  world.fleet.faults = [](const SimulatedFleet::Try&, int) {
    return Fault{Fault::Kind::kOverloaded, 0};
  };
  Crowd crowd(world, 10, &budget);
  world.sim.Run();
  for (const auto& client : crowd.clients) {
    EXPECT_TRUE(absl::IsResourceExhausted(*client->status));
  }
  EXPECT_THAT(world.fleet.tries, SizeIs(10));
}

TEST(StreamRelayTest, AWorkerThatRejectsNewWorkIsReplacedOnce) {
  RelayWorld world(1, 2);
  world.fleet.faults = FaultsAt({{Fault::Kind::kOverloaded, 0}});
  world.Run(Request());
  ASSERT_EQ(*world.client.status, absl::OkStatus());
  // Nothing had begun, so the second worker may reject it as well.
  EXPECT_FALSE(world.fleet.tries[1].is_migration);
  EXPECT_FALSE(world.fleet.tries[1].request.has_continuation());
  EXPECT_NE(world.fleet.tries[0].address, world.fleet.tries[1].address);
  EXPECT_EQ(world.client.report.migrations, 0);
}

TEST(StreamRelayTest, WhereAllRejectTheClientIsToldWhenToComeBack) {
  RelayWorld world(1, 2);
  world.fleet.faults = [](const SimulatedFleet::Try&, int) {
    return Fault{Fault::Kind::kOverloaded, 0};
  };
  const absl::Time start = world.sim.clock.Now();
  world.Run(Request());
  EXPECT_TRUE(absl::IsResourceExhausted(*world.client.status));
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonOverloaded);
  EXPECT_TRUE(protocol::RetryDelayOf(*world.client.status).has_value());
  EXPECT_LT(world.client.finish_time - start, absl::Milliseconds(100));
}

TEST(StreamRelayTest, AnErrorOfTheRequestPassesThrough) {
  RelayWorld world(1);
  world.fleet.faults = FaultsAt({{Fault::Kind::kInvalid, 0}});
  world.Run(Request());
  EXPECT_EQ(*world.client.status, absl::InvalidArgumentError("sampling.top_k: no"));
  EXPECT_THAT(world.fleet.tries, SizeIs(1));
}

TEST(StreamRelayTest, AnInternalErrorThatComesEverywhereReachesTheClient) {
  RelayWorld world(1);
  world.fleet.faults = [](const SimulatedFleet::Try&, int) {
    return Fault{Fault::Kind::kReset, 1};
  };
  world.Run(Request());
  EXPECT_TRUE(absl::IsInternal(*world.client.status));
  EXPECT_THAT(world.fleet.tries, SizeIs(3));
}

TEST(StreamRelayTest, AStreamThatTheClientDoesNotReadEndsWithItsWorkers) {
  RelayWorld world(1);
  world.fleet.faults = FaultsAt({{Fault::Kind::kSlowReader, 3}});
  world.Run(Request());
  EXPECT_EQ(protocol::ReasonOf(*world.client.status), protocol::kReasonSlowReader)
      << *world.client.status;
  EXPECT_THAT(world.fleet.tries, SizeIs(1));
}

TEST(StreamRelayTest, ASlowReaderStopsTheWorkersStream) {
  RelayWorld world(1);
  world.client.stalled = true;
  world.options.outbox.max_responses = 4;
  world.Start(Request("long", 5000));
  world.sim.Run(world.sim.clock.Now() + absl::Seconds(60));
  EXPECT_THAT(world.client.responses, SizeIs(1));
  EXPECT_EQ(world.fleet.num_reads, 5);  // one written, four waiting
  world.client.stalled = false;
  world.client.Written(true);
  world.sim.Run();
  EXPECT_EQ(*world.client.status, absl::OkStatus());
  EXPECT_EQ(Join(world.client.responses), UndisturbedAnswer(Request("long", 5000)));
}

}  // namespace
}  // namespace continuo::gateway
