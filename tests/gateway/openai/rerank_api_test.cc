// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/rerank/rerank_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

class RerankApiTest : public ServerTest {
 protected:
  Json Ask(const std::string& path, const Json& body) {
    const HttpClient::Response response = Post(path, body.dump());
    EXPECT_EQ(response.result_int(), 200) << body << " " << response.body();
    EXPECT_EQ(response["Content-Type"], "application/json");
    return Json::parse(response.body());
  }
};

// The fake service gives a document of n bytes the score n / 1000.
TEST_F(RerankApiTest, DocumentsAreRankedOnEveryPath) {
  StartServer();
  const Json body = {{"query", "q"}, {"documents", {"abc", "defgh", "i"}}, {"top_n", 2}};
  for (const std::string path : {"/v1/rerank", "/rerank", "/v2/rerank"}) {
    const Json answer = Ask(path, body);
    EXPECT_FALSE(answer["id"].get<std::string>().empty());
    EXPECT_EQ(answer["model"], "org/fake");
    EXPECT_EQ(answer["results"], Json::parse(R"([{"index":1,"relevance_score":0.005},
                                                 {"index":0,"relevance_score":0.003}])"));
    EXPECT_EQ(answer["usage"]["total_tokens"], 6);
    EXPECT_EQ(answer["meta"]["api_version"]["version"], path == "/v2/rerank" ? "2" : "1");
  }
  const std::vector<v1::EmbedRequest> embeds = service_.text()->embeds();
  ASSERT_EQ(embeds.size(), 3u);
  EXPECT_EQ(embeds[0].inputs(1).pair().query(), "q");
  EXPECT_EQ(embeds[0].inputs(1).pair().document(), "defgh");
}

TEST_F(RerankApiTest, PairsAreScoredOnBothPaths) {
  StartServer();
  for (const std::string path : {"/v1/score", "/score"}) {
    const Json answer = Ask(path, {{"text_1", "q"}, {"text_2", {"abc", "d"}}});
    EXPECT_EQ(answer["object"], "list");
    EXPECT_EQ(answer["data"], Json::parse(R"([{"index":0,"object":"score","score":0.003},
                              {"index":1,"object":"score","score":0.001}])"));
  }
}

TEST_F(RerankApiTest, AManyFoldRequestIsOneAnswer) {
  StartServer();
  Json documents = Json::array();
  for (int i = 0; i < 5000; ++i) documents.push_back(std::string(static_cast<size_t>(i % 7), 'x'));
  const Json answer = Ask("/v1/score", {{"queries", "q"}, {"documents", documents}});
  ASSERT_EQ(answer["data"].size(), 5000u);
  for (int i = 0; i < 5000; ++i) {
    EXPECT_EQ(answer["data"][i]["score"].get<float>(), static_cast<float>(i % 7) / 1000) << i;
  }
  const std::vector<v1::EmbedRequest> embeds = service_.text()->embeds();
  EXPECT_EQ(embeds.size(), 3u);
  for (const v1::EmbedRequest& embed : embeds) {
    EXPECT_EQ(embed.request_id(), answer["id"]) << "all parts are of one request";
  }
}

TEST_F(RerankApiTest, ARequestWithoutAModelIsOfTheOneThatIsNoAdapter) {
  models_ = {"org/base", "poet"};
  adapter_ = "poet";
  StartServer();
  EXPECT_EQ(Ask("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}})["model"], "org/base");
  EXPECT_EQ(Ask("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}, {"model", "poet"}})["model"],
            "poet");
}

// Clients and proxies give one header to many requests, with any bytes.
TEST_F(RerankApiTest, TheClientsRequestIdNamesNoRequest) {
  StartServer();
  const std::string body = R"({"query":"q","documents":["a"]})";
  std::vector<std::string> ids;
  for (const std::string& header :
       {std::string("page"), std::string("page"), std::string(200, 'x'), std::string("\xc3\xa9")}) {
    const HttpClient::Response response =
        Post("/v1/rerank", body, absl::StrCat("X-Request-ID: ", header, "\r\n"));
    EXPECT_EQ(response.result_int(), 200) << response.body();
    EXPECT_EQ(response["X-Request-ID"], header);
    EXPECT_NE(service_.text()->embeds().back().request_id(), header);
    ids.push_back(Json::parse(response.body())["id"]);
    EXPECT_EQ(service_.text()->embeds().back().request_id(), ids.back());
  }
  EXPECT_NE(ids[0], ids[1]) << "two requests of a page may run at a time";
}

TEST_F(RerankApiTest, WhatNeverHasRoomIsRefusedBeforeWorkersAreAsked) {
  HttpLimits limits;
  limits.max_answers_bytes = 64 << 10;
  StartServer(limits);
  const Json large = {{"query", "q"}, {"documents", {std::string(32 << 10, 'a')}}};
  const HttpClient::Response refused = Post("/v1/rerank", large.dump());
  EXPECT_EQ(refused.result_int(), 400) << refused.body();
  EXPECT_EQ(Json::parse(refused.body())["error"]["param"], "documents");
  EXPECT_TRUE(service_.text()->embeds().empty());
  EXPECT_EQ(Ask("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}})["results"].size(), 1u);
}

TEST_F(RerankApiTest, ErrorsNameTheMember) {
  StartServer();
  Json late = Json::array();
  for (int i = 0; i < 3000; ++i) late.push_back("a");
  late.push_back("refuse");
  struct Case {
    std::string path;
    Json body;
    std::string param;
  };
  const std::vector<Case> cases = {
      {"/v1/rerank", {{"query", "q"}, {"documents", {"a", "refuse"}}}, "documents[1]"},
      {"/v1/rerank", {{"query", "q"}, {"documents", late}}, "documents[3000]"},
      {"/v2/rerank", {{"query", "q"}, {"documents", {"a"}}, {"x", 1}}, "x"},
      {"/rerank", {{"documents", {"a"}}}, "query"},
      {"/score", {{"text_1", "q"}, {"text_2", "refuse"}}, "text_2"}};
  for (const Case& c : cases) {
    const HttpClient::Response refused = Post(c.path, c.body.dump());
    EXPECT_EQ(refused.result_int(), 400) << c.path;
    const Json error = Json::parse(refused.body())["error"];
    EXPECT_EQ(error["param"], c.param) << refused.body();
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
  EXPECT_EQ(Post("/v1/rerank", "{").result_int(), 400);
  EXPECT_EQ(Get("/v1/rerank").result_int(), 405);
}

}  // namespace
}  // namespace continuo::gateway::openai
