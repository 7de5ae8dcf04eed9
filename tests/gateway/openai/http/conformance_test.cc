// SPDX-License-Identifier: Apache-2.0
// Tables of what RFC 9112 and RFC 9110 ask of an origin server, sent as bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/gateway/openai/http/request_target.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kPrompt[] = R"({"prompt":"once"})";
constexpr char kNext[] = "GET /healthz HTTP/1.1\r\nHost: next\r\nConnection: close\r\n\r\n";

// A request, and the status of the answer. "|" stands for the end of a line.
struct Case {
  std::string request;
  int status;
};

class ConformanceTest : public ServerTest {
 protected:
  static std::string Lines(const std::string& text) {
    return absl::StrReplaceAll(text, {{"|", "\r\n"}});
  }
  // Everything that the server sends for these bytes, after which the client sends nothing.
  std::string Exchange(const std::string& bytes) {
    HttpClient client = Connect();
    client.Send(bytes);
    client.EndWrites();
    return client.ReadToEnd();
  }
  // Each request is answered with its status, and the connection goes on.
  void ExpectServed(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      const std::string answer = Exchange(Lines(c.request) + kNext);
      EXPECT_THAT(answer, StartsWith(absl::StrCat("HTTP/1.1 ", c.status, " "))) << c.request;
      EXPECT_THAT(answer, EndsWith("ok\n")) << c.request << "\n" << answer;
    }
  }
  // Each request is answered with its status, and the connection ends: what follows is not taken
  // for another request.
  void ExpectRefused(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      const std::string answer = Exchange(Lines(c.request) + kNext);
      EXPECT_THAT(answer, StartsWith(absl::StrCat("HTTP/1.1 ", c.status, " "))) << c.request;
      EXPECT_THAT(answer, HasSubstr("Connection: close\r\n")) << c.request;
      EXPECT_THAT(answer, Not(HasSubstr("ok\n"))) << c.request;
    }
    EXPECT_EQ(Get("/healthz").result_int(), 200);
  }
};

TEST_F(ConformanceTest, TargetsComeInEachForm) {
  StartServer();
  ExpectServed({
      {"GET /v1/models HTTP/1.1|Host: a||", 200},
      {"GET http://host/v1/models HTTP/1.1|Host: host||", 200},
      {"GET http://host:8080/v1/models HTTP/1.1|Host: other||", 200},
      {"GET HTTP://HOST/v1/models HTTP/1.1|Host: host||", 200},
      {"GET https://[::1]:443/v1/models HTTP/1.1|Host: [::1]:443||", 200},
      {"GET http://host HTTP/1.1|Host: host||", 200},
      {"GET http://host?a=b HTTP/1.1|Host: host||", 200},
      {"GET http://host/v1/nothing HTTP/1.1|Host: host||", 404},
      {"OPTIONS * HTTP/1.1|Host: a||", 204},
      {"OPTIONS http://host HTTP/1.1|Host: a||", 204},
      {"OPTIONS /v1/models HTTP/1.1|Host: a||", 204},
      {"OPTIONS /v1/nothing HTTP/1.1|Host: a||", 404},
      {"GET /v1/models?limit=3&after=%2F HTTP/1.1|Host: a||", 200},
      {"GET /v1/models? HTTP/1.1|Host: a||", 200},
      {"GET /v1/models/?a HTTP/1.1|Host: a||", 200},
      {"GET /v1/models/ HTTP/1.1|Host: a||", 200},
      {"GET //v1/models HTTP/1.1|Host: a||", 200},
      {"GET //v1///models// HTTP/1.1|Host: a||", 200},
      {"GET // HTTP/1.1|Host: a||", 200},
      {"GET /%76%31/m%6Fdels HTTP/1.1|Host: a||", 200},
      {"GET /v1%2Fmodels HTTP/1.1|Host: a||", 200},
      {"GET /v1/models/org%2Ffake HTTP/1.1|Host: a||", 200},
      {"GET /v1/models//org/fake/ HTTP/1.1|Host: a||", 200},
      {"GET /v1/models/%zz HTTP/1.1|Host: a||", 404},
      {"GET /%00 HTTP/1.1|Host: a||", 404},
      {"GET /v1 HTTP/1.1|Host: a||", 404},
  });
  ExpectRefused({
      {"GET v1/models HTTP/1.1|Host: a||", 400},
      {"GET * HTTP/1.1|Host: a||", 400},
      {"GET ftp://host/v1/models HTTP/1.1|Host: host||", 400},
      {"GET http:///v1/models HTTP/1.1|Host: host||", 400},
      {"GET http://user@host/v1/models HTTP/1.1|Host: host||", 400},
      {"GET http://[::1/v1/models HTTP/1.1|Host: host||", 400},
      {"GET /v1/models#top HTTP/1.1|Host: a||", 400},
  });
}

TEST_F(ConformanceTest, AHostIsThereOnce) {
  StartServer();
  ExpectServed({
      {"GET /healthz HTTP/1.1|Host: a||", 200},
      {"GET /healthz HTTP/1.1|hOST:a.example:8080  ||", 200},
      {"GET /healthz HTTP/1.1|Host:||", 200},
      {"GET /healthz HTTP/1.1|Host: 127.0.0.1:1||", 200},
      {"GET /healthz HTTP/1.1|Host: [::1]||", 200},
      {"GET /healthz HTTP/1.1|Host: [fe80::1%25eth0]:80||", 200},
      {"GET /healthz HTTP/1.0|Host: a|Connection: keep-alive||", 200},
      {"GET /healthz HTTP/1.0|Connection: keep-alive||", 200},
  });
  ExpectRefused({
      {"GET /healthz HTTP/1.1||", 400},
      {"GET /healthz HTTP/1.1|X-Host: a||", 400},
      {"GET /healthz HTTP/1.1|Host: a|Host: a||", 400},
      {"GET /healthz HTTP/1.1|Host: a|host: b||", 400},
      {"GET /healthz HTTP/1.0|Host: a|Host: b|Connection: keep-alive||", 400},
      {"GET /healthz HTTP/1.1|Host: a b||", 400},
      {"GET /healthz HTTP/1.1|Host: a/b||", 400},
      {"GET /healthz HTTP/1.1|Host: http://a||", 400},
      {"GET /healthz HTTP/1.1|Host: u@a||", 400},
      {"GET /healthz HTTP/1.1|Host: a:b||", 400},
      {"GET /healthz HTTP/1.1|Host: a:1234567||", 400},
      {"GET /healthz HTTP/1.1|Host: [::1||", 400},
      {"GET http://host/healthz HTTP/1.1||", 400},
  });
}

TEST_F(ConformanceTest, MethodsAreToldApart) {
  StartServer();
  ExpectServed({
      {"HEAD /v1/chat/completions HTTP/1.1|Host: a||", 405},
      {"GET /v1/completions HTTP/1.1|Host: a||", 405},
      {"POST /v1/models HTTP/1.1|Host: a|Content-Length: 0||", 405},
      {"PUT /v1/models HTTP/1.1|Host: a|Content-Length: 0||", 405},
      {"DELETE /v1/models/org/fake HTTP/1.1|Host: a||", 405},
      {"PATCH / HTTP/1.1|Host: a|Content-Length: 0||", 405},
      {"TRACE / HTTP/1.1|Host: a||", 405},
      {"CONNECT host:80 HTTP/1.1|Host: host:80||", 501},
      {"BREW /v1/models HTTP/1.1|Host: a||", 501},
      {"get /v1/models HTTP/1.1|Host: a||", 501},
      {"POST /ping HTTP/1.1|Host: a|Content-Length: 0||", 200},
      {"POST /v1/completions HTTP/1.1|Host: a||", 400},
  });
  const std::vector<std::pair<std::string, std::string>> allowed = {
      {"/v1/models", "GET, HEAD, OPTIONS"},
      {"/v1/chat/completions", "POST, OPTIONS"},
      {"/ping", "GET, HEAD, POST, OPTIONS"},
      {"*", "GET, HEAD, POST, DELETE, OPTIONS"}};
  for (const auto& [path, methods] : allowed) {
    const std::string answer =
        Exchange(absl::StrCat("OPTIONS ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"));
    EXPECT_THAT(answer, HasSubstr(absl::StrCat("\r\nAllow: ", methods, "\r\n")));
    EXPECT_THAT(answer, Not(HasSubstr("Content-Length")));
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
    if (path == "*") continue;
    EXPECT_THAT(Exchange(absl::StrCat("DELETE ", path, " HTTP/1.1\r\nHost: a\r\n\r\n")),
                HasSubstr(absl::StrCat("\r\nAllow: ", methods, "\r\n")));
  }
}

TEST_F(ConformanceTest, AHeadIsAGetWithoutABody) {
  StartServer();
  for (const char* const path :
       {"/", "/fleet", "/v1/models", "/v1/models/org/fake", "/healthz", "/readyz", "/health",
        "/ping", "/version", "/metrics", "/metrics/load", "/no"}) {
    const std::string rest = absl::StrCat(" ", path, " HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string get = Exchange("GET" + rest), head = Exchange("HEAD" + rest);
    const std::string header = get.substr(0, get.find("\r\n\r\n") + 4);
    const auto without_date = [](std::string text) {
      const size_t date = text.find("Date: ");
      return text.erase(date, text.find("\r\n", date) - date);
    };
    EXPECT_EQ(without_date(head), without_date(header)) << path;
    EXPECT_THAT(head, HasSubstr("\r\nContent-Length: "));
  }
}

TEST_F(ConformanceTest, TheFramingOfABodyIsUnambiguous) {
  StartServer();
  const std::string post = "POST /v1/completions HTTP/1.1|Host: a|";
  const std::string chunks = absl::StrCat("5|{\"pro|c|mpt\":\"once\"}|0||");
  ExpectServed({
      {post + "Content-Length: 17||" + kPrompt, 200},
      {post + "Content-Length: 017||" + kPrompt, 200},
      {post + "Content-Length: 17, 17||" + kPrompt, 200},
      {post + "Content-Length: 17|Content-Length: 17||" + kPrompt, 200},
      {post + "Transfer-Encoding: chunked||" + chunks, 200},
      {post + "Transfer-Encoding: CHUNKED||" + chunks, 200},
      {post + "Transfer-Encoding: chunked||5;a=b;c=\"d e\"|{\"pro|0c|mpt\":\"once\"}|000||", 200},
      {post + "Transfer-Encoding: chunked||5|{\"pro|C|mpt\":\"once\"}|0|X: y|Expires: z||", 200},
      {post + "Transfer-Encoding: chunked||0||", 400},  // no JSON
  });
  ExpectRefused({
      {post + "Content-Length: -1||", 400},
      {post + "Content-Length: +17||" + kPrompt, 400},
      {post + "Content-Length: 0x11||" + kPrompt, 400},
      {post + "Content-Length: 1 7||" + kPrompt, 400},
      {post + "Content-Length:||" + kPrompt, 400},
      {post + "Content-Length: 17, 18||" + kPrompt, 400},
      {post + "Content-Length: 17|Content-Length: 18||" + kPrompt, 400},
      {post + "Content-Length: 99999999999999999999999||" + kPrompt, 400},
      {post + "Content-Length: 17|Transfer-Encoding: chunked||" + chunks, 400},
      {post + "Transfer-Encoding: chunked|Content-Length: 17||" + chunks, 400},
      {post + "Transfer-Encoding: chunked|Transfer-Encoding: chunked||" + chunks, 400},
      {post + "Transfer-Encoding: identity||", 400},
      {post + "Transfer-Encoding: chunked, gzip||" + chunks, 400},
      {post + "Transfer-Encoding: gzip, chunked||" + chunks, 501},
      {post + "Transfer-Encoding: gzip|Transfer-Encoding: chunked||" + chunks, 501},
      {post + "Transfer-Encoding: xchunked||" + chunks, 501},
      {post + "Transfer-Encoding : chunked||" + chunks, 400},
      {post + "Transfer-Encoding: chunked||zz|", 400},
      {post + "Transfer-Encoding: chunked||-1|", 400},
      {post + "Transfer-Encoding: chunked||fffffffffffffffff|", 400},
      {post + "Transfer-Encoding: chunked||ffffffffffffffff|", 413},
      {post + "Transfer-Encoding: chunked||5|{\"prompt", 400},
      {post + "Transfer-Encoding: chunked||0|Content-Length: 5||", 400},
      {post + "Transfer-Encoding: chunked||0|no trailer||", 400},
      {"POST /v1/completions HTTP/1.0|Transfer-Encoding: chunked||" + chunks, 400},
  });
}

TEST_F(ConformanceTest, LinesAreHttps) {
  StartServer();
  ExpectServed({
      {"||GET /healthz HTTP/1.1|Host: a||", 200},
      {"GET /healthz HTTP/1.1|Host: a|X-Folded: b|  c||", 200},
      {"GET /healthz HTTP/1.1|Host: a|X-Empty:|X-Tab:\tb\t|X-High: \xc3\xa9\xff||", 200},
      {"GET /healthz HTTP/1.1|Host: a|Upgrade: h2c|HTTP2-Settings: AAMAAABkAAQAAP__|"
       "Connection: Upgrade, HTTP2-Settings||",
       200},
      {"GET /healthz HTTP/1.1|Host: a|Content-Length: 3||abc", 200},
      // A later minor version is read as the last one that is known.
      {"GET /healthz HTTP/1.2|Host: a||", 200},
      {"GET /healthz HTTP/1.9|Host: a||", 200},
  });
  ExpectRefused({
      {"GET /healthz HTTP/1.2||", 400},  // without Host
      {"GET /healthz HTTP/1.10|Host: a||", 400},
      {"GET /healthz HTTP/2.0|Host: a||", 505},
      {"GET /healthz HTTP/9.9|Host: a||", 505},
      {"PRI * HTTP/2.0||SM||", 505},
      {"GET /healthz HTTP/1.1.1|Host: a||", 400},
      {"GET /healthz http/1.1|Host: a||", 400},
      {"GET /healthz|Host: a||", 400},
      {"GET  /healthz HTTP/1.1|Host: a||", 400},
      {"GET /a b HTTP/1.1|Host: a||", 400},
      {"GET /healthz HTTP/1.1 |Host: a||", 400},
      {" GET /healthz HTTP/1.1|Host: a||", 400},
      {"G@T /healthz HTTP/1.1|Host: a||", 400},
      {"GET /healthz HTTP/1.1|Host : a||", 400},
      {"GET /healthz HTTP/1.1| Host: a||", 400},
      {"GET /healthz HTTP/1.1|Host: a|X Y: z||", 400},
      {"GET /healthz HTTP/1.1|Host: a|: z||", 400},
      {"GET /healthz HTTP/1.1|Host: a|nothing||", 400},
      {"GET /healthz HTTP/1.1|Host: a|X: a\rb||", 400},
      {"GET /healthz HTTP/1.1|Host: a|X: a\x01||", 400},
      {std::string("GET /healthz HTTP/1.1|Host: a|X: \0||", 36), 400},
      {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03||", 13), 400},
  });
}

TEST_F(ConformanceTest, LinesAndHeadersAreBounded) {
  StartServer();
  const std::string long_text(17 << 10, 'x');
  ExpectServed({{"GET /" + std::string(8000, 'x') + " HTTP/1.1|Host: a||", 404},
                {"GET /healthz HTTP/1.1|Host: a|X: " + std::string(8000, 'x') + "||", 200}});
  ExpectRefused({
      {"GET /" + long_text + " HTTP/1.1|Host: a||", 414},
      {"GET /?" + long_text, 414},
      {long_text, 414},
      {"GET /healthz HTTP/1.1|Host: a|X: " + long_text + "||", 431},
      {"GET /healthz HTTP/1.1|Host: a|X: " + long_text, 431},
      {"GET /healthz HTTP/1.1|Host: a|" + long_text + ": x||", 431},
  });
  const std::string chunked =
      Lines("POST /v1/completions HTTP/1.1|Host: a|Transfer-Encoding: chunked||");
  for (const std::string& part : {std::string("1;"), std::string("0\r\nX: ")}) {
    HttpClient client = Connect();
    client.Send(absl::StrCat(chunked, part, std::string(130 << 10, 'x')));
    EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 431 ")) << part;
  }
}

TEST_F(ConformanceTest, ExpectationsAreMetOrRefused) {
  StartServer();
  const auto post = [](const std::string& version, const std::string& headers) {
    return absl::StrCat("POST /v1/completions HTTP/", version, "\r\nHost: a\r\nContent-Length: 17",
                        "\r\n", headers, "\r\n");
  };
  for (const char* const value : {"100-continue", "100-Continue"}) {
    HttpClient client = Connect();
    client.Send(post("1.1", absl::StrCat("Expect: ", value, "\r\n")));
    EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.Send(kPrompt);
    EXPECT_EQ(client.Read().result_int(), 200);
  }
  // A body that is there already is not asked for.
  EXPECT_THAT(Exchange(absl::StrCat(post("1.1", "Expect: 100-continue\r\n"), kPrompt)),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Exchange("GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n"),
              StartsWith("HTTP/1.1 200 "));
  // A client of HTTP/1.0 does not know interim answers.
  EXPECT_THAT(Exchange(absl::StrCat(post("1.0", "Expect: 100-continue\r\n"), kPrompt)),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Exchange(absl::StrCat(post("1.1", "Expect: wonders\r\n"), kPrompt)),
              StartsWith("HTTP/1.1 417 "));
}

TEST_F(ConformanceTest, ConnectionsPersistAsTheClientWants) {
  StartServer();
  const auto answers = [&](const std::string& version, const std::string& headers) {
    const std::string request =
        absl::StrCat("GET /healthz HTTP/", version, "\r\nHost: a\r\n", headers, "\r\n");
    const std::string all = Exchange(request + request + request);
    int count = 0;
    for (size_t at = 0; (at = all.find("ok\n", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(answers("1.1", ""), 3);
  EXPECT_EQ(answers("1.1", "Connection: keep-alive\r\n"), 3);
  EXPECT_EQ(answers("1.1", "Connection: close\r\n"), 1);
  EXPECT_EQ(answers("1.1", "Connection: TE, Close\r\n"), 1);
  EXPECT_EQ(answers("1.0", ""), 1);
  EXPECT_EQ(answers("1.0", "Connection: keep-alive\r\n"), 3);
  EXPECT_THAT(Exchange("GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
              HasSubstr("Connection: keep-alive\r\n"));
}

TEST_F(ConformanceTest, TrailersAreNoHeaders) {
  StartServer();
  service_.SetKey("0123456789abcdef");
  const std::string answer = Exchange(
      Lines("POST /v1/completions HTTP/1.1|Host: a|Authorization: Bearer 0123456789abcdef|"
            "Transfer-Encoding: chunked||11|{\"prompt\":\"once\"}|0|x-request-id: from-a-trailer|"
            "Content-Encoding: gzip|grpc-timeout: 1n|Connection: close||") +
      kNext);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, Not(HasSubstr("from-a-trailer")));
  EXPECT_THAT(answer, EndsWith("ok\n"));
}

TEST_F(ConformanceTest, AClientThatEndsItsSideIsServedInFull) {
  HttpLimits limits;
  limits.keepalive_interval = absl::Milliseconds(10);
  StartServer(limits);
  for (const bool streams : {false, true}) {
    for (const int hold_at : {0, 2}) {
      service_.SetScript({.hold_at = hold_at});
      const size_t number = service_.requests().size();
      HttpClient client = Connect();
      client.Post(kCompletionsPath,
                  absl::StrCat(R"({"prompt":"once","stream":)", streams ? "true" : "false", "}"));
      client.Get("/healthz");
      client.EndWrites();
      ASSERT_TRUE(service_.WaitForHeld(static_cast<int>(number) + 1));
      // The server has seen the end of its input once it sends something ahead.
      const std::string ahead =
          streams && hold_at > 0 ? client.ReadUntil(": keep-alive\n\r\n") : client.ReadUntil("H");
      service_.Release();
      const std::string answer = ahead + client.ReadToEnd();
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
      EXPECT_THAT(answer, EndsWith("ok\n"));
      EXPECT_THAT(answer, HasSubstr(streams ? "[DONE]" : "text_completion"));
    }
  }
}

TEST_F(ConformanceTest, AClientThatEndsItsSideAndLeavesIsNoticed) {
  StartServer();
  int left = 0;
  for (const char* const body : {kPrompt, R"({"prompt":"once","stream":true})"}) {
    for (const int hold_at : {0, 2}) {
      service_.SetScript({.hold_at = hold_at});
      HttpClient client = Connect();
      client.Post(kCompletionsPath, body);
      client.EndWrites();
      ASSERT_TRUE(service_.WaitForHeld(left + 1));
      client.Close();
      EXPECT_TRUE(service_.WaitForAbandoned(++left));
    }
  }
}

TEST_F(ConformanceTest, ARequestThatEndsEarlyIsToldSo) {
  StartServer();
  for (const char* const part :
       {"GET /heal", "GET /healthz HTTP/1.1\r\nHost: a\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 17\r\n\r\n{\"pro",
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"}) {
    EXPECT_THAT(Exchange(part), StartsWith("HTTP/1.1 400 ")) << part;
  }
  EXPECT_EQ(Exchange(""), "");
  EXPECT_EQ(Exchange("\r\n\r\n"), "");
}

TEST(RequestTargetTest, PathsHaveOneForm) {
  const std::vector<std::pair<std::string, std::string>> paths = {
      {"/", "/"},
      {"//", "/"},
      {"/v1/models/", "/v1/models"},
      {"/v1//models", "/v1/models"},
      {"//v1/models?x=/", "/v1/models"},
      {"/a%2Fb%2f%20c", "/a/b/ c"},
      {"/%%4%zz%4", "/%%4%zz%4"},
      {"/a/./b/../c", "/a/c"},
      {"/../../a", "/a"},
      {"/a/..", "/"},
      {"/..", "/"},
      {"/a/.", "/a"},
      {"/a//../b", "/a/b"},
      {"//v1/../x", "/x"},
      {"/a/%2E%2e/b", "/b"},
      {"/a/%2e/b/", "/a/b"},
      {"/m/a%2F..%2Fb", "/m/a/../b"},
      {"/.../.a/a./..b", "/.../.a/a./..b"},
      {"/a/../b?c=/../d", "/b"},
      {"http://h/a/../b", "/b"},
      {"http://h", "/"},
      {"http://h?x", "/"},
      {"http://h:1/a/", "/a"},
      {"HTTPS://h//a", "/a"},
      {"*", "*"}};
  for (const auto& [target, path] : paths) EXPECT_EQ(PathOf(target), path) << target;
}

TEST(RequestTargetTest, QueriesAreReadAsFormsAreWritten) {
  EXPECT_EQ(QueryOf("/a?b=c"), "b=c");
  EXPECT_EQ(QueryOf("http://h/a?b?c"), "b?c");
  EXPECT_EQ(QueryOf("http://h?b"), "b");
  EXPECT_EQ(QueryOf("/a?"), "");
  EXPECT_EQ(QueryOf("/a%3Fb"), "");
  EXPECT_EQ(QueryOf("*"), "");
  EXPECT_EQ(QueryOf(""), "");
  const std::pair<std::string_view, std::optional<std::string>> values[] = {
      {"", std::nullopt},
      {"n", ""},
      {"n=", ""},
      {"n=a", "a"},
      {"x&n=a", "a"},
      {"x=n=b&n=a=c&n=d", "a=c"},
      {"&&n=a&", "a"},
      {"n=a+b%2Bc%20d%2", "a b+c d%2"},
      {"%6E=Qwen%2FQwen3", "Qwen/Qwen3"},
      {"nn=a&N=b&=c&xn=d", std::nullopt}};
  for (const auto& [query, value] : values) EXPECT_EQ(QueryValue(query, "n"), value) << query;
}

}  // namespace
}  // namespace continuo::gateway::openai
