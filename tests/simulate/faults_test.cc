// SPDX-License-Identifier: Apache-2.0
// Fleets of a few machines, their load and what goes wrong come from a seed, and all invariants are
// checked after every event. CONTINUO_SEEDS=FIRST:COUNT runs other seeds, one that has failed for
// instance: CONTINUO_SEEDS=1234:1.
#include "services/simulate/faults.h"

#include <gmock/gmock.h>

#include <map>

#include "tests/simulate/seeded_fleet.h"

namespace continuo::simulate {
namespace {

using ::testing::HasSubstr;

void RunSeeds(uint64_t first, uint64_t count) {
  uint64_t ok = 0, ended = 0, migrations = 0, reconnects = 0, faults = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SeededFleet fleet(seed);
    const absl::StatusOr<Results> results = RunFleet(fleet);
    ASSERT_TRUE(results.ok()) << results.status();
    ok += results->ok;
    ended += results->ok + results->rejected + results->failed;
    migrations += results->migrations;
    reconnects += results->reconnects;
    faults += results->faults;
    for (const auto& [error, times] : results->errors) {
      EXPECT_TRUE(IsExcusable(error)) << "seed " << seed << ": " << error;
    }
  }
  std::printf(
      "%llu seeds: %llu of %llu requests ok, %llu faults, %llu migrations, %llu reconnects\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(ok),
      static_cast<unsigned long long>(ended), static_cast<unsigned long long>(faults),
      static_cast<unsigned long long>(migrations), static_cast<unsigned long long>(reconnects));
  if (count < 100) return;
  // The seeds reach what they are for.
  EXPECT_GT(ok, ended / 2);
  EXPECT_GT(migrations, count / 4);
  EXPECT_GT(reconnects, count / 20);
}

// In parts, so that they run beside each other.
class SeedsTest : public ::testing::TestWithParam<int> {};

TEST_P(SeedsTest, NoInvariantBreaks) {
  const auto [first, count] = PartOf(Seeds(0, 2000), GetParam());
  RunSeeds(first, count);
}

INSTANTIATE_TEST_SUITE_P(Parts, SeedsTest, ::testing::Range(0, kParts));

TEST(FaultsTest, AFailedSeedReplays) {
  for (const uint64_t seed : {3, 17, 99}) {
    SeededFleet first(seed), second(seed);
    const auto a = RunFleet(first), b = RunFleet(second);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->digest, b->digest) << seed;
    EXPECT_EQ(a->events, b->events) << seed;
  }
}

TEST(FaultsTest, EachKindHappens) {
  std::map<std::string, int> kinds;
  for (const Fault& fault : RandomFaults(1, 1000, 5, 3, absl::Seconds(100))) {
    ++kinds[std::string(FaultName(fault.kind))];
    EXPECT_TRUE(fault.at >= absl::ZeroDuration() && fault.at <= absl::Seconds(100));
    EXPECT_TRUE(fault.worker >= 0 && fault.worker < 5 && fault.gateway >= 0 && fault.gateway < 3);
  }
  EXPECT_EQ(kinds.size(), 11u);
  for (const auto& [kind, times] : kinds) EXPECT_GT(times, 50) << kind;
}

// A fleet without faults of its own, for one that is planted.
SeededFleet CalmFleet(uint64_t seed) {
  SeededFleet fleet(seed);
  fleet.options.faults.clear();
  fleet.options.timeout = absl::InfiniteDuration();
  return fleet;
}

TEST(PlantedFaultTest, ALostLeaseIsFound) {
  int found = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SeededFleet fleet = CalmFleet(seed);
    std::vector<gateway::Lease> lost;
    int opened = 0;
    fleet.options.on_open = [&](SimulatedGateway& gateway) {
      if (++opened != 20) return;
      auto lease = gateway.router().Pick({.model = "simulated"});
      if (lease.ok()) lost.push_back(*std::move(lease));
    };
    Simulation simulation(fleet.options, &fleet.load);
    const auto results = simulation.Run([](const Results&) { return true; });
    if (lost.empty()) continue;
    ++found;
    ASSERT_TRUE(absl::IsInternal(results.status())) << results.status();
    EXPECT_THAT(std::string(results.status().message()), HasSubstr("leases, there are"));
    lost.clear();
  }
  EXPECT_GT(found, 5);
}

TEST(PlantedFaultTest, ADoubledTokenIsFound) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SeededFleet fleet = CalmFleet(seed);
    int sent = 0;
    fleet.options.hooks.response = [&](v1::GenerateResponse& response) {
      if (response.deltas_size() == 0 || ++sent != 50) return;
      v1::Delta& delta = *response.mutable_deltas(0);
      delta.add_token_ids(delta.token_ids(delta.token_ids_size() - 1));
    };
    const auto results = RunFleet(fleet);
    ASSERT_TRUE(absl::IsDataLoss(results.status())) << results.status();
  }
}

TEST(PlantedFaultTest, ALostTokenIsFound) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SeededFleet fleet = CalmFleet(seed);
    int sent = 0;
    fleet.options.hooks.response = [&](v1::GenerateResponse& response) {
      if (response.deltas_size() == 0 || ++sent != 50) return;
      response.mutable_deltas(0)->clear_token_ids();
    };
    const absl::Status status = RunFleet(fleet).status();
    // The next token is out of place, or the gateway took the token for progress before that.
    ASSERT_TRUE(absl::IsDataLoss(status) || absl::IsInternal(status)) << status;
  }
}

TEST(PlantedFaultTest, AStarvedTenantIsFound) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SeededFleet fleet = CalmFleet(seed);
    SimulationOptions& options = fleet.options;
    options.workers = 1;
    options.max_tokens = 0;
    options.gateway.admission = {};
    options.profile.engine.max_queued_tokens = 1 << 20;
    const auto run = [&](bool starves) {
      RandomLoad load(seed, 600, 0);
      load.prompt_tokens = 20;
      load.output_tokens = 10;
      load.edit = [](PlannedRequest& r, std::mt19937_64&) {
        r.tenant = r.index % 2 == 0 ? "rich" : "poor";
      };
      options.hooks.request = [starves](engine::Request& request) {
        if (starves && request.tenant == "poor") request.priority = -1;
      };
      Simulation simulation(options, &load);
      return simulation.Run([](const Results&) { return true; }).status();
    };
    EXPECT_TRUE(run(false).ok()) << run(false);
    const absl::Status starved = run(true);
    ASSERT_TRUE(absl::IsInternal(starved)) << seed << starved;
    EXPECT_THAT(std::string(starved.message()), HasSubstr("both wait"));
  }
}

TEST(PlantedFaultTest, AStreamWithoutAnOwnerIsFound) {
  SeededFleet fleet = CalmFleet(1);
  int sent = 0;
  // Its summary never comes, and the relay waits for it.
  fleet.options.hooks.response = [&](v1::GenerateResponse& response) {
    if (response.has_summary() && ++sent == 5) {
      response.clear_summary();
      response.set_sequence(1000);
    }
  };
  const auto results = RunFleet(fleet);
  EXPECT_FALSE(results.ok() && results->ok == 40);
}

}  // namespace
}  // namespace continuo::simulate
