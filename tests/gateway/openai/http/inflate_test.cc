// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/inflate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;

constexpr int kGzip = 31, kZlib = 15, kRaw = -15;
constexpr char kPrompt[] = R"({"prompt":"once"})";

std::string Deflate(const std::string& text, int format, int level = 9) {
  z_stream z = {};
  EXPECT_EQ(deflateInit2(&z, level, Z_DEFLATED, format, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(text.size() + text.size() / 8 + 1024, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(bytes.data());
  z.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  bytes.resize(bytes.size() - z.avail_out);
  deflateEnd(&z);
  return bytes;
}

// The status of inflating, 200 if it succeeds.
int Status(const std::string& coding, std::string body, size_t max_bytes, std::string* text,
           size_t room = 1 << 30) {
  const auto problem = Inflate(
      coding, max_bytes, [room](size_t size) { return size <= room; }, &body);
  *text = std::move(body);
  return problem.has_value() ? problem->status : 200;
}

TEST(InflateTest, EachCodingGivesTheText) {
  std::mt19937 random(1);
  std::string noise(300 << 10, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(kPrompt), std::string(200000, 'x'), noise}) {
    for (const int level : {0, 1, 9}) {
      const std::vector<std::pair<std::string, std::string>> bodies = {
          {"", text},
          {"identity", text},
          {"gzip", Deflate(text, kGzip, level)},
          {"GZip", Deflate(text, kGzip, level)},
          {"x-gzip", Deflate(text, kGzip, level)},
          {"deflate", Deflate(text, kZlib, level)},
          {"deflate", Deflate(text, kRaw, level)}};
      for (const auto& [coding, body] : bodies) {
        std::string inflated;
        ASSERT_EQ(Status(coding, body, text.size(), &inflated), 200) << coding << text.size();
        ASSERT_TRUE(inflated == text) << coding << text.size();
      }
      std::string inflated;
      ASSERT_EQ(
          Status("gzip", Deflate(text, kGzip) + Deflate("more", kGzip), text.size() + 4, &inflated),
          200);
      ASSERT_TRUE(inflated == text + "more");
    }
  }
}

TEST(InflateTest, WhatIsNotOfTheCodingIsRefused) {
  const std::string gzip = Deflate(kPrompt, kGzip), zlib = Deflate(kPrompt, kZlib);
  std::string text;
  for (size_t size = 0; size < gzip.size(); ++size) {
    EXPECT_EQ(Status("gzip", gzip.substr(0, size), 1000, &text), 400) << size;
  }
  for (size_t size = 0; size < zlib.size(); ++size) {
    EXPECT_EQ(Status("deflate", zlib.substr(0, size), 1000, &text), 400) << size;
  }
  for (size_t at = 0; at < gzip.size(); ++at) {
    std::string changed = gzip;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    // Some bytes of the header say nothing of the text.
    if (Status("gzip", changed, 1000, &text) == 200) {
      EXPECT_EQ(text, kPrompt);
    }
  }
  EXPECT_EQ(Status("gzip", kPrompt, 1000, &text), 400);
  EXPECT_EQ(Status("gzip", zlib, 1000, &text), 400);
  EXPECT_EQ(Status("deflate", gzip, 1000, &text), 400);
  EXPECT_EQ(Status("gzip", gzip + "x", 1000, &text), 400);
  EXPECT_EQ(Status("deflate", zlib + "x", 1000, &text), 400);
}

TEST(InflateTest, TheResultIsBounded) {
  std::string text;
  const std::string bomb = Deflate(std::string(64 << 20, '\0'), kGzip);
  EXPECT_LT(bomb.size(), 100 << 10);
  EXPECT_EQ(Status("gzip", bomb, 8 << 20, &text), 413);
  EXPECT_EQ(Status("gzip", bomb, (64 << 20) - 1, &text), 413);
  EXPECT_EQ(Status("gzip", bomb, 64 << 20, &text), 200);
  EXPECT_EQ(Status("gzip", bomb, 64 << 20, &text, /*room=*/32 << 20), 503);
  for (const size_t size : {size_t{1}, size_t{1000}, size_t{65535}, size_t{65536}, size_t{65537}}) {
    const std::string body = Deflate(std::string(size, 'x'), kGzip);
    EXPECT_EQ(Status("gzip", body, size, &text), 200) << size;
    EXPECT_EQ(Status("gzip", body, size - 1, &text), 413) << size;
  }
}

class ContentEncodingTest : public ServerTest {};

TEST_F(ContentEncodingTest, APackedBodyIsTaken) {
  StartServer();
  const std::string gzip = Deflate(kPrompt, kGzip);
  const std::vector<std::tuple<std::string, std::string, unsigned>> cases = {
      {"gzip", gzip, 200},          {"deflate", Deflate(kPrompt, kZlib), 200},
      {"identity", kPrompt, 200},   {"", kPrompt, 200},
      {"gzip", kPrompt, 400},       {"br", gzip, 415},
      {"zstd", gzip, 415},          {"gzip, gzip", gzip, 415},
      {"gzip, identity", gzip, 415}};
  for (const auto& [coding, body, status] : cases) {
    const HttpClient::Response response =
        Post(kCompletionsPath, body, absl::StrCat("Content-Encoding: ", coding, "\r\n"));
    EXPECT_EQ(response.result_int(), status) << coding;
    EXPECT_EQ(response["Accept-Encoding"], status == 415 ? "gzip, deflate" : "") << coding;
    if (status == 415) {
      EXPECT_THAT(response.body(), HasSubstr(coding));
    }
  }
  // The connection goes on after one that cannot be read.
  HttpClient client = Connect();
  client.Post(kCompletionsPath, "no gzip", "Content-Encoding: gzip\r\n");
  EXPECT_EQ(client.Read().result_int(), 400);
  client.Get("/healthz");
  EXPECT_EQ(client.Read().result_int(), 200);
}

TEST_F(ContentEncodingTest, WhatItBecomesCountsAsTheBody) {
  HttpLimits limits;
  limits.max_body_bytes = 1 << 20;
  limits.max_bodies_bytes = 600 << 10;
  StartServer(limits);
  const auto post = [&](size_t size) {
    const std::string text = absl::StrCat(kPrompt, std::string(size, ' '));
    return Post(kCompletionsPath, Deflate(text, kGzip), "Content-Encoding: gzip\r\n");
  };
  EXPECT_EQ(post(100 << 10).result_int(), 200);
  const HttpClient::Response full = post(700 << 10);
  EXPECT_EQ(full.result_int(), 503);
  EXPECT_EQ(full["Retry-After"], "1");
  // The room was given back.
  EXPECT_EQ(post(100 << 10).result_int(), 200);
  HttpLimits small;
  small.max_body_bytes = 1000;
  server_.reset();
  StartServer(small);
  const HttpClient::Response large = post(100 << 10);
  EXPECT_EQ(large.result_int(), 413);
  EXPECT_THAT(large.body(), HasSubstr("larger than 1000 bytes"));
}

}  // namespace
}  // namespace continuo::gateway::openai
