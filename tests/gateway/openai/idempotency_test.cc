// SPDX-License-Identifier: Apache-2.0
// Tests of requests with an Idempotency-Key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kKeyedPrompt[] = R"({"prompt":"once"})";
constexpr char kKeyedStream[] = R"({"prompt":"once","stream":true})";

class IdempotencyTest : public ServerTest {};

TEST_F(IdempotencyTest, AKeyGivesIdSeedAndTime) {
  StartServer();
  const std::string key = "Idempotency-Key: 6ba7b810\r\n";
  const HttpClient::Response first = Post(kCompletionsPath, R"({"prompt":["a","b"]})", key);
  ASSERT_EQ(first.result_int(), 200);
  const HttpClient::Response second = Post(kCompletionsPath, R"({"prompt":["a","b"]})", key);
  EXPECT_EQ(first.body(), second.body());
  EXPECT_EQ(first["x-request-id"], second["x-request-id"]);
  EXPECT_EQ(first["x-fingerprint"], "F");
  EXPECT_EQ(first["x-fingerprint-before"], "");
  const std::vector<v1::GenerateRequest> requests = service_.requests();
  ASSERT_THAT(requests, SizeIs(4));
  EXPECT_NE(requests[0].sampling().seed(), requests[1].sampling().seed());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(requests[i].SerializeAsString(), requests[i + 2].SerializeAsString());
    EXPECT_THAT(requests[i].request_id(), ::testing::StartsWith("req-"));
  }
  const auto identities = service_.identities();
  EXPECT_TRUE(identities[0]->takes_over);
  EXPECT_EQ(identities[0]->body, identities[3]->body);
  EXPECT_EQ(absl::ToUnixSeconds(identities[0]->reference_time) % 86400, 0);
}

TEST_F(IdempotencyTest, TheBodyAndThePathOfAKeyAreTold) {
  StartServer();
  const std::string key = "Idempotency-Key: k\r\n";
  Post(kCompletionsPath, kKeyedPrompt, key);
  Post(kCompletionsPath, R"({"prompt":"other"})", key);
  Post("/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"Hi"}]})", key);
  Post(kCompletionsPath, kKeyedPrompt);
  Post(kCompletionsPath, R"({"prompt":"once","seed":3})", key);
  const auto identities = service_.identities();
  ASSERT_THAT(identities, SizeIs(5));
  std::set<std::string> bodies;
  for (const int i : {0, 1, 2, 4}) bodies.insert(identities[i]->body);
  EXPECT_THAT(bodies, SizeIs(4));
  EXPECT_FALSE(identities[3].has_value());
  EXPECT_EQ(service_.requests()[4].sampling().seed(), 3u);
}

TEST_F(IdempotencyTest, AnotherFingerprintThanBeforeIsTold) {
  StartServer();
  service_.SetFingerprintBefore("E");
  const std::string key = "Idempotency-Key: k\r\n";
  for (const char* const body : {kKeyedPrompt, kKeyedStream}) {
    const HttpClient::Response response = Post(kCompletionsPath, body, key);
    EXPECT_EQ(response["x-fingerprint"], "F");
    EXPECT_EQ(response["x-fingerprint-before"], "E");
  }
  EXPECT_EQ(Post(kCompletionsPath, kKeyedPrompt)["x-fingerprint"], "");
}

TEST_F(IdempotencyTest, ABadKeyIsRefused) {
  StartServer();
  for (const std::string& key : {std::string(), std::string(256, 'k')}) {
    const HttpClient::Response response =
        Post(kCompletionsPath, kKeyedPrompt, "Idempotency-Key: " + key + "\r\n");
    EXPECT_EQ(response.result_int(), 400);
    EXPECT_THAT(response.body(), HasSubstr("Idempotency-Key"));
  }
  EXPECT_THAT(service_.requests(), SizeIs(0));
}

}  // namespace
}  // namespace continuo::gateway::openai
