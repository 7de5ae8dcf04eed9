// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/hash_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace continuo::gateway {
namespace {

std::vector<std::string> Addresses(int count) {
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i) {
    addresses.push_back("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250) +
                        ":50051");
  }
  return addresses;
}

HashRing RingOf(const std::vector<std::string>& addresses) {
  std::vector<std::pair<uint32_t, std::string_view>> workers;
  for (uint32_t i = 0; i < addresses.size(); ++i) workers.emplace_back(i, addresses[i]);
  return HashRing(workers);
}

TEST(HashRingTest, EveryPositionFindsTheNextPointRoundTheRing) {
  std::mt19937_64 random(1);
  for (const int count : {1, 2, 3, 50}) {
    const HashRing ring = RingOf(Addresses(count));
    ASSERT_EQ(ring.num_points(), static_cast<size_t>(count * kPointsPerWorker));
    std::vector<uint64_t> positions;
    for (size_t i = 0; i < ring.num_points(); ++i) positions.push_back(ring.position(i));
    ASSERT_TRUE(std::ranges::is_sorted(positions));
    for (int i = 0; i < 2000; ++i) {
      // Random ones, and those at and around points.
      const uint64_t position =
          i % 2 == 0 ? random() : positions[random() % positions.size()] + random() % 3 - 1;
      const auto next = std::ranges::lower_bound(positions, position);
      const size_t expected =
          next == positions.end() ? 0 : static_cast<size_t>(next - positions.begin());
      ASSERT_EQ(ring.Find(position), expected);
    }
    EXPECT_EQ(ring.Next(ring.num_points() - 1), 0);
  }
}

TEST(HashRingTest, ADistanceIsTheShortestWayFromAProbeToAPoint) {
  const std::vector<std::string> addresses = Addresses(20);
  const HashRing ring = RingOf(addresses);
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const RingProbes probes = ProbesOf(random());
    std::map<uint32_t, uint64_t> least;
    for (size_t point = 0; point < ring.num_points(); ++point) {
      for (const uint64_t probe : probes) {
        const uint64_t way = ring.position(point) - probe;
        const auto [at, is_new] = least.try_emplace(ring.worker(point), way);
        at->second = std::min(at->second, way);
      }
    }
    for (const auto& [worker, distance] : least) {
      ASSERT_EQ(RingDistance(probes, addresses[worker]), distance);
    }
  }
}

TEST(HashRingTest, WorkersHaveAboutTheSameShare) {
  for (const int count : {2, 10}) {
    const std::vector<std::string> addresses = Addresses(count);
    std::map<std::string, int> hits;
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000 * count; ++i) {
      const RingProbes probes = ProbesOf(random());
      ++hits[*std::ranges::min_element(addresses, {}, [&](const std::string& address) {
        return RingDistance(probes, address);
      })];
    }
    for (const auto& [address, hit] : hits) EXPECT_NEAR(hit, 1000, 150) << address;
  }
}

TEST(HashRingTest, TheNumbersAreTheSameInEveryBuild) {
  // Gateways of different builds run side by side, so these must not change.
  EXPECT_EQ(ProbesOf(12345)[0], 2205171434679333405u);
  EXPECT_EQ(RingDistance(ProbesOf(12345), "10.0.0.1:50051"), 128472029357357486u);
}

}  // namespace
}  // namespace continuo::gateway
