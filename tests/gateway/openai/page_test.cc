// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/gateway/openai/fleet_json.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class PageTest : public ServerTest {};

TEST_F(PageTest, ThePageIsServedToWhoeverHasNoKeyYet) {
  StartServer();
  service_.SetKey("0123456789abcdef");
  const HttpClient::Response page = Get("/?from=bookmark");
  EXPECT_EQ(page.result_int(), 200);
  EXPECT_EQ(page["Content-Type"], "text/html; charset=utf-8");
  EXPECT_THAT(page.body(), StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page.body(), HasSubstr("</html>"));
  EXPECT_EQ(page["X-Content-Type-Options"], "nosniff");
  EXPECT_EQ(Get("/fleet").result_int(), 401);
  EXPECT_EQ(Post("/", "").result_int(), 405);
}

TEST_F(PageTest, ThePageMayOnlyDoItsOwn) {
  StartServer();
  const HttpClient::Response page = Get("/");
  const auto header = page["Content-Security-Policy"];
  const std::string policy(header.data(), header.size());
  EXPECT_EQ(policy, PolicyOf(page.body()));
  EXPECT_THAT(policy, StartsWith("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("; connect-src 'self';"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  // The page has nothing else that the policy would have to allow.
  for (const char* foreign : {"http:", "https:", "src=", "style=", "onclick=", "innerHTML"}) {
    EXPECT_THAT(page.body(), Not(HasSubstr(foreign)));
  }
}

TEST(PolicyTest, HashesAreThoseOfTheInlineParts) {
  // printf 'alert(1)' | openssl dgst -sha256 -binary | base64
  EXPECT_THAT(PolicyOf("<script>alert(1)</script><style>b{}</style>"),
              HasSubstr("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='; "));
}

TEST_F(PageTest, TheFleetIsToldWithoutAddresses) {
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

}  // namespace
}  // namespace continuo::gateway::openai
