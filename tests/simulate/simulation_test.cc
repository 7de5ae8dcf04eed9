// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/simulation.h"

#include <gmock/gmock.h>

#include "services/gateway/routing/policy.h"
#include "tests/simulate/random_load.h"

namespace continuo::simulate {
namespace {

// A step takes 5 ms and 0.1 ms a token.
SimulationOptions SmallFleet(int workers, int gateways) {
  SimulationOptions options;
  options.workers = workers;
  options.gateways = gateways;
  options.profile.step = {.fixed = 5e-3, .per_token = 1e-4};
  options.profile.engine.num_blocks = 512;
  options.profile.engine.block_size = 16;
  options.profile.engine.max_running = 16;
  options.network_delay = absl::ZeroDuration();
  return options;
}

Results RunToEnd(const SimulationOptions& options, Load* load) {
  Simulation simulation(options, load);
  const absl::StatusOr<Results> results = simulation.Run([](const Results&) { return true; });
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? *results : Results();
}

TEST(SimulationTest, OneRequestTakesItsStepsAndItsWayThroughTheNetwork) {
  SimulationOptions options = SmallFleet(1, 1);
  options.network_delay = absl::Milliseconds(1);
  RandomLoad load(1, 1, 0);
  load.prompt_tokens = 30;
  load.output_tokens = 11;
  const Results r = RunToEnd(options, &load);
  EXPECT_EQ(r.ok, 1u);
  EXPECT_EQ(r.output_tokens, 11u);
  EXPECT_EQ(r.prompt_tokens, 30u);
  // To gateway and worker and back are four messages; the step of the prompt has 30 tokens.
  EXPECT_NEAR(r.time_to_first_token.max(), 0.004 + 0.005 + 30 * 1e-4, 1e-9);
  EXPECT_NEAR(r.inter_token.mean(), 0.0051, 1e-9);
  EXPECT_NEAR(r.whole.max(), 0.004 + 0.008 + 10 * 0.0051, 1e-9);
  EXPECT_EQ(r.steps, 11u);
}

TEST(SimulationTest, EveryRequestGetsItsWholeAnswer) {
  for (const bool is_asynchronous : {false, true}) {
    SimulationOptions options = SmallFleet(3, 2);
    options.profile.is_asynchronous = is_asynchronous;
    options.max_tokens = is_asynchronous ? 100 : 0;
    RandomLoad load(2, 500, 60);
    uint64_t expected = 0;
    load.edit = [&](PlannedRequest& r, std::mt19937_64& random) {
      r.prompt_tokens = static_cast<uint32_t>(1 + random() % 300);
      r.output_tokens = static_cast<uint32_t>(1 + random() % 60);
      expected += r.output_tokens;
    };
    const Results r = RunToEnd(options, &load);
    EXPECT_EQ(r.ok, 500u);
    EXPECT_EQ(r.output_tokens, expected);
    EXPECT_EQ(r.inter_token.count(), expected - 500);
  }
}

TEST(SimulationTest, EqualOptionsGiveEqualResults) {
  SimulationOptions options = SmallFleet(3, 2);
  const auto digest = [&](uint64_t seed) {
    options.seed = seed;
    RandomLoad load(seed, 300, 80);
    return RunToEnd(options, &load).digest;
  };
  EXPECT_EQ(digest(1), digest(1));
  EXPECT_NE(digest(1), digest(2));
}

TEST(SimulationTest, APoissonQueueBeforeOneServerWaitsAsTheoryHasIt) {
  SimulationOptions options = SmallFleet(1, 1);
  options.profile.engine.max_running = 1;
  // 31 tokens of 1 ms each: the prompt of 12 takes one step of 6.2 ms, and 19 more take 5.1 ms.
  const double service = 0.0062 + 19 * 0.0051;
  for (const double utilisation : {0.3, 0.7}) {
    RandomLoad load(3, 10'000, utilisation / service);
    load.prompt_tokens = 12;
    load.output_tokens = 20;
    const Results r = RunToEnd(options, &load);
    // Pollaczek and Khinchin, for a service of constant length.
    const double wait = utilisation * service / (2 * (1 - utilisation));
    EXPECT_NEAR((r.whole.mean() - service) / wait, 1, 0.06) << utilisation;
    EXPECT_NEAR(r.busy, utilisation, 0.02);
  }
}

TEST(SimulationTest, AClosedLoopKeepsItsConcurrency) {
  SimulationOptions options = SmallFleet(1, 1);
  options.concurrency = 8;
  RandomLoad load(4, 200, 0);
  load.prompt_tokens = 4;
  load.output_tokens = 50;
  const Results r = RunToEnd(options, &load);
  EXPECT_EQ(r.ok, 200u);
  EXPECT_GT(r.running, 7);
  EXPECT_LE(r.running, 8);
}

TEST(SimulationTest, LoadGoesToAllWorkersThroughAllGateways) {
  SimulationOptions options = SmallFleet(8, 4);
  RandomLoad load(5, 4000, 150);
  const Results r = RunToEnd(options, &load);
  EXPECT_EQ(r.ok, 4000u);
  EXPECT_LT(r.busiest, 1.3 * r.busy);
}

TEST(SimulationTest, GatewaysShareAFleetBySubsets) {
  SimulationOptions options = SmallFleet(24, 6);
  options.gateway.subset_size = 8;
  RandomLoad load(5, 4000, 450);
  const Results r = RunToEnd(options, &load);
  EXPECT_EQ(r.ok, 4000u);
  // All workers take part, though no gateway sees all.
  EXPECT_GT(r.busy, 0.2);
  EXPECT_LT(r.busiest, 2 * r.busy);
}

TEST(SimulationTest, TheLimitsOfGatewaysReject) {
  SimulationOptions options = SmallFleet(1, 2);
  options.gateway.admission.max_open_requests = 10;
  RandomLoad load(6, 100, 0);
  const Results r = RunToEnd(options, &load);
  // A tenant may have four fifths of each gateway.
  EXPECT_EQ(r.ok, 16u);
  EXPECT_EQ(r.rejected, 84u);
  EXPECT_EQ(r.failed, 0u);
}

TEST(SimulationTest, ASharedPrefixIsComputedOnceForEachWorker) {
  class Prefixed : public RandomLoad {
   public:
    using RandomLoad::RandomLoad;
    std::vector<uint32_t> PromptIds(const PlannedRequest& request) override {
      std::vector<uint32_t> ids(64, 7);
      for (const uint32_t id : RandomLoad::PromptIds(request)) ids.push_back(id);
      ids.resize(request.prompt_tokens);
      return ids;
    }
  };
  Prefixed load(7, 100, 10);
  load.prompt_tokens = 96;
  const Results r = RunToEnd(SmallFleet(2, 1), &load);
  EXPECT_GT(r.cached_prompt_tokens, 64 * 90u);
  EXPECT_LT(r.cached_prompt_tokens, 64 * 99u);
}

TEST(SimulationTest, AnInterruptedSimulationLeavesNothingBehind) {
  SimulationOptions options = SmallFleet(2, 2);
  RandomLoad load(8, 100'000, 200);
  Simulation simulation(options, &load);
  const auto results = simulation.Run([](const Results& r) { return r.ok < 100; });
  EXPECT_TRUE(absl::IsCancelled(results.status()));
}

TEST(SimulationTest, DeadlinesEndRequests) {
  SimulationOptions options = SmallFleet(1, 1);
  options.timeout = absl::Milliseconds(200);
  RandomLoad load(9, 60, 0);
  load.output_tokens = 60;
  const Results r = RunToEnd(options, &load);
  EXPECT_EQ(r.ok + r.rejected + r.failed, 60u);
  EXPECT_GT(r.failed + r.rejected, 0u);
  EXPECT_LE(r.whole.max(), 0.2);
}

}  // namespace
}  // namespace continuo::simulate
