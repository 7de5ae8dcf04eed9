// SPDX-License-Identifier: Apache-2.0
// Tests of streams over HTTP that go on behind an event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// A stream that does not stop before its limit.
std::string LongStream() {
  v1::GenerateRequest request;
  request.set_text("once");
  request.mutable_stopping()->set_max_tokens(16);
  for (uint64_t seed = 0;; ++seed) {
    request.mutable_sampling()->set_seed(seed);
    if (UndisturbedAnswer(request).completion_tokens < 16) continue;
    return absl::StrCat(R"({"prompt":"once","stream":true,"seed":)", seed, "}");
  }
}

const std::string kResumedStream = LongStream();

class ResumeTest : public ServerTest {
 protected:
  HttpClient::Response PostBehind(const std::string& id, const std::string& body = kResumedStream,
                                  const std::string& headers = "") {
    return Post(kCompletionsPath, body, absl::StrCat("Last-Event-ID: ", id, "\r\n", headers));
  }
  // The ids of a stream's events.
  static std::vector<std::string> IdsOf(const std::string& events) {
    std::vector<std::string> ids;
    for (size_t at = 0; (at = events.find("\nid: ", at)) != std::string::npos;) {
      at += 5;
      ids.push_back(events.substr(at, events.find('\n', at) - at));
    }
    return ids;
  }
  static std::string CodeOf(const HttpClient::Response& response) {
    return Json::parse(response.body())["error"]["code"];
  }
};

TEST_F(ResumeTest, AStreamGoesOnBehindEachEvent) {
  StartServer();
  const HttpClient::Response whole = Post(kCompletionsPath, kResumedStream);
  const std::vector<std::string> ids = IdsOf(whole.body());
  ASSERT_GT(ids.size(), 5u);
  const std::string text = TextOf(whole.body());
  EXPECT_EQ(text, ExpectedText());
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const size_t cut = whole.body().find(ids[i]) + ids[i].size() + 2;
    const HttpClient::Response rest = PostBehind(ids[i]);
    ASSERT_EQ(rest.result_int(), 200);
    EXPECT_EQ(rest["x-request-id"], whole["x-request-id"]);
    EXPECT_EQ(TextOf(whole.body().substr(0, cut)) + TextOf(rest.body()), text);
    EXPECT_EQ(IdsOf(rest.body()).back(), ids.back());
  }
  // Each was the same generation.
  const std::vector<v1::GenerateRequest> requests = service_.requests();
  const auto identities = service_.identities();
  EXPECT_FALSE(identities[0]->takes_over);
  for (size_t i = 1; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].SerializeAsString(), requests[0].SerializeAsString());
    EXPECT_EQ(identities[i]->reference_time, identities[0]->reference_time);
    EXPECT_TRUE(identities[i]->takes_over);
    EXPECT_EQ(identities[i]->preferred_fingerprint, "F");
    EXPECT_EQ(identities[i]->body, "") << "it has no key";
  }
}

TEST_F(ResumeTest, BehindTheLastEventThereIsNothing) {
  StartServer();
  const std::vector<std::string> ids = IdsOf(Post(kCompletionsPath, kResumedStream).body());
  const HttpClient::Response rest = PostBehind(ids.back());
  EXPECT_EQ(rest.result_int(), 204);
  EXPECT_EQ(rest.body(), "");
  EXPECT_THAT(service_.requests(), SizeIs(1)) << "nothing is generated for it";
}

TEST_F(ResumeTest, WrongCursorsAreRefusedBeforeAnythingIsGenerated) {
  StartServer();
  const std::string id = IdsOf(Post(kCompletionsPath, kResumedStream).body())[2];
  std::string changed = id;
  changed[40] = changed[40] == 'x' ? 'y' : 'x';
  for (const std::string& bad : {changed, std::string("x"), id + "AA"}) {
    const HttpClient::Response response = PostBehind(bad);
    EXPECT_EQ(response.result_int(), 400);
    EXPECT_EQ(CodeOf(response), "invalid_cursor");
  }
  const HttpClient::Response other = PostBehind(id, R"({"prompt":"twice","stream":true})");
  EXPECT_EQ(other.result_int(), 409);
  EXPECT_EQ(CodeOf(other), "cursor_of_another_request");
  const HttpClient::Response keyed = PostBehind(id, kResumedStream, "Idempotency-Key: k\r\n");
  EXPECT_EQ(keyed.result_int(), 409);
  EXPECT_EQ(CodeOf(keyed), "cursor_of_another_request");
  EXPECT_THAT(service_.requests(), SizeIs(1));
  // Without a stream the header means nothing.
  EXPECT_EQ(PostBehind("x", R"({"prompt":"once"})").result_int(), 200);
}

TEST_F(ResumeTest, AnErrorHasNoIdSoThatTheClientGoesOnBeforeIt) {
  StartServer();
  service_.SetScript(
      {.hold_at = 3, .fail_at = 4, .failure = absl::InvalidArgumentError("too bad")});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, kResumedStream);
  // An error before the first event would be one of HTTP.
  std::string begun = client.ReadUntil("\nid: ");
  ASSERT_TRUE(service_.WaitForHeld(1));
  service_.Release();
  begun += client.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(begun, HasSubstr("\"error\""));
  const std::vector<std::string> ids = IdsOf(begun);
  ASSERT_GT(ids.size(), 0u);
  EXPECT_EQ(begun.find("id: ", begun.find("\"error\"")), std::string::npos);
  service_.SetScript({});
  const HttpClient::Response rest = PostBehind(ids.back());
  EXPECT_EQ(TextOf(begun) + TextOf(rest.body()), ExpectedText());
}

TEST_F(ResumeTest, AKeyedStreamGoesOnUnderItsKey) {
  StartServer();
  const std::string key = "Idempotency-Key: k\r\n";
  const HttpClient::Response whole = Post(kCompletionsPath, kResumedStream, key);
  const HttpClient::Response rest = PostBehind(IdsOf(whole.body())[1], kResumedStream, key);
  EXPECT_EQ(rest.result_int(), 200);
  EXPECT_EQ(rest["x-request-id"], whole["x-request-id"]);
  EXPECT_EQ(service_.identities()[1]->body, service_.identities()[0]->body);
  EXPECT_NE(service_.identities()[1]->body, "");
}

TEST_F(ResumeTest, AKeyedStreamGoesOnWhileTheFleetsSecretIsChanged) {
  StartServer();
  const std::string key = "Idempotency-Key: k\r\n";
  const HttpClient::Response whole = Post(kCompletionsPath, kResumedStream, key);
  service_.AddSecretKey();
  const HttpClient::Response rest = PostBehind(IdsOf(whole.body())[1], kResumedStream, key);
  EXPECT_EQ(rest.result_int(), 200);
  EXPECT_EQ(rest["x-request-id"], whole["x-request-id"]);
  EXPECT_EQ(service_.requests()[1].SerializeAsString(), service_.requests()[0].SerializeAsString());
  const HttpClient::Response other =
      PostBehind(IdsOf(whole.body())[1], kResumedStream, "Idempotency-Key: l\r\n");
  EXPECT_EQ(other.result_int(), 409);
  EXPECT_EQ(CodeOf(other), "cursor_of_another_request");
}

TEST_F(ResumeTest, WhatTheClientHasHadIsTold) {
  StartServer();
  const std::vector<std::string> ids = IdsOf(Post(kCompletionsPath, kResumedStream).body());
  for (const size_t at : {size_t{0}, ids.size() - 2}) PostBehind(ids[at]);
  const std::vector<int64_t> had = service_.tokens_had();
  EXPECT_EQ(had[0], 0);
  EXPECT_LT(had[1], 16);
  EXPECT_EQ(had[2], 16);
}

TEST_F(ResumeTest, ATenantHasABoundOfReplays) {
  HttpLimits limits;
  limits.tenant_max_replays = 1;
  StartServer(limits);
  const std::vector<std::string> ids = IdsOf(Post(kCompletionsPath, kResumedStream).body());
  service_.SetScript({.hold_at = 1});
  HttpClient first = Connect();
  first.Post(kCompletionsPath, kResumedStream,
             absl::StrCat("Last-Event-ID: ", ids[ids.size() - 2], "\r\n"));
  ASSERT_TRUE(service_.WaitForHeld(1));
  const HttpClient::Response refused = PostBehind(ids[1]);
  EXPECT_EQ(refused.result_int(), 429);
  EXPECT_EQ(CodeOf(refused), "rate_limit_exceeded");
  EXPECT_EQ(refused["Retry-After"], "1");
  // The last event costs nothing.
  EXPECT_EQ(PostBehind(ids.back()).result_int(), 204);
  service_.Release();
  EXPECT_EQ(first.Read().result_int(), 200);
  EXPECT_EQ(PostBehind(ids[1]).result_int(), 200);
}

TEST_F(ResumeTest, AStreamForNaiveReadersIsTheSameWithoutIds) {
  const struct {
    bool by_default;
    const char* member;
    const char* header;
    bool has_ids;
  } kCases[] = {
      {true, "", "", true},
      {false, "", "", false},
      {true, "", "x-event-ids: false\r\n", false},
      {false, "", "x-event-ids: true\r\n", true},
      {true, "false", "x-event-ids: true\r\n", false},
      {false, "true", "x-event-ids: false\r\n", true},
      {true, "null", "x-event-ids: false\r\n", false},
  };
  for (const auto& c : kCases) {
    event_ids_ = c.by_default;
    StartServer();
    std::string body = kResumedStream;
    if (*c.member != '\0') {
      body.insert(1, absl::StrCat(R"("stream_options":{"include_event_ids":)", c.member, "},"));
    }
    const HttpClient::Response whole = Post(kCompletionsPath, body, c.header);
    EXPECT_EQ(whole.result_int(), 200);
    EXPECT_EQ(IdsOf(whole.body()).empty(), !c.has_ids) << c.member << c.header;
    EXPECT_EQ(TextOf(whole.body()), ExpectedText());
  }
}

TEST_F(ResumeTest, AStreamGoesOnWithoutIdsWhereItsReaderIsNaiveNow) {
  StartServer();
  const HttpClient::Response whole = Post(kCompletionsPath, kResumedStream);
  const std::string id = IdsOf(whole.body())[1];
  const size_t cut = whole.body().find(id) + id.size() + 2;
  const HttpClient::Response rest = PostBehind(id, kResumedStream, "x-event-ids: false\r\n");
  EXPECT_TRUE(IdsOf(rest.body()).empty());
  EXPECT_EQ(TextOf(whole.body().substr(0, cut)) + TextOf(rest.body()), TextOf(whole.body()));
}

TEST_F(ResumeTest, AChoiceOfIdsThatIsNoneIsRefused) {
  StartServer();
  const HttpClient::Response header =
      Post(kCompletionsPath, kResumedStream, "x-event-ids: off\r\n");
  EXPECT_EQ(header.result_int(), 400);
  EXPECT_THAT(header.body(), HasSubstr("x-event-ids must be true or false"));
  const HttpClient::Response member =
      Post(kCompletionsPath,
           R"({"prompt":"once","stream":true,"stream_options":{"include_event_ids":0}})");
  EXPECT_EQ(member.result_int(), 400);
  EXPECT_THAT(member.body(), HasSubstr("stream_options.include_event_ids"));
  EXPECT_THAT(service_.requests(), SizeIs(0));
}

}  // namespace
}  // namespace continuo::gateway::openai
