// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/fleet_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class FleetTest : public ServerTest {};

TEST_F(FleetTest, TheFleetIsToldWithoutAddresses) {
  StartServer();
  const HttpClient::Response response = Get("/fleet");
  EXPECT_EQ(response.result_int(), 200);
  const Json fleet = Json::parse(response.body());
  ASSERT_THAT(fleet["workers"], SizeIs(1));
  EXPECT_EQ(fleet["workers"][0],
            Json::parse(R"({"worker":"worker-0","model":"fake","state":"serving","slow":false,
                            "running":0,"waiting":0,"kv_blocks_used":0,"kv_blocks_total":0})"));
}

TEST(FleetJsonTest, WorkersAreInTheOrderOfTheirNames) {
  LoadSnapshot snapshot;
  for (const char* name : {"b", "c", "a"}) {
    snapshot.workers.push_back(std::make_shared<const WorkerLoad>(
        WorkerLoad{.address = "secret:1", .worker = name, .state = WorkerState::kDraining}));
  }
  const std::string json = FleetJson(snapshot);
  EXPECT_THAT(json, Not(HasSubstr("secret")));
  const auto fleet = nlohmann::json::parse(json);
  EXPECT_EQ(fleet["workers"][0]["worker"], "a");
  EXPECT_EQ(fleet["workers"][2]["worker"], "c");
  EXPECT_EQ(fleet["workers"][1]["state"], "draining");
}

TEST(FleetJsonTest, AdaptersAreToldWithTheirWorker) {
  LoadSnapshot snapshot;
  for (const char* model : {"base", "poet", "pirate"}) {
    snapshot.workers.push_back(std::make_shared<const WorkerLoad>(
        WorkerLoad{.address = "a:1",
                   .worker = "w",
                   .model = model,
                   .parent = std::string(model) == "base" ? "" : "base",
                   .state = WorkerState::kServing}));
  }
  const auto fleet = nlohmann::json::parse(FleetJson(snapshot));
  ASSERT_THAT(fleet["workers"], SizeIs(1));
  EXPECT_EQ(fleet["workers"][0]["model"], "base");
  EXPECT_EQ(fleet["workers"][0]["adapters"], nlohmann::json({"pirate", "poet"}));
}

}  // namespace
}  // namespace continuo::gateway::openai
