// SPDX-License-Identifier: Apache-2.0
// Tests of HTTP itself: framing, limits, deadlines, connections.
#include "services/gateway/openai/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kPrompt[] = R"({"prompt":"once"})";

class HttpServerTest : public ServerTest {};

TEST_F(HttpServerTest, AConnectionServesOneRequestAfterTheOther) {
  StartServer();
  HttpClient client = Connect();
  for (int i = 0; i < 3; ++i) {
    client.Post(kCompletionsPath, kPrompt);
    EXPECT_EQ(client.Read().result_int(), 200);
    client.Get("/healthz");
    EXPECT_EQ(client.Read().body(), "ok\n");
  }
}

TEST_F(HttpServerTest, RequestsSentAheadAreAnsweredInOrder) {
  StartServer();
  service_.SetScript({.hold_at = 2});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, R"({"prompt":"a","stream":true})");
  client.Get("/healthz");
  client.Post(kCompletionsPath, kPrompt);
  ASSERT_TRUE(service_.WaitForHeld(1));
  service_.Release();
  EXPECT_THAT(client.Read().body(), HasSubstr("[DONE]"));
  EXPECT_EQ(client.Read().body(), "ok\n");
  EXPECT_THAT(client.Read().body(), HasSubstr("text_completion"));
}

TEST_F(HttpServerTest, PathsAndMethodsThatAreNotThereAreRejected) {
  StartServer();
  EXPECT_EQ(Get("/index.html").result_int(), 404);
  EXPECT_EQ(Get("/v1/modelsx").result_int(), 404);
  EXPECT_EQ(Post("/v1/moderations", "{}").result_int(), 404);
  const HttpClient::Response wrong = Get(kChatPath);
  EXPECT_EQ(wrong.result_int(), 405);
  EXPECT_EQ(wrong["Allow"], "POST, OPTIONS");
  EXPECT_EQ(Post("/v1/models", "").result_int(), 405);
}

TEST_F(HttpServerTest, AHeadHasNoBody) {
  StartServer();
  HttpClient client = Connect();
  client.Send("HEAD /healthz HTTP/1.1\r\nHost: test\r\n\r\n");
  const HttpClient::Response response = client.Read(/*to_head=*/true);
  EXPECT_EQ(response["Content-Length"], "3");
  client.Get("/healthz");
  EXPECT_EQ(client.Read().body(), "ok\n");
}

TEST_F(HttpServerTest, ALargeBodyIsRejectedHoweverItComes) {
  HttpLimits limits;
  limits.max_body_bytes = 1000;
  StartServer(limits);
  const HttpClient::Response sized = Post(kCompletionsPath, std::string(5 << 20, ' '));
  EXPECT_EQ(sized.result_int(), 413);
  EXPECT_THAT(sized.body(), HasSubstr("larger than 1000 bytes"));
  HttpClient client = Connect();
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.Send(absl::StrCat("3e9\r\n", std::string(1001, ' '), "\r\n0\r\n\r\n"));
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, ChunkExtensionsAreBounded) {
  StartServer();
  HttpClient client = Connect();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1;");
  try {
    for (int i = 0; i < 64; ++i) client.Send(std::string(64 << 10, 'x'));
  } catch (const boost::system::system_error&) {
    // The server has ended the connection.
  }
  EXPECT_THAT(client.ReadToEnd(), Not(HasSubstr(" 200 ")));
  EXPECT_EQ(Get("/healthz").result_int(), 200);
}

TEST_F(HttpServerTest, BodiesTakeABoundedRoomTogether) {
  HttpLimits limits;
  limits.max_bodies_bytes = 100;
  StartServer(limits);
  EXPECT_EQ(Post(kCompletionsPath, kPrompt).result_int(), 200);
  const HttpClient::Response response =
      Post(kCompletionsPath, absl::StrCat(kPrompt, std::string(100, ' ')));
  EXPECT_EQ(response.result_int(), 503);
  EXPECT_EQ(response["Retry-After"], "1");
}

TEST_F(HttpServerTest, ABodyTakesNoRoomWhileItsGenerationRuns) {
  HttpLimits limits;
  limits.max_bodies_bytes =
      1500;  // a body in pieces counts as its reserved memory, up to twice its size
  StartServer(limits);
  service_.SetScript({.hold_at = 1});
  const std::string body = absl::StrCat(kPrompt, std::string(600, ' '));
  HttpClient first = Connect(), second = Connect(), third = Connect();
  first.Post(kCompletionsPath, body);
  ASSERT_TRUE(service_.WaitForHeld(1));
  second.PostChunked(kCompletionsPath, body);
  EXPECT_TRUE(service_.WaitForHeld(2));
  third.PostChunked(kCompletionsPath, body);
  EXPECT_TRUE(service_.WaitForHeld(3));
  service_.Release();
  for (HttpClient* client : {&first, &second, &third}) {
    EXPECT_EQ(client->Read().result_int(), 200);
  }
}

TEST_F(HttpServerTest, ABodyIsChargedAsItArrives) {
  HttpLimits limits;
  limits.max_bodies_bytes = 1000;
  StartServer(limits);
  // One announces more than it sends; another one announces nothing.
  HttpClient slow = Connect();
  slow.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 900\r\nExpect: "
      "100-continue\r\n\r\n");
  slow.ReadUntil("\r\n\r\n");
  EXPECT_EQ(Post(kCompletionsPath, kPrompt).result_int(), 200);
  HttpClient client = Connect();
  client.PostChunked(kCompletionsPath, kPrompt);
  EXPECT_EQ(client.Read().result_int(), 200);
  HttpClient large = Connect();
  large.PostChunked(kCompletionsPath, std::string(1001, ' '));
  EXPECT_EQ(large.Read().result_int(), 503);
  // Requests that are over have given their room back.
  EXPECT_EQ(Post(kCompletionsPath, absl::StrCat(kPrompt, std::string(900, ' '))).result_int(), 200);
}

TEST_F(HttpServerTest, AClientThatWaitsForContinueIsTold) {
  StartServer();
  HttpClient client = Connect();
  client.Send(
      absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n",
                   "Content-Length: ", sizeof(kPrompt) - 1, "\r\n\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send(kPrompt);
  EXPECT_EQ(client.Read().result_int(), 200);
}

TEST_F(HttpServerTest, ABodyThatWillBeRejectedIsNotAskedFor) {
  StartServer();
  service_.SetKey("secret-key-of-somebody");
  const auto answer = [&](const std::string& headers) {
    HttpClient client = Connect();
    client.Send(
        absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n",
                     headers, "\r\n\r\n"));
    return client.ReadUntil("\r\n\r\n");
  };
  EXPECT_THAT(answer("Content-Length: 99999999"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(answer("Content-Length: 9"), StartsWith("HTTP/1.1 401 "));
  HttpClient client = Connect();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: test\r\nExpect: wonders\r\nContent-Length: 9\r\n"
      "Authorization: Bearer secret-key-of-somebody\r\n\r\n");
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 417 "));
}

TEST_F(HttpServerTest, SlowSendersAreCut) {
  HttpLimits limits;
  limits.header_timeout = limits.body_timeout = absl::Milliseconds(30);
  StartServer(limits);
  HttpClient header = Connect();
  header.Send("POST /v1/comp");
  EXPECT_THAT(header.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
  HttpClient body = Connect();
  body.Send("POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n{");
  EXPECT_THAT(body.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosed) {
  HttpLimits limits;
  limits.idle_timeout = absl::Milliseconds(30);
  StartServer(limits);
  HttpClient fresh = Connect();
  EXPECT_THAT(fresh.ReadToEnd(), IsEmpty());
  HttpClient used = Connect();
  used.Post(kCompletionsPath, kPrompt);
  EXPECT_EQ(used.Read().result_int(), 200);
  EXPECT_THAT(used.ReadToEnd(), IsEmpty());
}

TEST_F(HttpServerTest, ConnectionsAreBounded) {
  HttpLimits limits;
  limits.max_connections = 2;
  StartServer(limits);
  HttpClient first = Connect(), second = Connect();
  for (HttpClient* client : {&first, &second}) {
    client->Get("/healthz");
    EXPECT_EQ(client->Read().result_int(), 200);
  }
  HttpClient third = Connect();
  EXPECT_THAT(third.ReadToEnd(), HasSubstr("503 Service Unavailable"));
  second.Close();
  while (server_->num_connections() > 1) std::this_thread::yield();
  EXPECT_EQ(Get("/healthz").result_int(), 200);
}

TEST_F(HttpServerTest, AClientOfHttp10GetsAStreamThatEndsWithTheConnection) {
  StartServer();
  HttpClient client = Connect();
  const std::string body = R"({"prompt":"once","stream":true})";
  client.Send(absl::StrCat("POST /v1/completions HTTP/1.0\r\nContent-Length: ", body.size(),
                           "\r\n\r\n", body));
  const std::string answer = client.ReadToEnd();
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
  EXPECT_THAT(answer, ::testing::ContainsRegex("\n\ndata: .DONE.\nid: [-_A-Za-z0-9]+\n\n$"));
  EXPECT_EQ(TextOf(answer), ExpectedText());
}

TEST_F(HttpServerTest, BeforeADrainClientsAreToldToConnectAnew) {
  StartServer();
  HttpClient idle = Connect();
  idle.Get("/healthz");
  EXPECT_EQ(idle.Read()[boost::beast::http::field::connection], "");
  server_->AnnounceDrain();
  idle.Get("/healthz");
  const HttpClient::Response last = idle.Read();
  EXPECT_EQ(last.result_int(), 200);
  EXPECT_EQ(last[boost::beast::http::field::connection], "close");
  EXPECT_THAT(idle.ReadToEnd(), IsEmpty());
  HttpClient anew = Connect();
  anew.Post(kCompletionsPath, R"({"prompt":"once","stream":true})");
  const std::string stream = anew.ReadToEnd();
  EXPECT_THAT(stream, HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(TextOf(stream), ExpectedText());
}

TEST_F(HttpServerTest, ADrainLetsStreamsFinishAndTakesNothingNew) {
  StartServer();
  service_.SetScript({.hold_at = 2});
  HttpClient idle = Connect();
  idle.Get("/healthz");
  EXPECT_EQ(idle.Read().result_int(), 200);
  HttpClient client = Connect();
  client.Post(kCompletionsPath, R"({"prompt":"once","stream":true})");
  ASSERT_TRUE(service_.WaitForHeld(1));
  server_->BeginDrain();
  EXPECT_THAT(idle.ReadToEnd(), IsEmpty());
  while (true) {
    // The acceptor is closed on a thread of its own.
    try {
      HttpClient rejected = Connect();
      EXPECT_THAT(rejected.ReadToEnd(), Not(HasSubstr(" 200 ")));
    } catch (const boost::system::system_error&) {
      break;
    }
  }
  service_.Release();
  EXPECT_THAT(client.Read().body(), HasSubstr("[DONE]"));
  EXPECT_THAT(client.ReadToEnd(), IsEmpty());
  server_->Shutdown(absl::InfiniteFuture());
  EXPECT_EQ(server_->num_connections(), 0);
}

TEST_F(HttpServerTest, AShutdownCutsWhatIsLeft) {
  StartServer();
  service_.SetScript({.hold_at = 2});
  HttpClient client = Connect();
  client.Post(kCompletionsPath, R"({"prompt":"once","stream":true})");
  ASSERT_TRUE(service_.WaitForHeld(1));
  server_->Shutdown(absl::InfinitePast());
  EXPECT_EQ(server_->num_connections(), 0);
  EXPECT_TRUE(service_.WaitForAbandoned(1));
  EXPECT_THAT(client.ReadToEnd(), Not(HasSubstr("[DONE]")));
}

TEST_F(HttpServerTest, AnAddressInUseIsNamed) {
  StartServer();
  const std::string address = absl::StrCat("127.0.0.1:", server_->port());
  const auto second = HttpServer::Start({.listen = address}, api_.get());
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_THAT(second.status().message(), HasSubstr(address));
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start({.listen = "x"}, api_.get()).status()));
}

}  // namespace
}  // namespace continuo::gateway::openai
