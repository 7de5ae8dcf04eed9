// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/discovery.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace continuo::gateway {
namespace {

TEST(DiscoveryTest, AllPoolsAreReportedTogetherAndCompleteOnce) {
  auto discovery = Discovery::Open("a:1,b:1@95;c:1@5", {});
  ASSERT_TRUE(discovery.ok()) << discovery.status();
  std::vector<std::pair<std::vector<WorkerAddress>, bool>> calls;
  (*discovery)->Start([&](const std::vector<WorkerAddress>& addresses, bool complete) {
    calls.emplace_back(addresses, complete);
  });
  (*discovery)->Stop();
  ASSERT_EQ(calls.size(), 2);
  EXPECT_EQ(calls[0].first.size(), 2);
  EXPECT_FALSE(calls[0].second);
  EXPECT_TRUE(calls[1].second);
  const std::vector<WorkerAddress>& all = calls[1].first;
  ASSERT_EQ(all.size(), 3);
  EXPECT_EQ(all[0].address, "a:1");
  EXPECT_EQ(all[1].pool, 0);
  EXPECT_EQ(all[1].weight, 95);
  EXPECT_EQ(all[2].address, "c:1");
  EXPECT_EQ(all[2].pool, 1);
  EXPECT_EQ(all[2].weight, 5);
}

TEST(DiscoveryTest, GatewaysDivideALargePoolAndLeaveASmallOneWhole) {
  std::string workers;
  for (int i = 0; i < 300; ++i) workers += absl::StrCat(i == 0 ? "" : ",", "w", i, ":1");
  workers += ";small:1,small:2";
  std::string gateways;
  for (int port = 1; port <= 8; ++port) {
    absl::StrAppend(&gateways, port == 1 ? "" : ",", "127.0.0.1:", port);
  }
  std::map<std::string, int> watchers;
  for (int port = 1; port <= 8; ++port) {
    auto discovery = Discovery::Open(workers, {}, {.gateways = gateways, .size = 100});
    ASSERT_TRUE(discovery.ok()) << discovery.status();
    std::vector<WorkerAddress> last;
    (*discovery)
        ->Start([&](const std::vector<WorkerAddress>& addresses, bool) { last = addresses; }, port);
    (*discovery)->Stop();
    for (const WorkerAddress& address : last) ++watchers[address.address];
  }
  ASSERT_EQ(watchers.size(), 302);
  for (const auto& [address, count] : watchers) {
    EXPECT_EQ(count, address.starts_with("small") ? 8 : 3) << address;
  }
}

TEST(DiscoveryTest, ABadTargetIsNamed) {
  const auto bad = Discovery::Open("a:1;b", {});
  EXPECT_TRUE(absl::IsInvalidArgument(bad.status()));
  EXPECT_NE(bad.status().message().find("\"b\""), std::string::npos) << bad.status();
  const auto gateways = Discovery::Open("a:1", {}, {.gateways = "c"});
  EXPECT_TRUE(absl::IsInvalidArgument(gateways.status()));
  EXPECT_NE(gateways.status().message().find("--gateways: \"c\""), std::string::npos)
      << gateways.status();
}

}  // namespace
}  // namespace continuo::gateway
