// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/text_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

class TextApiTest : public ServerTest {
 protected:
  Json Ask(const std::string& path, const std::string& body) {
    const HttpClient::Response response = Post(path, body);
    EXPECT_EQ(response.result_int(), 200) << path << " " << body << " " << response.body();
    EXPECT_EQ(response["Content-Type"], "application/json");
    return Json::parse(response.body());
  }
};

TEST_F(TextApiTest, TextBecomesIdsAndBack) {
  StartServer();
  for (const std::string prefix : {"", "/v1", "//v1", "/v1/.", "/x/../v1/"}) {
    EXPECT_EQ(
        Ask(prefix + "/tokenize", R"({"model":"m","prompt":"ab","return_token_strs":true})"),
        Json::parse(R"({"count":2,"max_model_len":1024,"tokens":[97,98],"token_strs":["a","b"]})"));
    EXPECT_EQ(Ask(prefix + "/tokenize/", R"({"prompt":""})"),
              Json::parse(R"({"count":0,"max_model_len":1024,"tokens":[],"token_strs":null})"));
    EXPECT_EQ(
        Ask(prefix + "/tokenize", R"({"messages":[{"role":"user","content":"Hi"}]})")["tokens"],
        Json::parse("[72,105]"));
    EXPECT_EQ(Ask(prefix + "/detokenize", R"({"tokens":[97,34,10]})"),
              Json::parse(R"({"prompt":"a\"\n"})"));
    const HttpClient::Response info = Get(prefix + "/tokenizer_info");
    EXPECT_EQ(info.result_int(), 200);
    EXPECT_EQ(Json::parse(info.body()),
              Json::parse(R"({"eos_token":"</s>","chat_template":"{{ messages }}"})"));
  }
}

TEST_F(TextApiTest, TheTokenizerOfAModelIsAskedForByAQuery) {
  StartServer();
  for (const std::string query : {"", "?", "?model=", "?x=y", "?model=Qwen/m+n",
                                  "?model=Qwen%2Fm%20n", "?x=y&model=Qwen/m%20n&model=other"}) {
    EXPECT_EQ(Get("/v1/tokenizer_info" + query).result_int(), 200) << query;
  }
  HttpClient client = Connect();
  for (const auto& [query, status] : std::vector<std::pair<std::string, int>>{
           {"?model=other", 404}, {"", 200}, {"?model=Qwen/m", 404}, {"?model=Qwen/m+n", 200}}) {
    client.Get("/tokenizer_info" + query);
    const HttpClient::Response answer = client.Read();
    EXPECT_EQ(answer.result_int(), status) << query;
    if (status == 200) continue;
    const Json error = Json::parse(answer.body())["error"];
    EXPECT_EQ(error["code"], "model_not_found");
    EXPECT_EQ(error["param"], "model");
  }
}

TEST_F(TextApiTest, ErrorsNameTheMember) {
  StartServer();
  struct Case {
    std::string path, body, param;
  };
  const std::vector<Case> cases = {
      // Errors of the body itself, and those that a worker has of a field.
      {"/tokenize", R"({"prompt":"a","x":1})", "x"},
      {"/tokenize", R"({"prompt":"refuse"})", "prompt"},
      {"/detokenize", R"({"tokens":["1"]})", "tokens[0]"},
      {"/detokenize", R"({"tokens":[1,200]})", "tokens[1]"},
  };
  for (const Case& c : cases) {
    const HttpClient::Response refused = Post(c.path, c.body);
    EXPECT_EQ(refused.result_int(), 400) << c.body;
    const Json error = Json::parse(refused.body())["error"];
    EXPECT_EQ(error["param"], c.param);
    EXPECT_TRUE(std::string(error["message"]).starts_with(c.param + ": ")) << error;
  }
  EXPECT_EQ(service_.rejected().size(), cases.size());
  EXPECT_EQ(Post("/tokenize", "{").result_int(), 400);
  EXPECT_EQ(Post("/tokenize", "").result_int(), 400);
  EXPECT_EQ(Get("/tokenize").result_int(), 405);
  EXPECT_EQ(Post("/v1/tokenizer_info", "{}").result_int(), 405);
}

TEST_F(TextApiTest, AKeyIsNeeded) {
  StartServer();
  service_.SetKey("0123456789abcdef");
  for (const std::string prefix : {"", "/v1"}) {
    EXPECT_EQ(Post(prefix + "/tokenize", R"({"prompt":"a"})").result_int(), 401);
    EXPECT_EQ(Post(prefix + "/detokenize", R"({"tokens":[97]})").result_int(), 401);
    EXPECT_EQ(Get(prefix + "/tokenizer_info").result_int(), 401);
    EXPECT_EQ(Post(prefix + "/tokenize", R"({"prompt":"a"})", "x-api-key: 0123456789abcdef\r\n")
                  .result_int(),
              200);
  }
}

TEST_F(TextApiTest, OneConnectionServesCallAfterCall) {
  StartServer();
  HttpClient client = Connect();
  for (int i = 0; i < 3; ++i) {
    client.Post("/tokenize", R"({"prompt":"a"})");
    EXPECT_EQ(client.Read().result_int(), 200);
    client.Post(kCompletionsPath, R"({"prompt":"a","max_tokens":2})");
    EXPECT_EQ(client.Read().result_int(), 200);
    client.Get("/tokenizer_info");
    EXPECT_EQ(client.Read().result_int(), 200);
  }
}

TEST_F(TextApiTest, ADeadlineAndAClientThatLeavesCancelTheCall) {
  StartServer();
  service_.text()->Hold();
  EXPECT_EQ(Post("/tokenize", R"({"prompt":"a"})", "grpc-timeout: 20m\r\n").result_int(), 504);
  EXPECT_TRUE(service_.text()->WaitForCancelled(1));
  {
    HttpClient client = Connect();
    client.Post("/tokenize", R"({"prompt":"a"})");
    EXPECT_TRUE(service_.text()->WaitForHeld());
  }
  EXPECT_TRUE(service_.text()->WaitForCancelled(2));
}

TEST_F(TextApiTest, AServerThatEndsCancelsTheCall) {
  StartServer();
  service_.text()->Hold();
  HttpClient client = Connect();
  client.Post("/tokenize", R"({"prompt":"a"})");
  EXPECT_TRUE(service_.text()->WaitForHeld());
  server_.reset();
  EXPECT_TRUE(service_.text()->WaitForCancelled(1));
}

TEST_F(TextApiTest, AnswersThatFindNoRoomAreRefused) {
  HttpLimits limits;
  limits.max_answers_bytes = 100;
  StartServer(limits);
  EXPECT_EQ(Post("/tokenize", Json{{"prompt", std::string(100, 'a')}}.dump()).result_int(), 429);
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[97]})").result_int(), 200);
}

}  // namespace
}  // namespace continuo::gateway::openai
