// SPDX-License-Identifier: Apache-2.0
// Tests of errors, and of the ids of requests, on the routes of different APIs.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/api.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

class ErrorFormsTest : public ServerTest {};

// Whatever the step at which a request fails, its error is one that the API's clients can read.
TEST_F(ErrorFormsTest, ErrorsOfHttpItselfHaveTheFormOfTheRoute) {
  HttpLimits limits;
  limits.max_body_bytes = 1000;
  limits.max_header_bytes = 2000;
  limits.header_timeout = limits.body_timeout = absl::Milliseconds(20);
  StartServer(limits);
  const std::string version = "anthropic-version: 2023-06-01\r\n";
  struct Case {
    std::string line, fields;
    std::string body;
    int status;
    std::string type;
  };
  const auto ask = [&](const Case& c) {
    HttpClient client = Connect();
    client.Send(absl::StrCat(c.line, " HTTP/1.1\r\nHost: test\r\n", c.fields, c.body));
    return client.Read();
  };
  const std::string long_field = absl::StrCat("x: ", std::string(3000, 'a'), "\r\n\r\n");
  for (const std::string path : {"/v1/messages", "/v1/messages/count_tokens", "//v1/./messages/"}) {
    const std::string post = "POST " + path;
    for (const Case& c : std::vector<Case>{
             {"GET " + path, "\r\n", "", 405, "invalid_request_error"},
             {"BREW " + path, "\r\n", "", 501, "api_error"},
             {post, "Content-Encoding: br\r\nContent-Length: 2\r\n\r\n", "{}", 415,
              "invalid_request_error"},
             {post, "Content-Length: 1001\r\n\r\n", "", 413, "request_too_large"},
             {post, "Content-Length: 5\r\n\r\n", "{", 408, "invalid_request_error"},
             {post, "x: ", "", 408, "invalid_request_error"},
             {post, "Transfer-Encoding: chunked\r\n\r\n", "zz\r\n", 400, "invalid_request_error"},
             {post, "no field\r\n\r\n", "", 400, "invalid_request_error"},
             {post, "Host: b\r\n\r\n", "", 400, "invalid_request_error"},
             {post, "Expect: x\r\nContent-Length: 2\r\n\r\n", "{}", 417, "invalid_request_error"},
             {post, "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n", "{}", 400,
              "invalid_request_error"},
             {post, long_field, "", 431, "invalid_request_error"}}) {
      const HttpClient::Response response = ask(c);
      ASSERT_EQ(response.result_int(), c.status) << c.line << " " << c.fields << response.body();
      const Json body = Json::parse(response.body());
      EXPECT_EQ(body["type"], "error") << response.body();
      EXPECT_EQ(body["error"]["type"], c.type);
      EXPECT_FALSE(body["error"].contains("code"));
      EXPECT_EQ(body["request_id"], std::string(response["request-id"]));
      EXPECT_NE(body["request_id"], "");
    }
  }
  for (const Case& c : std::vector<Case>{
           {"GET /v1/models/no", version + "\r\n", "", 404, "not_found_error"},
           {"POST /v1/messages/batches", version + "\r\n", "", 404, "not_found_error"},
           {"POST /v1/models", version + "\r\n", "", 405, "invalid_request_error"}}) {
    const HttpClient::Response response = ask(c);
    EXPECT_EQ(response.result_int(), c.status);
    const Json body = Json::parse(response.body());
    EXPECT_EQ(body["error"]["type"], c.type);
    EXPECT_EQ(body["request_id"], std::string(response["request-id"]));
  }
  // OpenAI's paths keep their form whoever asks.
  for (const Case& c : std::vector<Case>{
           {"GET /v1/chat/completions", version + "\r\n", "", 405, "invalid_request_error"},
           {"POST /v1/responses", "Content-Length: 1001\r\n\r\n", "", 413, "invalid_request_error"},
           {"GET /v1/models/no", "\r\n", "", 404, "invalid_request_error"}}) {
    const HttpClient::Response response = ask(c);
    EXPECT_EQ(response.result_int(), c.status);
    EXPECT_TRUE(Json::parse(response.body())["error"].contains("code")) << response.body();
    EXPECT_EQ(response["request-id"], "");
  }
}

TEST_F(ErrorFormsTest, AnthropicsRoutesTellTheIdOfEachRequest) {
  StartServer();
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"}]})";
  const HttpClient::Response counted = Post("/v1/messages/count_tokens", "{" + messages);
  EXPECT_EQ(counted.result_int(), 200) << counted.body();
  EXPECT_NE(counted["request-id"], "");
  EXPECT_EQ(counted.count("x-skipped-tools"), 0);
  // Tools that bring no schema are left out, and the answer says so.
  const std::string tools = R"({"tools":[{"type":"bash_20250124","name":"bash"}],"max_tokens":50,)";
  EXPECT_EQ(Post("/v1/messages", tools + messages)["x-skipped-tools"], "bash_20250124");
  const std::string counts = R"({"tools":[{"type":"bash_20250124","name":"bash"}],)";
  EXPECT_EQ(Post("/v1/messages/count_tokens", counts + messages)["x-skipped-tools"],
            "bash_20250124");
  const HttpClient::Response wrong = Post("/v1/messages/count_tokens", R"({"nonsense":1})");
  EXPECT_EQ(wrong.result_int(), 400);
  EXPECT_EQ(Json::parse(wrong.body())["request_id"], std::string(wrong["request-id"]));
  for (const auto& [more, status] : std::vector<std::pair<std::string, int>>{
           {"", 200}, {R"("stream":true,)", 200}, {R"("nonsense":1,)", 400}}) {
    const HttpClient::Response response =
        Post("/v1/messages", absl::StrCat("{\"max_tokens\":50,", more, messages));
    EXPECT_EQ(response.result_int(), status) << response.body();
    EXPECT_NE(response["request-id"], "") << response.body();
    EXPECT_EQ(response.count("request-id"), 1);
  }
  service_.SetKey("0123456789abcdef");
  const HttpClient::Response refused = Post("/v1/messages", "{" + messages);
  EXPECT_EQ(refused.result_int(), 401);
  EXPECT_EQ(Json::parse(refused.body())["request_id"], std::string(refused["request-id"]));
  EXPECT_NE(refused["request-id"], "");
}

}  // namespace
}  // namespace continuo::gateway::openai
