// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embeddings_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

constexpr char kPath[] = "/v1/embeddings";

class EmbeddingsApiTest : public ServerTest {
 protected:
  Json Ask(const std::string& body) {
    const HttpClient::Response response = Post(kPath, body);
    EXPECT_EQ(response.result_int(), 200) << body << " " << response.body();
    EXPECT_EQ(response["Content-Type"], "application/json");
    return Json::parse(response.body());
  }
};

TEST_F(EmbeddingsApiTest, TextsBecomeVectors) {
  StartServer();
  EXPECT_EQ(Ask(R"({"input":["abc","de"]})"), Json::parse(R"({"object":"list","data":[
              {"object":"embedding","index":0,"embedding":[3,0.1,-3e-08]},
              {"object":"embedding","index":1,"embedding":[2,0.1,-3e-08]}],
              "model":"org/fake","usage":{"prompt_tokens":4,"total_tokens":4}})"));
  const Json packed = Ask(R"({"input":[7,8],"encoding_format":"base64","model":"org/fake"})");
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(packed["data"][0]["embedding"].get<std::string>(), &bytes));
  EXPECT_EQ(bytes.size(), 12u);
  EXPECT_EQ(packed["model"], "org/fake");
}

TEST_F(EmbeddingsApiTest, AManyFoldRequestIsOneAnswer) {
  StartServer();
  Json inputs = Json::array();
  for (int i = 0; i < 500; ++i) inputs.push_back(std::string(static_cast<size_t>(1 + i % 7), 'x'));
  const Json answer = Ask(Json{{"input", inputs}}.dump());
  ASSERT_EQ(answer["data"].size(), 500u);
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(answer["data"][i]["index"], i);
    EXPECT_EQ(answer["data"][i]["embedding"][0], 1 + i % 7);
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 1000);
  EXPECT_EQ(service_.text()->embeds().size(), 3u) << "no worker has told the dimensions: 4096";
}

TEST_F(EmbeddingsApiTest, ARequestWithoutAModelIsOfTheOneThatIsNoAdapter) {
  models_ = {"org/base", "poet"};
  adapter_ = "poet";
  StartServer();
  EXPECT_EQ(Ask(R"({"input":"a"})")["model"], "org/base");
  EXPECT_EQ(Ask(R"({"input":"a","model":"poet"})")["model"], "poet");
}

TEST_F(EmbeddingsApiTest, WhatNeverHasRoomIsRefusedBeforeWorkersAreAsked) {
  models_ = {"org/fake"};
  dimensions_ = 4096;
  StartServer();
  Json body = {{"input", std::vector<std::string>(2048, "a")}};
  const HttpClient::Response refused = Post(kPath, body.dump());
  EXPECT_EQ(refused.result_int(), 400) << refused.body();
  EXPECT_EQ(Json::parse(refused.body())["error"]["param"], "input");
  EXPECT_TRUE(service_.text()->embeds().empty());
  body["encoding_format"] = "base64";
  EXPECT_EQ(Ask(body.dump())["data"].size(), 2048u);
  body = {{"input", std::vector<std::string>(2048, "a")}, {"dimensions", 3}};
  EXPECT_EQ(Ask(body.dump())["data"].size(), 2048u);
}

TEST_F(EmbeddingsApiTest, TheFirstAnswerTellsWhatVectorsTake) {
  HttpLimits limits;
  limits.max_answers_bytes = 64 << 20;
  StartServer(limits);
  service_.text()->SetDimensions(4000);
  const Json body = {{"input", std::vector<std::string>(1000, "a")}};
  const HttpClient::Response refused = Post(kPath, body.dump());
  EXPECT_EQ(refused.result_int(), 400) << refused.body();
  EXPECT_EQ(service_.text()->embeds().size(), 1u) << "the other parts are not asked for";
  EXPECT_EQ(Ask(R"({"input":["a"]})")["data"].size(), 1u);
}

TEST_F(EmbeddingsApiTest, ErrorsNameTheMember) {
  StartServer();
  struct Case {
    std::string body, param;
  };
  std::string late = R"({"input":[)";
  for (int i = 0; i < 300; ++i) late += R"("a",)";
  late += R"("refuse"]})";
  const std::vector<Case> cases = {{R"({"input":"a","x":1})", "x"},
                                   {R"({"input":"refuse"})", "input"},
                                   {R"({"input":["a","refuse"]})", "input[1]"},
                                   {late, "input[300]"},
                                   {R"({"input":["a",[]]})", "input[1]"}};
  for (const Case& c : cases) {
    const HttpClient::Response refused = Post(kPath, c.body);
    EXPECT_EQ(refused.result_int(), 400) << c.body;
    const Json error = Json::parse(refused.body())["error"];
    EXPECT_EQ(error["param"], c.param) << refused.body();
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
  EXPECT_EQ(Post(kPath, "{").result_int(), 400);
  EXPECT_EQ(Get(kPath).result_int(), 405);
}

}  // namespace
}  // namespace continuo::gateway::openai
