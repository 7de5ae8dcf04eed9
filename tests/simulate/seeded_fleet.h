// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small fleet under load and faults, all from one seed, with every invariant checked.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "services/gateway/routing/policy.h"
#include "services/simulate/simulation.h"
#include "tests/simulate/random_load.h"

namespace continuo::simulate {

// The first seed and their number: those of CONTINUO_SEEDS=FIRST:COUNT, or these.
inline std::pair<uint64_t, uint64_t> Seeds(uint64_t first, uint64_t count) {
  const char* const given = std::getenv("CONTINUO_SEEDS");
  if (given == nullptr) return {first, count};
  const std::vector<std::string> parts = absl::StrSplit(std::string(given), ':');
  EXPECT_TRUE(parts.size() == 2 && absl::SimpleAtoi(parts[0], &first) &&
              absl::SimpleAtoi(parts[1], &count))
      << "CONTINUO_SEEDS=FIRST:COUNT";
  return {first, count};
}

// Tests of seeds run in parts beside each other. The seeds of one part, perhaps none.
inline constexpr int kParts = 4;
inline std::pair<uint64_t, uint64_t> PartOf(std::pair<uint64_t, uint64_t> seeds, int part) {
  const auto [first, count] = seeds;
  const uint64_t each = (count + kParts - 1) / kParts;
  const uint64_t begin = std::min(count, static_cast<uint64_t>(part) * each);
  return {first + begin, std::min(each, count - begin)};
}

// True of an error that a request may end with while things go wrong, not one of the fleet's
// making.
inline bool IsExcusable(const std::string& error) {
  for (const char* excuse : {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED",
                             "CANCELLED: the client", "INTERNAL: the request ended N workers"}) {
    if (error.starts_with(excuse)) return true;
  }
  return false;
}

struct SeededFleet {
  explicit SeededFleet(uint64_t seed, uint64_t requests = 40) : load(seed, requests, 0) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int end) {
      return static_cast<int>(random() % static_cast<uint64_t>(end));
    };
    options.seed = seed;
    options.workers = 1 + draw(4);
    options.gateways = 1 + draw(3);
    options.network_delay = absl::Microseconds(100 << draw(6));
    options.profile.step = {.fixed = 1e-3 * (1 + draw(20)), .per_token = 1e-5 * (1 + draw(100))};
    options.profile.is_asynchronous = draw(2) == 1;
    options.profile.engine.block_size = 4 << draw(3);
    options.profile.engine.num_blocks = (240 + draw(800)) / options.profile.engine.block_size;
    options.profile.engine.max_batch_tokens = 32 << draw(3);
    options.profile.engine.max_prefill_chunk = 16 << draw(3);
    options.profile.engine.max_running = 2 + draw(8);
    options.profile.engine.max_queued_tokens = 200 + draw(2000);
    options.gateway.policy =
        gateway::kPolicies[draw(static_cast<int>(std::size(gateway::kPolicies)))].policy;
    options.gateway.admission.max_open_requests = 8 + draw(50);
    options.gateway.admission.max_queued_tokens = 200 + draw(4000);
    options.gateway.subset_size = static_cast<size_t>(draw(4));
    if (draw(3) == 0) options.max_tokens = 60;
    if (draw(3) == 0) options.timeout = absl::Milliseconds(200 + draw(10'000));
    options.clients_reconnect = true;
    options.checks = true;
    // Clients try for some minutes.
    options.patience = absl::Minutes(10);
    const int num_tenants = 1 + draw(3);
    const double seconds = 1 + draw(10);
    options.faults =
        RandomFaults(seed, draw(9), options.workers, options.gateways, absl::Seconds(seconds));
    double arrival = 0;
    load.edit = [=](PlannedRequest& r, std::mt19937_64& next) mutable {
      // Bursts and pauses.
      if (next() % 4 == 0) arrival += seconds / 10 * static_cast<double>(next() % 1000) / 500;
      r.arrival = absl::Seconds(arrival);
      r.prompt_tokens = 1 + static_cast<uint32_t>(next() % 120);
      r.output_tokens = 1 + static_cast<uint32_t>(next() % 40);
      r.tenant = "tenant-" + std::to_string(next() % static_cast<uint64_t>(num_tenants));
      if (next() % 3 == 0) r.session = "session-" + std::to_string(next() % 4);
    };
  }

  SimulationOptions options;
  RandomLoad load;
};

// Runs the fleet. An error that is a broken invariant has the seed and the faults in it.
inline absl::StatusOr<Results> RunFleet(SeededFleet& fleet) {
  Simulation simulation(fleet.options, &fleet.load);
  absl::StatusOr<Results> results = simulation.Run([](const Results&) { return true; });
  if (results.ok()) return results;
  std::string story =
      "seed " + std::to_string(fleet.options.seed) + ": " + std::string(results.status().message());
  for (const Fault& fault : fleet.options.faults) story += "\n  " + DescribeFault(fault);
  return absl::Status(results.status().code(), story);
}

}  // namespace continuo::simulate
