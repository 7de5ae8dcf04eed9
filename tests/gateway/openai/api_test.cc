// SPDX-License-Identifier: Apache-2.0
// Tests of generations over HTTP: answers, streams, errors, and clients that leave.
#include "services/gateway/openai/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/call_headers.h"
#include "services/gateway/relay/message_memory.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kPrompt[] = R"({"prompt":"once"})";
constexpr char kStream[] = R"({"prompt":"once","stream":true})";

class ApiTest : public ServerTest {};

TEST_F(ApiTest, AnAnswerIsTheWorkers) {
  StartServer();
  const HttpClient::Response response = Post(kCompletionsPath, R"({"prompt":"once","n":2})");
  ASSERT_EQ(response.result_int(), 200);
  EXPECT_EQ(response["x-request-id"], "made-1");
  const Json body = Json::parse(response.body());
  EXPECT_EQ(body["id"], "cmpl-made-1");
  EXPECT_EQ(body["model"], "fake");
  ASSERT_THAT(body["choices"], SizeIs(2));
  EXPECT_EQ(body["choices"][0]["text"], ExpectedText(0, 0));
  EXPECT_EQ(body["choices"][1]["text"], ExpectedText(0, 1));
}

TEST_F(ApiTest, AStreamIsTheWorkers) {
  StartServer();
  const HttpClient::Response response = Post(
      kChatPath, R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,"max_tokens":50})");
  EXPECT_EQ(response["Content-Type"], "text/event-stream; charset=utf-8");
  EXPECT_THAT(response.body(),
              ::testing::ContainsRegex("\n\ndata: .DONE.\nid: [-_A-Za-z0-9]+\n\n$"));
  EXPECT_EQ(TextOf(response.body()), ExpectedText());
  EXPECT_THAT(ExpectedText(), Not(::testing::IsEmpty()));
}

TEST_F(ApiTest, SeveralPromptsAreSeveralRequestsWithIdsOfTheirOwn) {
  StartServer();
  const HttpClient::Response response =
      Post(kCompletionsPath, R"({"prompt":["a","b","c"]})", "x-request-id: mine\r\n");
  EXPECT_EQ(response["x-request-id"], "mine");
  EXPECT_EQ(Json::parse(response.body())["id"], "cmpl-made-1");
  const Json body = Json::parse(response.body());
  ASSERT_THAT(body["choices"], SizeIs(3));
  const std::vector<v1::GenerateRequest> requests = service_.requests();
  const char* const ids[] = {"made-1", "made-1-1", "made-1-2"};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(requests[i].request_id(), ids[i]);
    EXPECT_EQ(body["choices"][i]["text"], ExpectedText(i));
  }
}

TEST_F(ApiTest, WhereOnePromptIsRejectedTheOthersDoNotRun) {
  StartServer();
  service_.RejectOpen(
      1, protocol::WithRetryInfo(absl::ResourceExhaustedError("full"), absl::Seconds(7)));
  const HttpClient::Response response = Post(kCompletionsPath, R"({"prompt":["a","b","c"]})");
  EXPECT_EQ(response.result_int(), 429);
  EXPECT_EQ(response["Retry-After"], "7");
  EXPECT_EQ(service_.num_responses(), 0);
}

TEST_F(ApiTest, AnErrorBeforeTheFirstResponseIsOneOfHttp) {
  StartServer();
  service_.SetScript({.fail_at = 0, .failure = protocol::FieldError("sampling.top_p", "is odd")});
  for (const char* body : {kPrompt, kStream}) {
    const HttpClient::Response response = Post(kCompletionsPath, body);
    EXPECT_EQ(response.result_int(), 400);
    EXPECT_EQ(Json::parse(response.body())["error"]["param"], "top_p");
  }
}

TEST_F(ApiTest, AnErrorOfOneOfSeveralPromptsNamesIt) {
  StartServer();
  service_.SetScript({.fail_at = 0, .failure = protocol::FieldError("token_ids.ids[4]", "is odd")});
  for (const char* more : {"", R"(,"stream":true)"}) {
    const std::string one = absl::StrCat(R"({"prompt":[1,2])", more, "}");
    EXPECT_EQ(Json::parse(Post(kCompletionsPath, one).body())["error"]["param"], "prompt[4]");
    const std::string two = absl::StrCat(R"({"prompt":[[1],[2]])", more, "}");
    const std::string param = Json::parse(Post(kCompletionsPath, two).body())["error"]["param"];
    EXPECT_THAT(param, ::testing::AnyOf("prompt[0][4]", "prompt[1][4]"));
  }
}

TEST_F(ApiTest, AnErrorInAStreamIsItsLastEvent) {
  StartServer();
  service_.SetScript(
      {.hold_at = 3, .fail_at = 3, .failure = absl::DataLossError("at 10.0.0.7:50051")});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, kStream);
  client.ReadUntil("\r\n\r\n");
  ASSERT_TRUE(service_.WaitForHeld(1));
  service_.Release();
  const std::string events = client.ReadUntil("\r\n0\r\n\r\n");
  EXPECT_THAT(events, HasSubstr(R"(data: {"error":{"message":"the server had an error)"));
  EXPECT_THAT(events, Not(HasSubstr("10.0.0.7")));
  EXPECT_THAT(events, Not(HasSubstr("[DONE]")));
  client.Get("/healthz");
  EXPECT_EQ(client.Read().result_int(), 200);
}

TEST_F(ApiTest, AStreamThatTheGatewayEndsSaysSo) {
  StartServer();
  service_.SetScript({.hold_at = 3});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, kStream);
  ASSERT_TRUE(service_.WaitForHeld(1));
  service_.EndAll(
      protocol::WithReason(absl::UnavailableError("go on elsewhere"), protocol::kReasonContinue));
  EXPECT_THAT(client.Read().body(), HasSubstr(R"("code":"continue")"));
}

TEST_F(ApiTest, AClientThatLeavesCancels) {
  StartServer();
  service_.SetScript({.hold_at = 2});
  int left = 0;
  for (const char* body : {kPrompt, kStream}) {
    HttpClient client = Connect();
    client.Post(kCompletionsPath, body);
    ASSERT_TRUE(service_.WaitForHeld(left + 1));
    client.Close();
    EXPECT_TRUE(service_.WaitForAbandoned(++left));
  }
}

TEST_F(ApiTest, AClientThatLeavesAnEndlessStreamCancelsIt) {
  StartServer();
  service_.SetScript({.endless = true});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, kStream);
  client.ReadUntil("xxxx");
  client.Close();
  EXPECT_TRUE(service_.WaitForAbandoned(1));
}

TEST_F(ApiTest, AReaderThatTakesNothingIsBoundedAndCut) {
  HttpLimits limits;
  limits.write_timeout = absl::Milliseconds(100);
  StartServer(limits);
  service_.SetScript({.endless = true});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, kStream);
  EXPECT_TRUE(service_.WaitForAbandoned(1));
  // Responses have 4 KiB: the kernel's buffers take some, and ours at most 300 KiB.
  EXPECT_LT(service_.num_responses(), 4096);
}

TEST_F(ApiTest, ASilentStreamIsKeptOpenByComments) {
  HttpLimits limits;
  limits.keepalive_interval = absl::Milliseconds(5);
  StartServer(limits);
  // A blank line behind a comment would be an empty event to a reader that has an id already.
  for (const auto& [header, comment] : std::vector<std::pair<std::string, std::string>>{
           {"", "\r\n: keep-alive\n\r\n"},
           {"x-event-ids: false\r\n", "\r\n: keep-alive\n\n\r\n"}}) {
    service_.SetScript({.hold_at = 2});
    HttpClient client = Connect();
    client.Post(kCompletionsPath, kStream, header);
    const std::string begin = client.ReadUntil(comment);
    EXPECT_THAT(begin, HasSubstr(comment));
    service_.Release();
    const std::string rest = client.ReadUntil("0\r\n\r\n");
    EXPECT_THAT(rest, HasSubstr("[DONE]"));
    EXPECT_EQ(rest.find("\nid: ") != std::string::npos, header.empty());
  }
}

TEST_F(ApiTest, AStreamWithIdsTellsOnceHowSoonToComeAgain) {
  StartServer();
  const std::string whole = Post(kCompletionsPath, kStream).body();
  const size_t retry = whole.find("\nretry: 1000\nid: ");
  ASSERT_NE(retry, std::string::npos);
  EXPECT_LT(retry, whole.find("\n\n")) << "it is a line of the first event";
  EXPECT_EQ(whole.find("retry: ", retry + 8), std::string::npos);
  EXPECT_THAT(Post(kCompletionsPath, kStream, "x-event-ids: false\r\n").body(),
              Not(HasSubstr("retry: ")));
}

TEST_F(ApiTest, EachPromptIsCountedWithAllThatItKeeps) {
  StartServer();
  // Every prompt has its own copy of the stop strings.
  const std::string stops = absl::StrCat(R"("stop":[")", std::string(200, 's'), R"("])");
  EXPECT_EQ(
      Post(kCompletionsPath, absl::StrCat(R"({"prompt":["a","bcd"],)", stops, "}")).result_int(),
      200);
  EXPECT_EQ(Post(kCompletionsPath,
                 absl::StrCat(R"({"prompt":")", std::string(500, 'p'), R"(","echo":true})"))
                .result_int(),
            200);
  const std::vector<v1::GenerateRequest> requests = service_.requests();
  const std::vector<int64_t> num_bytes = service_.num_bytes();
  ASSERT_THAT(num_bytes, SizeIs(3));
  EXPECT_EQ(num_bytes[0], MemoryOf(requests[0]));
  EXPECT_EQ(num_bytes[1], MemoryOf(requests[1]));
  EXPECT_GT(num_bytes[1], 200);
  // The echo is kept apart from the prompt.
  EXPECT_EQ(num_bytes[2], 2 * MemoryOf(requests[2]));
}

TEST_F(ApiTest, ManySmallMessagesAreChargedWhatTheyTake) {
  StartServer();
  Json body = {{"messages", Json::array()}};
  for (int i = 0; i < 100; ++i) body["messages"].push_back({{"role", "user"}, {"content", "a"}});
  EXPECT_EQ(Post(kChatPath, body.dump()).result_int(), 200);
  ASSERT_THAT(service_.num_bytes(), SizeIs(1));
#ifndef __SANITIZE_THREAD__  // its maps have another layout than those of Debian's library
  EXPECT_GE(service_.num_bytes()[0], static_cast<int64_t>(service_.requests()[0].SpaceUsedLong()));
#endif
}

TEST_F(ApiTest, AnswersInOnePieceTakeABoundedRoomTogether) {
  HttpLimits limits;
  limits.max_answers_bytes = 200 << 10;
  StartServer(limits);
  service_.SetScript({.endless = true});
  const HttpClient::Response response = Post(kCompletionsPath, kPrompt);
  EXPECT_EQ(response.result_int(), 429);
  EXPECT_EQ(response["Retry-After"], "1");
  EXPECT_EQ(Json::parse(response.body())["error"]["code"], "overloaded");
  EXPECT_TRUE(service_.WaitForAbandoned(1));
  // Long answers under way leave room for short ones.
  service_.SetScript({.hold_at = 11, .endless = true});
  HttpClient first = Connect(), second = Connect();
  first.Post(kCompletionsPath, kPrompt);
  ASSERT_TRUE(service_.WaitForHeld(1));
  second.Post(kCompletionsPath, kPrompt);
  ASSERT_TRUE(service_.WaitForHeld(2));
  service_.SetScript({});
  EXPECT_EQ(Post(kCompletionsPath, kPrompt).result_int(), 200);
  first.Close();
  second.Close();
  ASSERT_TRUE(service_.WaitForAbandoned(3));
}

TEST_F(ApiTest, AnAnswerThatIsTooLongCanBeHadAsAStream) {
  HttpLimits limits;
  limits.max_answer_bytes = 100 << 10;
  StartServer(limits);
  service_.SetScript({.endless = true});
  const HttpClient::Response response = Post(kCompletionsPath, kPrompt);
  EXPECT_EQ(response.result_int(), 400);
  EXPECT_THAT(response.body(), HasSubstr("over 102400 bytes"));
}

TEST_F(ApiTest, ALongAnswerArrivesWhole) {
  StartServer();
  const HttpClient::Response response =
      Post(kCompletionsPath, R"({"prompt":"once","n":128,"max_tokens":500})");
  ASSERT_EQ(response.result_int(), 200);
  const Json body = Json::parse(response.body());
  ASSERT_THAT(body["choices"], SizeIs(128));
  for (int i = 0; i < 128; ++i) EXPECT_EQ(body["choices"][i]["text"], ExpectedText(0, i));
}

TEST_F(ApiTest, ADeadlineEndsAGeneration) {
  StartServer();
  service_.SetScript({.hold_at = 0});
  EXPECT_EQ(Post(kCompletionsPath, kPrompt, "grpc-timeout: 20m\r\n").result_int(), 504);
  service_.SetScript({.hold_at = 2});
  const HttpClient::Response response = Post(kCompletionsPath, kStream, "grpc-timeout: 50m\r\n");
  EXPECT_THAT(response.body(), HasSubstr(R"("code":"timeout")"));
}

TEST_F(ApiTest, KeysAreAskedForAtEveryPathOfTheInterface) {
  StartServer();
  service_.SetKey("0123456789abcdef");
  EXPECT_EQ(Get("/v1/models").result_int(), 401);
  const HttpClient::Response rejected =
      Post(kCompletionsPath, kPrompt, "Authorization: Bearer wrong\r\n");
  EXPECT_EQ(rejected.result_int(), 401);
  EXPECT_EQ(Json::parse(rejected.body())["error"]["code"], "invalid_api_key");
  EXPECT_EQ(
      Post(kCompletionsPath, kPrompt, "authorization: Bearer 0123456789abcdef\r\n").result_int(),
      200);
  EXPECT_EQ(Get("/healthz").result_int(), 200);
  EXPECT_EQ(Get("/readyz").result_int(), 200);
  // Metrics tell of all tenants.
  EXPECT_EQ(Get("/metrics").result_int(), 401);
  EXPECT_EQ(Get("/fleet").result_int(), 401);
  // An endpoint picker has no key.
  EXPECT_EQ(Get("/metrics/load").body(), "load 1\n");
}

TEST_F(ApiTest, EveryRejectionIsReportedToTheService) {
  HttpLimits limits;
  limits.max_body_bytes = 1000;
  limits.max_bodies_bytes = 900;
  StartServer(limits);
  service_.SetKey("0123456789abcdef");
  const std::string key = "Authorization: Bearer 0123456789abcdef\r\n";
  EXPECT_EQ(Get("/v1/models").result_int(), 401);
  EXPECT_EQ(Post(kChatPath, kPrompt, "Authorization: Bearer wrong\r\n").result_int(), 401);
  EXPECT_EQ(Get("/nothing").result_int(), 404);
  EXPECT_EQ(Get(kChatPath).result_int(), 405);
  EXPECT_EQ(Post(kChatPath, kPrompt, "Content-Encoding: br\r\n").result_int(), 415);
  EXPECT_EQ(Post(kChatPath, std::string(1001, ' '), key).result_int(), 413);
  EXPECT_EQ(Post(kChatPath, std::string(901, ' '), key).result_int(), 503);
  EXPECT_EQ(Post(kChatPath, "{", key).result_int(), 400);
  EXPECT_EQ(Post(kCompletionsPath, kPrompt, key).result_int(), 200);
  std::vector<absl::StatusCode> codes;
  for (const absl::Status& status : service_.rejected()) codes.push_back(status.code());
  EXPECT_THAT(codes, ::testing::ElementsAre(
                         absl::StatusCode::kUnauthenticated, absl::StatusCode::kUnauthenticated,
                         absl::StatusCode::kUnimplemented, absl::StatusCode::kUnimplemented,
                         absl::StatusCode::kInvalidArgument, absl::StatusCode::kInvalidArgument,
                         absl::StatusCode::kResourceExhausted, absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(protocol::ReasonOf(service_.rejected()[6]), protocol::kReasonOverloaded);
}

TEST_F(ApiTest, AStreamThatWaitsGetsItsHeaderAndComments) {
  HttpLimits limits;
  limits.stream_header_delay = limits.keepalive_interval = absl::Milliseconds(5);
  StartServer(limits);
  service_.SetScript({.hold_at = 0});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, kStream);
  const std::string begin = client.ReadUntil(": keep-alive\n\r\n");
  EXPECT_THAT(begin, ::testing::StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(begin, HasSubstr("text/event-stream"));
  EXPECT_THAT(begin, HasSubstr("x-request-id: made-1\r\n"));
  EXPECT_THAT(begin, Not(HasSubstr("data:")));
  EXPECT_THAT(client.ReadUntil(": keep-alive\n\r\n"), HasSubstr(": keep-alive"));
  service_.Release();
  EXPECT_EQ(TextOf(client.ReadUntil("\r\n0\r\n\r\n")), ExpectedText());
}

TEST_F(ApiTest, AnErrorAfterTheHeaderOfAWaitingStreamIsItsEvent) {
  HttpLimits limits;
  limits.stream_header_delay = absl::Milliseconds(5);
  StartServer(limits);
  service_.SetScript(
      {.hold_at = 0, .fail_at = 0, .failure = protocol::FieldError("sampling.top_p", "is odd")});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, kStream);
  client.ReadUntil(": keep-alive\n\r\n");
  service_.Release();
  const std::string events = client.ReadUntil("\r\n0\r\n\r\n");
  EXPECT_THAT(events, HasSubstr(R"(data: {"error":{"message":"top_p: is odd")"));
  EXPECT_THAT(events, Not(HasSubstr("[DONE]")));
}

TEST_F(ApiTest, AnAnswerInOnePieceThatWaitsKeepsItsStatus) {
  HttpLimits limits;
  limits.stream_header_delay = limits.keepalive_interval = absl::Milliseconds(1);
  StartServer(limits);
  service_.SetScript(
      {.hold_at = 0, .fail_at = 0, .failure = protocol::FieldError("sampling.top_p", "is odd")});
  HttpClient waits = Connect(), client = Connect();
  waits.Post(kCompletionsPath, kStream);
  client.Post(kCompletionsPath, kPrompt);
  ASSERT_TRUE(service_.WaitForHeld(2));
  // By now the stream has its header.
  waits.ReadUntil(": keep-alive\n\r\n");
  service_.Release();
  EXPECT_EQ(client.Read().result_int(), 400);
}

TEST_F(ApiTest, AClientsIdIsAnyTextAndNoKey) {
  StartServer();
  std::string all_bytes;
  for (int c = 0x21; c <= 0xff; ++c) {
    if (c != 0x7f) all_bytes.push_back(static_cast<char>(c));
  }
  for (const std::string& id : {std::string("a"), std::string(127, 'x'), std::string(129, 'x'),
                                std::string(7000, 'y'), std::string("a b, c;d=\"e\""),
                                std::string("a\tb"), std::string("\xc3\xa9\xff\x80"), all_bytes}) {
    const std::string header = absl::StrCat("X-Request-ID: ", id, "\r\n");
    for (const char* const body :
         {kPrompt, kStream, R"({"prompt":["a","b"]})", R"({"prompt":7})", "{"}) {
      const HttpClient::Response response = Post(kCompletionsPath, body, header);
      EXPECT_TRUE(response["x-request-id"] == id) << id.substr(0, 100);
      EXPECT_THAT(response.result_int(), ::testing::AnyOf(200, 400));
    }
    HttpClient client = Connect();
    for (const char* const path : {"/v1/models", "/nothing", "/healthz", "/v1/completions"}) {
      client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n", header, "\r\n"));
      EXPECT_TRUE(client.Read()["x-request-id"] == id) << path << id.substr(0, 100);
    }
  }
  // An empty one is none.
  const HttpClient::Response made = Post(kCompletionsPath, kPrompt, "X-Request-ID:\r\n");
  EXPECT_THAT(std::string(made["x-request-id"]), ::testing::StartsWith("made-"));
}

TEST_F(ApiTest, RequestsOfOneClientsIdRunBesideEachOther) {
  StartServer();
  service_.SetScript({.hold_at = 2});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->port()));
    clients.back()->Post(kCompletionsPath, i % 2 == 0 ? kPrompt : kStream,
                         "X-Request-ID: one-page\r\n");
  }
  ASSERT_TRUE(service_.WaitForHeld(8));
  service_.Release();
  for (const auto& client : clients) {
    const HttpClient::Response response = client->Read();
    EXPECT_EQ(response.result_int(), 200);
    EXPECT_EQ(response["x-request-id"], "one-page");
  }
  std::set<std::string> ids;
  for (const v1::GenerateRequest& request : service_.requests()) ids.insert(request.request_id());
  EXPECT_THAT(ids, SizeIs(8));
}

TEST_F(ApiTest, AKeyMayStandInXApiKey) {
  StartServer();
  service_.SetKey("0123456789abcdef");
  const std::string bearer = "Authorization: Bearer ", other = "x-api-key: ";
  const std::string good = "0123456789abcdef\r\n", bad = "0123456789abcdee\r\n";
  const std::vector<std::pair<std::string, unsigned>> headers = {
      {other + good, 200},
      {"X-API-KEY: " + good, 200},
      {other + bad, 401},
      {other + "\r\n", 401},
      {other + "Bearer " + good, 401},
      {"Authorization: Basic dTpw\r\n" + other + good, 200},
      {bearer + good + other + bad, 200},
      {bearer + bad + other + good, 401},
      {"", 401}};
  for (const auto& [header, status] : headers) {
    const HttpClient::Response response = Post(kCompletionsPath, kPrompt, header);
    EXPECT_EQ(response.result_int(), status) << header;
    EXPECT_EQ(response["WWW-Authenticate"], status == 401 ? "Bearer" : "") << header;
  }
}

TEST_F(ApiTest, ProbesNeedNoKey) {
  StartServer();
  service_.SetKey("0123456789abcdef");
  for (const char* const path : {"/health", "/ping"}) {
    const HttpClient::Response response = Get(path);
    EXPECT_EQ(response.result_int(), 200) << path;
    EXPECT_EQ(response.body(), "") << path;
    // Nothing is no JSON.
    EXPECT_EQ(response["Content-Type"], "") << path;
    service_.SetReady(false);
    const HttpClient::Response not_ready = Get(path);
    EXPECT_EQ(not_ready.result_int(), 503) << path;
    EXPECT_EQ(Json::parse(not_ready.body())["error"]["code"], "no_worker") << path;
    service_.SetReady(true);
  }
  EXPECT_EQ(Get("/version").body(), R"({"version":"1.2.3"})");
}

TEST_F(ApiTest, WhatCannotBeReadIsRejected) {
  StartServer();
  EXPECT_EQ(Post(kChatPath, "{").result_int(), 400);
  EXPECT_EQ(Post(kChatPath, kPrompt).result_int(), 400);
  EXPECT_EQ(Post(kCompletionsPath, R"({"prompt":"a","temperature":101})").result_int(), 400);
}

TEST_F(ApiTest, WhatIsNotKnownIsNamedToItsClientAndNotInTheLog) {
  StartServer();
  const HttpClient::Response response = Post(kCompletionsPath, R"({"prompt":"a","secret":1})");
  EXPECT_EQ(response.result_int(), 400);
  EXPECT_EQ(Json::parse(response.body())["error"]["param"], "secret");
  ASSERT_THAT(service_.rejected(), SizeIs(1));
  EXPECT_THAT(service_.rejected()[0].ToString(), Not(HasSubstr("secret")));
  // A name of ours is no field here.
  EXPECT_EQ(
      Json::parse(Post(kCompletionsPath, R"({"prompt":"a","text":"b"})").body())["error"]["param"],
      "text");
}

TEST_F(ApiTest, ModelsAreFoundByNamesWithSlashes) {
  StartServer();
  EXPECT_EQ(Json::parse(Get("/v1/models").body())["data"][0]["id"], "org/fake");
  EXPECT_EQ(Get("/v1/models/org/fake").result_int(), 200);
  EXPECT_EQ(Get("/v1/models/org%2ffake?x=y").result_int(), 200);
  const HttpClient::Response other = Get("/v1/models/other");
  EXPECT_EQ(other.result_int(), 404);
  EXPECT_EQ(Json::parse(other.body())["error"]["code"], "model_not_found");
}

TEST_F(ApiTest, AnUnknownPathSaysSoAndNamesWhatIsThere) {
  StartServer();
  const std::pair<const char*, const char*> cases[] = {
      {"/chat/completions", "Is it /v1/chat/completions?"},
      {"/v1/v1/chat/completions", "Is it /v1/chat/completions?"},
      {"/completions", "Is it /v1/completions?"},
      {"/v1/chat/completion", "Is it /v1/chat/completions?"},
      {"/v1/message", "Is it /v1/messages?"},
      {"/api/v1/models", "Is it /v1/models?"},
      {"/models/", "Is it /v1/models?"},
      {"/v1/chat/completions/chat/completions", "Is it /v1/chat/completions?"},
      {"/openai/deployments/m/chat/completions", "Is it /v1/chat/completions?"},
      {"/V1/Models", "Is it /v1/models?"},
      {"/v1/x/tokenize", "Is it /v1/tokenize?"},
      {"/v1/moderations", "POST /v1/moderations. The paths that are served: /, "},
      {"/v1", "POST /v1. The paths that are served: /, "},
      {"/v1/audio?x=y", "POST /v1/audio. The"},
      {"/nothing", "/v1/models/{model}"},
  };
  for (const auto& [path, message] : cases) {
    const HttpClient::Response response = Post(path, "{}");
    EXPECT_EQ(response.result_int(), 404) << path;
    const Json error = Json::parse(response.body())["error"];
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(message));
    EXPECT_EQ(error["code"], "unknown_url");
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_TRUE(error["param"].is_null());
  }
  EXPECT_LT(Get(("/" + std::string(5000, 'x')).c_str()).body().size(), 1100);
}

TEST_F(ApiTest, MetricsAndHealthAreThere) {
  StartServer();
  EXPECT_EQ(Get("/metrics").body(), "a 1\n");
  EXPECT_EQ(Get("/readyz").result_int(), 200);
}

TEST_F(ApiTest, ManyClientsThatComeAndGoGetWhatIsTheirs) {
  StartServer();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 25; ++i) {
        const std::string text = absl::StrCat("client ", t, " request ", i);
        const bool stream = random() % 2 == 0;
        HttpClient client = Connect();
        client.Post(kCompletionsPath,
                    absl::StrCat(R"({"prompt":")", text, R"(","seed":7,"stream":)",
                                 stream ? "true" : "false", "}"));
        if (random() % 4 == 0) continue;  // this client leaves
        const HttpClient::Response response = client.Read();
        v1::GenerateRequest request;
        request.set_text(text);
        request.mutable_sampling()->set_seed(7);
        request.mutable_stopping()->set_max_tokens(16);
        const std::string expected = UndisturbedAnswer(request).sequences[0].text;
        EXPECT_EQ(stream ? TextOf(response.body())
                         : Json::parse(response.body())["choices"][0].value("text", ""),
                  expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  server_->Shutdown(absl::InfiniteFuture());
  EXPECT_EQ(server_->num_connections(), 0);
}

TEST(CallHeadersTest, IdsAreLoggedInPrint) {
  EXPECT_EQ(LoggedId("plain-1"), "plain-1");
  EXPECT_EQ(LoggedId("a\"b\n\xff"), "a\\\"b\\n\\xff");
  EXPECT_EQ(LoggedId(std::string(128, 'x')), std::string(128, 'x'));
  EXPECT_EQ(LoggedId(std::string(16000, 'x')), std::string(128, 'x') + "...");
  EXPECT_EQ(LoggedId(std::string(16000, '\xff')).size(), 128 * 4 + 3);
}

TEST(CallHeadersTest, TimeoutsAreGrpcs) {
  EXPECT_EQ(ParseGrpcTimeout("2H"), absl::Hours(2));
  EXPECT_EQ(ParseGrpcTimeout("3M"), absl::Minutes(3));
  EXPECT_EQ(ParseGrpcTimeout("99999999S"), absl::Seconds(99999999));
  EXPECT_EQ(ParseGrpcTimeout("5m"), absl::Milliseconds(5));
  EXPECT_EQ(ParseGrpcTimeout("6u"), absl::Microseconds(6));
  EXPECT_EQ(ParseGrpcTimeout("7n"), absl::Nanoseconds(7));
  for (const char* bad : {"", "S", "1", "1s", "-1S", " 1S", "123456789S", "1.5S", "+1S"}) {
    EXPECT_EQ(ParseGrpcTimeout(bad), absl::InfiniteDuration()) << bad;
  }
}

}  // namespace
}  // namespace continuo::gateway::openai
