// SPDX-License-Identifier: Apache-2.0
// The autoscaler in a whole fleet. Seeds are as in faults_test.cc.
#include "services/simulate/scaling/autoscaler.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "services/simulate/simulation.h"
#include "tests/simulate/random_load.h"
#include "tests/simulate/seeded_fleet.h"

namespace continuo::simulate {
namespace {

using ::testing::HasSubstr;

// A step takes 20 ms and 1 ms a token, and eight sequences fit: about two requests a second with
// prompts of 60 tokens and answers of 40 fill a worker.
SimulationOptions Pool(int min, int max) {
  SimulationOptions options;
  options.profile.step = {.fixed = 20e-3, .per_token = 1e-3};
  options.profile.engine.num_blocks = 64;
  options.profile.engine.block_size = 16;
  options.profile.engine.max_running = 8;
  options.workers = min;
  options.gateways = 2;
  options.checks = true;
  options.autoscaler = {.by = AutoscalerOptions::By::kKeda,
                        .min_replicas = min,
                        .max_replicas = max,
                        .queued_tokens = 300,
                        .scale_down = absl::Seconds(60),
                        .pods = {.start = absl::Seconds(30), .drain_grace = absl::Seconds(2)}};
  return options;
}

// `busy` requests at `rate` a second, then one every twenty seconds.
RandomLoad BusyThenQuiet(uint64_t busy, double rate, uint64_t quiet) {
  RandomLoad load(1, busy + quiet, 0);
  load.edit = [=](PlannedRequest& r, std::mt19937_64&) {
    r.prompt_tokens = 60;
    r.output_tokens = 40;
    const double index = static_cast<double>(r.index), last = static_cast<double>(busy);
    r.arrival = absl::Seconds(std::min(index, last) / rate + 20 * std::max(0.0, index - last));
  };
  return load;
}

Results RunToEnd(const SimulationOptions& options, Load* load) {
  Simulation simulation(options, load);
  const absl::StatusOr<Results> results = simulation.Run([](const Results&) { return true; });
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? *results : Results();
}

int Most(const Results& r) {
  int most = 0;
  for (const ScalePoint& point : r.scaling) most = std::max(most, point.pods.serving);
  return most;
}

TEST(AutoscalerTest, AFleetGrowsWithItsLoadAndShrinksAfterIt) {
  for (const auto by : {AutoscalerOptions::By::kHpa, AutoscalerOptions::By::kKeda}) {
    SimulationOptions options = Pool(1, 6);
    options.autoscaler->by = by;
    RandomLoad load = BusyThenQuiet(800, 6, 30);
    const Results r = RunToEnd(options, &load);
    EXPECT_EQ(r.ok, 830u);
    EXPECT_GE(Most(r), 3);
    EXPECT_LE(Most(r), 6);
    ASSERT_FALSE(r.scaling.empty());
    EXPECT_EQ(r.scaling.front().time, absl::ZeroDuration());
    EXPECT_EQ(r.scaling.front().wanted, 1);
    EXPECT_EQ(r.scaling.back().wanted, 1);
    EXPECT_EQ(r.scaling.back().pods, (PodCounts{.serving = 1}));
    // The bill is that of the pods, not of the largest fleet.
    EXPECT_GT(r.worker_time, r.duration);
    EXPECT_LT(r.worker_time, 5 * r.duration);
  }
}

// Steps take what two and a half workers have at half of their time, KV caches are almost empty and
// nobody waits.
TEST(AutoscalerTest, AFleetWhoseStepsAreTheLimitKeepsItsWorkers) {
  double slowest[2];
  for (const bool by_tokens : {false, true}) {
    for (const auto by : {AutoscalerOptions::By::kHpa, AutoscalerOptions::By::kKeda}) {
      SimulationOptions options = Pool(1, 6);
      options.profile.engine.num_blocks = 4096;
      options.profile.engine.max_running = 256;
      options.autoscaler->by = by;
      options.autoscaler->token_time = by_tokens ? 0.5 : 0;
      options.workers = 3;
      // 100 tokens of a millisecond, 12.5 times a second.
      RandomLoad load = BusyThenQuiet(12'500, 12.5, 0);
      const Results r = RunToEnd(options, &load);
      EXPECT_EQ(r.ok, 12'500u);
      int fewest = 6;
      for (const ScalePoint& point : r.scaling) fewest = std::min(fewest, point.wanted);
      EXPECT_EQ(fewest, by_tokens ? 3 : 1);
      EXPECT_LE(Most(r), by_tokens ? 3 : 6);
      slowest[by_tokens] = r.inter_token.Percentile(0.99);
    }
  }
  EXPECT_LT(slowest[true], slowest[false] / 1.5);
}

TEST(AutoscalerTest, AWorkerServesOnceItsStartIsOver) {
  SimulationOptions options = Pool(1, 4);
  RandomLoad load = BusyThenQuiet(300, 8, 0);
  const Results r = RunToEnd(options, &load);
  const auto asked = std::ranges::find_if(r.scaling, [](const auto& p) { return p.wanted > 1; });
  const auto served =
      std::ranges::find_if(r.scaling, [](const auto& p) { return p.pods.serving > 1; });
  ASSERT_TRUE(asked != r.scaling.end() && served != r.scaling.end());
  EXPECT_EQ(served->time - asked->time, absl::Seconds(30));
  EXPECT_EQ(asked->pods.starting, asked->wanted - 1);
}

TEST(AutoscalerTest, AFasterStartGivesAnEarlierFirstToken) {
  double worst = 0;
  for (const int seconds : {5, 100}) {
    SimulationOptions options = Pool(1, 6);
    options.autoscaler->pods.start = absl::Seconds(seconds);
    RandomLoad load = BusyThenQuiet(800, 12, 0);
    const double p90 = RunToEnd(options, &load).time_to_first_token.Percentile(0.9);
    EXPECT_GT(p90, worst) << seconds;
    worst = p90;
  }
}

TEST(AutoscalerTest, APoolGoesToZeroAndBack) {
  SimulationOptions options = Pool(0, 3);
  // Requests at 0 s, at 10 s and after ten minutes.
  RandomLoad load(1, 3, 0);
  load.edit = [](PlannedRequest& r, std::mt19937_64&) {
    r.arrival = r.index < 2 ? absl::Seconds(10) * static_cast<double>(r.index) : absl::Minutes(10);
  };
  const Results r = RunToEnd(options, &load);
  EXPECT_EQ(r.ok, 3u);
  // A gateway tells of demand within 100 ms, and the worker takes 30 s; the second one waits less.
  EXPECT_GT(r.time_to_first_token.max(), 30);
  EXPECT_LT(r.time_to_first_token.max(), 30.5);
  EXPECT_NEAR(r.time_to_first_token.mean(), (30 + 20 + 30) / 3.0, 0.5);
  std::vector<int> wanted;
  for (const ScalePoint& point : r.scaling) {
    if (wanted.empty() || wanted.back() != point.wanted) wanted.push_back(point.wanted);
  }
  EXPECT_THAT(wanted, ::testing::ElementsAre(0, 1, 0, 1));
  // It was there for its start, its work, the cooldown and one poll of KEDA, twice begun.
  EXPECT_LT(r.worker_time, absl::Seconds(30 + 60 + 60 + 30));
}

TEST(AutoscalerTest, StreamsOfAWorkerThatGoesAreMovedAndLoseNothing) {
  SimulationOptions options = Pool(1, 6);
  options.autoscaler->pods.drain_grace = absl::Milliseconds(100);
  options.autoscaler->scale_down = absl::Seconds(30);
  // Answers that last longer than the grace, a few at any time, after a busy minute.
  RandomLoad load(1, 600, 0);
  load.edit = [](PlannedRequest& r, std::mt19937_64&) {
    r.prompt_tokens = 60;
    r.output_tokens = 100;
    r.arrival = absl::Seconds(r.index < 300 ? 0.2 * static_cast<double>(r.index)
                                            : 60 + 1.5 * static_cast<double>(r.index - 300));
  };
  const Results r = RunToEnd(options, &load);
  EXPECT_EQ(r.ok, 600u);
  EXPECT_EQ(r.output_tokens, 60'000u);
  EXPECT_GT(r.migrations, 2u);
}

TEST(AutoscalerTest, EqualSeedsScaleAlike) {
  const auto digest = [] {
    SimulationOptions options = Pool(0, 5);
    RandomLoad load = BusyThenQuiet(300, 5, 10);
    const Results r = RunToEnd(options, &load);
    return std::pair(r.digest, r.scaling.size());
  };
  EXPECT_EQ(digest(), digest());
}

TEST(AutoscalerTest, SubsetsFollowTheFleet) {
  SimulationOptions options = Pool(2, 12);
  options.gateways = 4;
  options.gateway.subset_size = 3;
  RandomLoad load = BusyThenQuiet(1500, 15, 20);
  const Results r = RunToEnd(options, &load);
  EXPECT_EQ(r.ok, 1520u);
  EXPECT_GE(Most(r), 6);
}

// Fleets from a seed whose load comes and goes within minutes, with faults in half of them.
struct ScaledFleet : SeededFleet {
  explicit ScaledFleet(uint64_t seed) : SeededFleet(seed, 120) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int end) {
      return static_cast<int>(random() % static_cast<uint64_t>(end));
    };
    AutoscalerOptions& a = options.autoscaler.emplace();
    a.by = draw(2) == 0 ? AutoscalerOptions::By::kKeda : AutoscalerOptions::By::kHpa;
    a.min_replicas = a.by == AutoscalerOptions::By::kKeda ? draw(3) : 1 + draw(2);
    a.max_replicas = a.min_replicas + 1 + draw(4);
    a.kv_occupancy = 0.03 + 0.05 * draw(8);
    a.queued_tokens = 10 + draw(200);
    a.scale_down = absl::Seconds(1 + draw(40));
    a.scrape_interval = absl::Seconds(1 + draw(15));
    a.pods = {.start = absl::Milliseconds(draw(20'000)),
              .drain_grace = absl::Milliseconds(draw(4) == 0 ? draw(30'000) : draw(3000))};
    a.token_time = draw(2) * 0.1 * (1 + draw(9));
    options.workers = a.min_replicas;
    options.timeout = absl::InfiniteDuration();
    // A queue before few pods with slow steps takes a while.
    options.patience = absl::Hours(1);
    // Answers last for seconds, so that a worker that goes has streams.
    options.profile.step.fixed = 0.02 * (1 + draw(10));
    options.faults =
        RandomFaults(seed, draw(2) * draw(9), a.max_replicas, options.gateways, absl::Seconds(150));
    load.edit = [edit = load.edit, arrival = 0.0](PlannedRequest& r,
                                                  std::mt19937_64& next) mutable {
      edit(r, next);
      r.arrival = absl::Seconds(arrival);
      // Busy minutes and quiet ones.
      const double mean = r.index / 30 % 2 == 0 ? 0.3 : 2.5;
      arrival += mean * static_cast<double>(next() % 1000) / 500;
    };
  }
};

class ScaledSeedsTest : public ::testing::TestWithParam<int> {};

TEST_P(ScaledSeedsTest, NoInvariantBreaks) {
  const auto [first, count] = PartOf(Seeds(0, 400), GetParam());
  uint64_t ok = 0, ended = 0, grown = 0, shrunk = 0, drained = 0, faults = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    ScaledFleet fleet(seed);
    const absl::StatusOr<Results> results = RunFleet(fleet);
    ASSERT_TRUE(results.ok()) << results.status();
    ok += results->ok;
    ended += results->ok + results->rejected + results->failed;
    faults += results->faults;
    for (size_t i = 1; i < results->scaling.size(); ++i) {
      const ScalePoint &before = results->scaling[i - 1], &now = results->scaling[i];
      grown += now.wanted > before.wanted;
      shrunk += now.wanted < before.wanted;
      drained += now.pods.draining > before.pods.draining;
    }
    for (const auto& [error, times] : results->errors) {
      EXPECT_TRUE(IsExcusable(error)) << "seed " << seed << ": " << error;
      // Scaling alone loses nothing.
      if (results->faults == 0) {
        EXPECT_THAT(error, HasSubstr("RESOURCE_EXHAUSTED")) << "seed " << seed;
      }
    }
  }
  std::printf(
      "%llu seeds: %llu of %llu requests ok, %llu faults, %llu times up, %llu down, %llu drained\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(ok),
      static_cast<unsigned long long>(ended), static_cast<unsigned long long>(faults),
      static_cast<unsigned long long>(grown), static_cast<unsigned long long>(shrunk),
      static_cast<unsigned long long>(drained));
  if (count < 100) return;
  // The seeds reach what they are for.
  EXPECT_GT(ok, ended / 2);
  EXPECT_GT(grown, count);
  EXPECT_GT(shrunk, count / 2);
  EXPECT_GT(drained, count / 20);
}

INSTANTIATE_TEST_SUITE_P(Parts, ScaledSeedsTest, ::testing::Range(0, kParts));

}  // namespace
}  // namespace continuo::simulate
