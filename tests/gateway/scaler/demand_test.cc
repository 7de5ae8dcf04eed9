// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/demand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Counts = Admission::ModelCounts;

class DemandTest : public ::testing::Test {
 protected:
  void Know(std::vector<std::string> models, std::vector<WorkerLoad> workers = {}) {
    LoadSnapshot snapshot;
    snapshot.known_models = std::move(models);
    for (WorkerLoad& worker : workers) {
      snapshot.workers.push_back(std::make_shared<const WorkerLoad>(std::move(worker)));
    }
    view_.Set(std::move(snapshot));
  }

  ManualClock clock_;
  LoadView view_;
  DemandByModel local_;
  Demand demand_{"self", [this] { return local_; }, &view_, &clock_};
};

TEST_F(DemandTest, ItIsTheSumOverGateways) {
  Know({"a", "b"});
  local_ = {{"a", {1, 10}}, {"b", {5, 50}}};
  demand_.SetPeer("p:1", "one", {{"a", {2, 20}}});
  demand_.SetPeer("p:2", "two", {{"a", {3, 30}}});
  EXPECT_EQ(demand_.Total("a"), (Counts{6, 60}));
  demand_.SetPeer("p:1", "one", {});
  EXPECT_EQ(demand_.Total("a"), (Counts{4, 40}));
  demand_.ForgetPeer("p:2");
  EXPECT_EQ(demand_.Total("a"), (Counts{1, 10}));
  EXPECT_EQ(demand_.Total("b"), (Counts{5, 50}));
  EXPECT_EQ(demand_.Total("c"), Counts());
}

TEST_F(DemandTest, AGatewayDoesNotCountItselfTwice) {
  Know({"a"});
  local_ = {{"a", {1, 10}}};
  demand_.SetPeer("own:1", "self", {{"a", {1, 10}}});
  EXPECT_EQ(demand_.Total("a"), (Counts{1, 10}));
}

TEST_F(DemandTest, ASilentPeerCountsNoMore) {
  Know({"a"});
  demand_.SetPeer("p:1", "one", {{"a", {2, 20}}});
  clock_.Advance(Demand::kMaxPeerAge);
  EXPECT_EQ(demand_.Total("a"), (Counts{2, 20}));
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(demand_.Total("a"), Counts());
}

TEST_F(DemandTest, ARequestWithoutAModelIsForTheOnlyOne) {
  Know({"a"});
  local_ = {{"", {1, 10}}};
  demand_.SetPeer("p:1", "one", {{"", {2, 20}}, {"a", {4, 40}}});
  EXPECT_EQ(demand_.Total("a"), (Counts{7, 70}));
  Know({"a", "b"});
  EXPECT_EQ(demand_.Total("a"), (Counts{4, 40}));
}

TEST_F(DemandTest, PeersAreToldOfKnownModelsOnly) {
  Know({"a"});
  local_ = {{"", {1, 1}}, {"a", {2, 2}}, {"whatever a client writes", {3, 3}}};
  EXPECT_THAT(demand_.Local(), ElementsAre(Pair("", Counts{1, 1}), Pair("a", Counts{2, 2})));
}

TEST_F(DemandTest, AModelIsServedByAWorkerThatTakesRequests) {
  Know({"a", "b"}, {{.model = "a", .state = WorkerState::kServing},
                    {.model = "b", .state = WorkerState::kLoading}});
  EXPECT_TRUE(demand_.IsServed("a"));
  EXPECT_FALSE(demand_.IsServed("b"));
  EXPECT_TRUE(demand_.IsKnown("b"));
  EXPECT_FALSE(demand_.IsKnown("c"));
}

TEST_F(DemandTest, AModelIsAskedForByItsAdaptersToo) {
  LoadSnapshot snapshot;
  snapshot.known_models = {"a", "pirate", "poet"};
  snapshot.adapters = {{"pirate", "a"}, {"poet", "a"}};
  view_.Set(std::move(snapshot));
  local_ = {{"a", {1, 10}}, {"poet", {2, 20}}, {"", {4, 40}}};
  demand_.SetPeer("p:1", "one", {{"pirate", {8, 80}}});
  EXPECT_EQ(demand_.Total("a"), (Counts{15, 150}));
  EXPECT_EQ(demand_.Total("poet"), (Counts{2, 20}));
}

}  // namespace
}  // namespace continuo::gateway
