// SPDX-License-Identifier: Apache-2.0
// Tests of responses that are asked for by their ids while they are generated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kResponses[] = "/v1/responses";

std::string Body(bool streams) {
  return absl::StrCat(R"({"input":"once","max_output_tokens":16,"stream":)",
                      streams ? "true" : "false", "}");
}

class LiveTest : public ServerTest {
 protected:
  // Begins a stream whose worker waits behind its first response, and returns the response's id.
  std::string Begin(HttpClient& client) {
    service_.SetScript({.hold_at = 1});
    client.Post(kResponses, Body(true));
    begun_ = client.ReadUntil("event: response.in_progress");
    EXPECT_TRUE(service_.WaitForHeld(++num_held_));
    const size_t at = begun_.find("resp_");
    return begun_.substr(at, begun_.find('"', at) - at);
  }
  // The rest of a stream, with what Begin has read.
  std::string Rest(HttpClient& client) {
    return absl::StrCat(begun_, client.ReadUntil("data: [DONE]"));
  }
  static std::string PathOf(const std::string& id, const std::string& more = "") {
    return absl::StrCat(kResponses, "/", id, more);
  }
  HttpClient::Response Ask(const std::string& method, const std::string& path,
                           const std::string& headers = "") {
    HttpClient client = Connect();
    client.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n",
                             headers, "\r\n"));
    return client.Read();
  }
  // The data of the events without their ids. A chunk has whole events.
  static std::vector<std::string> DataOf(const std::string& stream) {
    std::vector<std::string> data;
    for (size_t at = 0; (at = stream.find("data: ", at)) != std::string::npos;) {
      const size_t end = stream.find('\n', at);
      data.push_back(stream.substr(at + 6, end - at - 6));
      at = std::min(end, stream.size());
    }
    return data;
  }

  std::string begun_;
  int num_held_ = 0;
};

TEST_F(LiveTest, AStreamIsReadFromEachNumberWhileItIsGenerated) {
  StartServer();
  HttpClient first = Connect();
  const std::string id = Begin(first);
  std::vector<std::unique_ptr<HttpClient>> readers;
  for (int after = -1; after < 5; ++after) {
    readers.push_back(std::make_unique<HttpClient>(server_->port()));
    readers.back()->Get(PathOf(
        id,
        absl::StrCat("?stream=true", after < 0 ? "" : absl::StrCat("&starting_after=", after))));
  }
  // These have what there is before anything else comes.
  std::string early = readers[0]->ReadUntil("event: response.in_progress");
  EXPECT_THAT(early, HasSubstr("event: response.created"));
  const std::string second = readers[1]->ReadUntil("event: response.in_progress");
  EXPECT_THAT(second, Not(HasSubstr("event: response.created")));
  EXPECT_EQ(Get(PathOf(id)).result_int(), 200);
  // The others have found the generation once they have a header.
  std::vector<std::string> begun(readers.size());
  for (size_t i = 2; i < readers.size(); ++i) begun[i] = readers[i]->ReadUntil("\r\n\r\n");
  service_.Release();
  std::vector<std::string> all = DataOf(Rest(first));
  ASSERT_GT(all.size(), 6u);
  EXPECT_EQ(DataOf(early + readers[0]->ReadUntil("data: [DONE]")), all);
  EXPECT_EQ(DataOf(second + readers[1]->ReadUntil("data: [DONE]")),
            std::vector<std::string>(all.begin() + 1, all.end()));
  for (size_t i = 2; i < readers.size(); ++i) {
    const std::string rest = begun[i] + readers[i]->ReadUntil("data: [DONE]");
    EXPECT_THAT(rest, Not(HasSubstr("\nid: "))) << "numbers are its places";
    EXPECT_EQ(DataOf(rest), std::vector<std::string>(all.begin() + static_cast<int>(i), all.end()));
  }
}

TEST_F(LiveTest, AResponseSoFarIsABody) {
  StartServer();
  HttpClient first = Connect();
  const std::string id = Begin(first);
  const HttpClient::Response response = Get(PathOf(id));
  EXPECT_EQ(response.result_int(), 200);
  const Json body = Json::parse(response.body());
  EXPECT_EQ(body["id"], id);
  EXPECT_EQ(body["status"], "in_progress");
}

TEST_F(LiveTest, AnAnswerInOnePieceIsReadAsAStreamMeanwhile) {
  StartServer();
  service_.SetScript({.hold_at = 1});
  HttpClient first = Connect();
  first.Post(kResponses, Body(false), "Idempotency-Key: k\r\n");
  ASSERT_TRUE(service_.WaitForHeld(1));
  const std::string id = absl::StrCat("resp_", service_.requests()[0].request_id());
  HttpClient reader = Connect();
  reader.Get(PathOf(id, "?stream=true"));
  std::string stream = reader.ReadUntil("event: response.in_progress");
  service_.Release();
  const Json whole = Json::parse(first.Read().body());
  stream += reader.ReadUntil("data: [DONE]");
  const std::vector<std::string> data = DataOf(stream);
  EXPECT_EQ(Json::parse(data[data.size() - 2])["response"], whole);
}

TEST_F(LiveTest, ACancelledResponseEnds) {
  StartServer();
  HttpClient first = Connect();
  const std::string id = Begin(first);
  const HttpClient::Response cancelled = Ask("POST", PathOf(id, "/cancel"));
  EXPECT_EQ(cancelled.result_int(), 200);
  EXPECT_EQ(Json::parse(cancelled.body())["status"], "cancelled");
  const std::string rest = Rest(first);
  EXPECT_THAT(rest, HasSubstr("event: response.failed"));
  EXPECT_THAT(rest, HasSubstr("cancelled by its id"));
  EXPECT_TRUE(service_.WaitForAbandoned(1));
  EXPECT_EQ(Get(PathOf(id)).result_int(), 404);
}

TEST_F(LiveTest, ADeletedResponseEndsToo) {
  StartServer();
  service_.SetScript({.hold_at = 1});
  HttpClient first = Connect();
  first.Post(kResponses, Body(false));
  ASSERT_TRUE(service_.WaitForHeld(1));
  const std::string id = absl::StrCat("resp_", service_.requests()[0].request_id());
  const HttpClient::Response deleted = Ask("DELETE", PathOf(id));
  EXPECT_EQ(Json::parse(deleted.body()),
            Json({{"id", id}, {"object", "response"}, {"deleted", true}}));
  const HttpClient::Response ended = first.Read();
  EXPECT_EQ(ended.result_int(), 499);
  EXPECT_EQ(Json::parse(ended.body())["error"]["code"], "aborted");
  EXPECT_TRUE(service_.WaitForAbandoned(1));
}

TEST_F(LiveTest, AnEndedResponseSaysHowItIsHadAgain) {
  StartServer();
  const Json whole = Json::parse(Post(kResponses, Body(false)).body());
  for (const std::string& path : {PathOf(whole["id"]), PathOf(whole["id"], "?stream=true"),
                                  PathOf("resp_"), PathOf("other")}) {
    const HttpClient::Response response = Get(path);
    EXPECT_EQ(response.result_int(), 404) << path;
    const Json error = Json::parse(response.body())["error"];
    EXPECT_EQ(error["code"], "response_not_found");
    EXPECT_THAT(std::string(error["message"]), HasSubstr("Idempotency-Key"));
    EXPECT_THAT(std::string(error["message"]), HasSubstr("Last-Event-ID"));
  }
  EXPECT_EQ(Ask("POST", PathOf(whole["id"], "/cancel")).result_int(), 404);
  EXPECT_EQ(Ask("DELETE", PathOf(whole["id"])).result_int(), 404);
  // What is logged has no word of the client's.
  for (const absl::Status& rejected : service_.rejected()) {
    EXPECT_THAT(std::string(rejected.message()), Not(HasSubstr("other")));
  }
}

TEST_F(LiveTest, TenantsSeeTheirOwnResponses) {
  StartServer();
  HttpClient first = Connect();
  const std::string id = Begin(first);
  const std::string other = "x-tenant-id: other\r\n";
  EXPECT_EQ(Ask("GET", PathOf(id), other).result_int(), 404);
  EXPECT_EQ(Ask("POST", PathOf(id, "/cancel"), other).result_int(), 404);
  EXPECT_EQ(Ask("DELETE", PathOf(id), other).result_int(), 404);
  EXPECT_EQ(Ask("GET", PathOf(id)).result_int(), 200);
  service_.SetKey("sesame");
  EXPECT_EQ(Ask("GET", PathOf(id)).result_int(), 401);
}

TEST_F(LiveTest, AQueryThatIsNoneIsRefused) {
  StartServer();
  HttpClient first = Connect();
  const std::string id = Begin(first);
  for (const char* const query : {"?stream=yes", "?stream=true&starting_after=x",
                                  "?stream=true&starting_after=-1", "?starting_after=1"}) {
    EXPECT_EQ(Get(PathOf(id, query)).result_int(), 400) << query;
  }
  const HttpClient::Response put = Ask("PUT", PathOf(id));
  EXPECT_EQ(put.result_int(), 405);
  EXPECT_EQ(put["Allow"], "GET, HEAD, DELETE, OPTIONS");
  EXPECT_EQ(Get(PathOf(id, "/cancel")).result_int(), 405);
  EXPECT_EQ(Get(PathOf(id, "/input_items")).result_int(), 404);
}

TEST_F(LiveTest, ANumberBehindTheEndIsRefused) {
  StartServer();
  HttpClient first = Connect();
  const std::string id = Begin(first);
  HttpClient reader = Connect();
  reader.Get(PathOf(id, "?stream=true&starting_after=1000"));
  const std::string begun = reader.ReadUntil("\r\n\r\n");
  service_.Release();
  const std::vector<std::string> all = DataOf(Rest(first));
  const Json last = Json::parse(all[all.size() - 2]);
  EXPECT_THAT(reader.ReadUntil("\"error\""),
              HasSubstr(absl::StrCat("with number ", last["sequence_number"].get<int>())));
}

TEST_F(LiveTest, ATenantHasABoundOfReaders) {
  StartServer();
  HttpClient first = Connect();
  const std::string id = Begin(first);
  std::vector<std::unique_ptr<HttpClient>> readers;
  for (int i = 0; i < 64; ++i) {
    readers.push_back(std::make_unique<HttpClient>(server_->port()));
    readers.back()->Get(PathOf(id, "?stream=true"));
    readers.back()->ReadUntil("event: response.in_progress");
  }
  const HttpClient::Response refused = Get(PathOf(id));
  EXPECT_EQ(refused.result_int(), 429);
  EXPECT_EQ(Json::parse(refused.body())["error"]["code"], "rate_limit_exceeded");
  // Another tenant has places of its own.
  EXPECT_EQ(Ask("GET", PathOf(id), "x-tenant-id: other\r\n").result_int(), 404);
  service_.Release();
  for (const auto& reader : readers) {
    EXPECT_NE(reader->ReadUntil("data: [DONE]").find("data: [DONE]"), std::string::npos);
  }
}

TEST_F(LiveTest, AStreamThatWentOnIsReadBehindItsCut) {
  StartServer();
  // An answer that does not end at once.
  std::string key, whole;
  for (int i = 0; DataOf(whole).size() < 12; ++i) {
    key = absl::StrCat("Idempotency-Key: ", i, "\r\n");
    whole = Post(kResponses, Body(true), key).body();
  }
  // The id behind the third event.
  size_t at = 0;
  for (int i = 0; i < 3; ++i) at = whole.find("\nid: ", at + 1);
  const std::string cursor = whole.substr(at + 5, whole.find('\n', at + 1) - at - 5);
  service_.SetScript({.hold_at = 2});
  HttpClient resumed = Connect();
  resumed.Post(kResponses, Body(true), absl::StrCat(key, "Last-Event-ID: ", cursor, "\r\n"));
  ASSERT_TRUE(service_.WaitForHeld(1));
  // It can be found once it has a header.
  const std::string head = resumed.ReadUntil("\r\n\r\n");
  const std::string id = absl::StrCat("resp_", service_.requests().back().request_id());
  const std::string path = PathOf(id, "?stream=true&starting_after=");
  HttpClient behind = Connect(), before = Connect();
  behind.Get(path + "2");
  before.Get(PathOf(id, "?stream=true"));
  const std::string begun = behind.ReadUntil("\r\n\r\n");
  EXPECT_EQ(Get(PathOf(id)).result_int(), 200);
  service_.Release();
  const std::vector<std::string> rest = DataOf(begun + behind.ReadUntil("data: [DONE]"));
  EXPECT_EQ(rest, DataOf(head + resumed.ReadUntil("data: [DONE]")));
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(Json::parse(rest[0])["sequence_number"], 3);
  EXPECT_THAT(before.ReadUntil("another run's"), HasSubstr("starting_after"));
}

}  // namespace
}  // namespace continuo::gateway::openai
