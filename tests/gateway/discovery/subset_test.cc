// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/subset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace continuo::gateway {
namespace {

std::vector<std::string> Workers(int count) {
  std::vector<std::string> workers;
  for (int i = 0; i < count; ++i) {
    workers.push_back("10.1." + std::to_string(i / 250) + "." + std::to_string(i % 250) + ":50051");
  }
  return workers;
}

std::vector<std::string> Gateways(int count) {
  std::vector<std::string> gateways;
  for (int i = 0; i < count; ++i) gateways.push_back("10.2.0." + std::to_string(i) + ":50050");
  return gateways;
}

// The gateways that watch each worker.
std::map<std::string, std::set<std::string>> Watchers(const std::vector<std::string>& workers,
                                                      const std::vector<std::string>& gateways,
                                                      size_t subset_size) {
  std::map<std::string, std::set<std::string>> watchers;
  for (const std::string& gateway : gateways) {
    for (const std::string& worker : SubsetOf(workers, gateways, gateway, subset_size)) {
      watchers[worker].insert(gateway);
    }
  }
  return watchers;
}

TEST(GatewaysPerWorkerTest, IsWhatTheSubsetsNeedRoundedUp) {
  EXPECT_EQ(GatewaysPerWorker(200, 1000, 50), 10u);
  EXPECT_EQ(GatewaysPerWorker(200, 999, 50), 12u);  // more than 10
  EXPECT_EQ(GatewaysPerWorker(200, 900, 50), 12u);
  EXPECT_EQ(GatewaysPerWorker(200, 201, 50), 50u);
  EXPECT_EQ(GatewaysPerWorker(200, 4000, 50), 3u);
  EXPECT_EQ(GatewaysPerWorker(200, 10000, 4), 2u);
  EXPECT_EQ(GatewaysPerWorker(200, 10000, 1), 1u);
  // A small pool is watched by all, and so is every pool without subsets.
  EXPECT_EQ(GatewaysPerWorker(200, 200, 50), 50u);
  EXPECT_EQ(GatewaysPerWorker(0, 10000, 50), 50u);
}

TEST(SubsetTest, EachWorkerHasTheSameNumberOfWatchersAndSubsetsAreLargeEnough) {
  const std::vector<std::string> workers = Workers(1000), gateways = Gateways(50);
  const auto watchers = Watchers(workers, gateways, 200);
  ASSERT_EQ(watchers.size(), workers.size());
  std::map<std::string, int> sizes;
  for (const auto& [worker, by] : watchers) {
    EXPECT_EQ(by.size(), 10u) << worker;
    for (const std::string& gateway : by) ++sizes[gateway];
  }
  // 200 are expected of each, with a standard deviation of 13.
  for (const auto& [gateway, size] : sizes) EXPECT_NEAR(size, 200, 55) << gateway;
}

TEST(SubsetTest, AGatewayThatGoesMovesOnlyWhatWasItsOwn) {
  const std::vector<std::string> workers = Workers(500);
  std::vector<std::string> gateways = Gateways(20);
  const auto before = Watchers(workers, gateways, 100);
  const std::string gone = gateways[7];
  gateways.erase(gateways.begin() + 7);
  const auto after = Watchers(workers, gateways, 100);
  int num_moved = 0;
  for (const std::string& worker : workers) {
    std::set<std::string> kept = before.at(worker);
    const bool was_its_own = kept.erase(gone) > 0;
    ASSERT_EQ(after.at(worker).size(), before.at(worker).size());
    EXPECT_TRUE(std::ranges::includes(after.at(worker), kept)) << worker;
    num_moved += was_its_own;
  }
  EXPECT_GT(num_moved, 50);
}

TEST(SubsetTest, AWorkerThatComesMovesNoOther) {
  const std::vector<std::string> gateways = Gateways(20);
  const auto before = Watchers(Workers(500), gateways, 100);
  const auto after = Watchers(Workers(501), gateways, 100);
  for (const auto& [worker, by] : before) EXPECT_EQ(after.at(worker), by) << worker;
}

TEST(SubsetTest, AGatewayThatIsNotListedYetCountsItself) {
  const std::vector<std::string> workers = Workers(1000), gateways = Gateways(9);
  EXPECT_EQ(SubsetOf(workers, gateways, "10.2.0.9:50050", 100),
            SubsetOf(workers, Gateways(10), "10.2.0.9:50050", 100));
  // Alone it watches all.
  EXPECT_EQ(SubsetOf(workers, {}, "10.2.0.9:50050", 100), workers);
}

TEST(SubsetTest, AGatewayKnowsItselfByHostAndPort) {
  const std::vector<std::string> hosts = {"10.0.0.1", "[fd00::1]", "127.0.0.1"};
  EXPECT_EQ(OwnAddress({"10.0.0.2:5", "[fd00::1]:5"}, hosts, 5), "[fd00::1]:5");
  EXPECT_EQ(OwnAddress({"127.0.0.1:5", "127.0.0.1:6"}, hosts, 6), "127.0.0.1:6");
  EXPECT_EQ(OwnAddress({"10.0.0.2:5", "10.0.0.1:6"}, hosts, 5), "10.0.0.1:5");
  EXPECT_EQ(LocalHosts().empty(), false);
}

}  // namespace
}  // namespace continuo::gateway
