// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/cors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;

constexpr char kAllowOrigin[] = "Access-Control-Allow-Origin";

std::map<std::string, std::string> Answer(const std::string& flag, const std::string& origin) {
  HttpHeaders headers;
  CorsPolicy::Parse(flag)->AddTo(origin, &headers);
  return {headers.begin(), headers.end()};
}

TEST(CorsPolicyTest, OnlyListedOriginsAreAllowed) {
  struct Case {
    std::string flag, origin, allowed;
    bool varies;
  };
  const std::vector<Case> cases = {
      {"", "https://a.example", "", false},
      {"", "", "", false},
      {"*", "https://a.example", "*", false},
      {"*", "null", "*", false},
      {"*", "", "", false},
      {"https://a.example", "https://a.example", "https://a.example", true},
      {"https://a.example", "HTTPS://A.example", "HTTPS://A.example", true},
      {"https://A.example", "https://a.example", "https://a.example", true},
      {"https://a.example", "", "", true},
      {"https://a.example", "http://a.example", "", true},
      {"https://a.example", "https://a.example:444", "", true},
      {"https://a.example", "https://a.example.evil", "", true},
      {"https://a.example", "https://b.a.example", "", true},
      {"https://a.example", "null", "", true},
      {"null", "null", "null", true},
      {" https://a.example , http://localhost:3000,", "http://localhost:3000",
       "http://localhost:3000", true},
      {"https://a.example,*", "https://b.example", "*", false},
      {"http://[::1]:3000", "http://[::1]:3000", "http://[::1]:3000", true},
      {"app://obsidian.md", "app://obsidian.md", "app://obsidian.md", true}};
  for (const Case& c : cases) {
    auto headers = Answer(c.flag, c.origin);
    EXPECT_EQ(headers[kAllowOrigin], c.allowed) << c.flag << " " << c.origin;
    EXPECT_EQ(headers["Vary"], c.varies ? "Origin" : "") << c.flag << " " << c.origin;
    EXPECT_EQ(headers["Access-Control-Expose-Headers"],
              c.allowed.empty()
                  ? ""
                  : "x-request-id, request-id, retry-after, x-fingerprint, x-fingerprint-before, "
                    "x-skipped-tools");
    EXPECT_EQ(headers.count("Access-Control-Allow-Credentials"), 0);
  }
}

TEST(CorsPolicyTest, WhatIsNoOriginIsNamed) {
  for (const char* const flag :
       {"a.example", "https://", "https://a.example/", "https://a.example/path", "://a",
        "https://*.example", "https://a.example,b", "https://u@a", "https://a b", "https://a?b",
        "https://a#b", "**"}) {
    const auto policy = CorsPolicy::Parse(flag);
    EXPECT_TRUE(absl::IsInvalidArgument(policy.status())) << flag;
    EXPECT_THAT(std::string(policy.status().message()), HasSubstr("--http_cors_origins"));
  }
}

class CorsTest : public ServerTest {
 protected:
  void Start(const std::string& flag) {
    cors_ = *CorsPolicy::Parse(flag);
    StartServer();
    service_.SetKey("0123456789abcdef");
  }
  HttpClient::Response Preflight(const std::string& path, const std::string& headers) {
    HttpClient client = Connect();
    client.Send(absl::StrCat("OPTIONS ", path, " HTTP/1.1\r\nHost: a\r\n",
                             "Access-Control-Request-Method: POST\r\n", headers, "\r\n"));
    return client.Read();
  }
};

TEST_F(CorsTest, APreflightNeedsNoKey) {
  Start("https://a.example");
  const std::string wanted = "authorization,content-type,x-stainless-os";
  const HttpClient::Response answer = Preflight(
      kChatPath, "Origin: https://a.example\r\nAccess-Control-Request-Headers: " + wanted + "\r\n");
  EXPECT_EQ(answer.result_int(), 204);
  EXPECT_EQ(answer[kAllowOrigin], "https://a.example");
  EXPECT_EQ(answer["Access-Control-Allow-Methods"], "POST, OPTIONS");
  EXPECT_EQ(answer["Access-Control-Allow-Headers"], wanted);
  EXPECT_EQ(answer["Access-Control-Max-Age"], "600");
  // A preflight that names no headers is answered with those that clients usually send.
  EXPECT_THAT(
      std::string(Preflight(kChatPath, "Origin: https://a.example\r\n")["Access-Control-Allow-"
                                                                        "Headers"]),
      HasSubstr("authorization"));
  for (const std::string origin : {"", "Origin: https://b.example\r\n", "Origin: null\r\n"}) {
    const HttpClient::Response other = Preflight(kChatPath, origin);
    EXPECT_EQ(other.result_int(), 204) << origin;
    EXPECT_EQ(other.count(kAllowOrigin), 0) << origin;
    EXPECT_EQ(other.count("Access-Control-Allow-Methods"), 0) << origin;
    EXPECT_EQ(other["Vary"], "Origin") << origin;
  }
  EXPECT_EQ(Preflight("/nothing", "Origin: https://a.example\r\n").result_int(), 404);
}

TEST_F(CorsTest, EveryAnswerSaysWhoMayReadIt) {
  Start("*");
  const std::string origin = "Origin: https://a.example\r\n";
  const std::string key = "x-api-key: 0123456789abcdef\r\n";
  const std::vector<std::pair<std::string, std::string>> calls = {
      {R"({"prompt":"a"})", key},
      {R"({"prompt":"a","stream":true})", key},
      {"{", key},
      {R"({"prompt":"a"})", ""},
      {R"({"prompt":"a"})", "Expect: wonders\r\n" + key}};
  for (const auto& [body, headers] : calls) {
    const HttpClient::Response response = Post(kCompletionsPath, body, origin + headers);
    EXPECT_EQ(response[kAllowOrigin], "*") << body << headers;
    EXPECT_EQ(response["Access-Control-Expose-Headers"],
              "x-request-id, request-id, retry-after, x-fingerprint, x-fingerprint-before, "
              "x-skipped-tools");
  }
  EXPECT_EQ(Post("/nothing", "", origin)[kAllowOrigin], "*");
  EXPECT_EQ(Post(kCompletionsPath, R"({"prompt":"a"})", key).count(kAllowOrigin), 0);
}

// Browsers send these requests for any page, without a preflight that could be refused.
TEST_F(CorsTest, APageOfAnotherOriginCannotStartAnything) {
  Start("https://good.example");
  const std::string key = "x-api-key: 0123456789abcdef\r\n";
  struct Case {
    std::string headers;
    unsigned status;
  };
  const std::vector<Case> cases = {
      {"Origin: https://evil.example\r\n", 415},
      {"Origin: https://evil.example\r\nContent-Type: text/plain\r\n", 415},
      {"Origin: https://evil.example\r\nContent-Type: Text/Plain; charset=utf-8\r\n", 415},
      {"Origin: https://evil.example\r\nContent-Type: multipart/form-data; boundary=x\r\n", 415},
      {"Origin: null\r\nContent-Type: application/x-www-form-urlencoded\r\n", 415},
      {"Origin: https://evil.example\r\nContent-Type: application/json\r\n", 200},
      {"Origin: https://evil.example\r\nContent-Type: application/json; charset=utf-8\r\n", 200},
      {"Origin: app://some.program\r\nContent-Type: application/json\r\n", 200},
      {"Origin: https://good.example\r\nContent-Type: text/plain\r\n", 200},
      {"Content-Type: text/plain\r\n", 200},
      {"Content-Type: application/x-www-form-urlencoded\r\n", 200},  // as curl -d
      {"", 200},
      {"Origin: http://test\r\n", 200}};  // the gateway's own
  for (const Case& c : cases) {
    EXPECT_EQ(Post(kCompletionsPath, R"({"prompt":"a"})", c.headers + key).result_int(), c.status)
        << c.headers;
  }
}

TEST_F(CorsTest, ByDefaultNothingIsSaid) {
  Start("");
  const HttpClient::Response response =
      Post(kCompletionsPath, R"({"prompt":"a"})",
           "Origin: https://a.example\r\nContent-Type: application/json\r\n"
           "x-api-key: 0123456789abcdef\r\n");
  EXPECT_EQ(response.result_int(), 200);
  EXPECT_EQ(response.count(kAllowOrigin), 0);
  EXPECT_EQ(response.count("Vary"), 0);
  EXPECT_EQ(Preflight(kChatPath, "Origin: https://a.example\r\n").count(kAllowOrigin), 0);
}

}  // namespace
}  // namespace continuo::gateway::openai
