// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/kubernetes/api_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/gateway/discovery/kubernetes/exchange_in_memory.h"

namespace continuo::gateway {
namespace {

using ::testing::HasSubstr;

constexpr char kChunked[] =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n4;a=b\r\n two\r\n0\r\n\r\n";

struct Answered {
  absl::Status status;
  std::string body;
};

Answered Ask(std::string_view answer, size_t piece_bytes = 1000) {
  Answered answered;
  answered.status = ExchangeInMemory(answer, piece_bytes, [&](std::string_view part) {
    answered.body.append(part);
    return absl::OkStatus();
  });
  return answered;
}

TEST(ApiExchangeTest, ABodyIsTheSameHoweverItsBytesCome) {
  for (size_t piece = 1; piece < sizeof(kChunked); ++piece) {
    const Answered answered = Ask(kChunked, piece);
    EXPECT_TRUE(answered.status.ok()) << answered.status;
    EXPECT_EQ(answered.body, "one two");
  }
}

TEST(ApiExchangeTest, AConnectionThatIsCutIsUnavailable) {
  const std::string_view whole = kChunked;
  for (size_t size = 0; size < whole.size(); ++size) {
    const Answered answered = Ask(whole.substr(0, size));
    EXPECT_EQ(answered.status.code(), absl::StatusCode::kUnavailable) << size;
    EXPECT_TRUE(std::string_view("one two").starts_with(answered.body));
  }
  EXPECT_EQ(Ask("no HTTP\r\n\r\n").status.code(), absl::StatusCode::kUnavailable);
}

TEST(ApiExchangeTest, ARefusalHasTheServersWords) {
  const std::string text = R"({"kind":"Status","message":"too old resource version"})";
  const std::string rest = absl::StrCat("\r\nContent-Length: ", text.size(), "\r\n\r\n", text);
  const Answered gone = Ask(absl::StrCat("HTTP/1.1 410 Gone", rest));
  EXPECT_EQ(gone.status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(gone.status.message()), HasSubstr("410: too old resource version"));
  const Answered forbidden = Ask(absl::StrCat("HTTP/1.1 403 Forbidden", rest));
  EXPECT_EQ(forbidden.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(forbidden.body, "");
}

TEST(ApiExchangeTest, ARefusalIsReadAsFarAsItsWordsMayReach) {
  const std::string endless = absl::StrCat("HTTP/1.1 500 Oh\r\n\r\n", std::string(100'000, 'x'));
  const Answered answered = Ask(endless, 16384);
  EXPECT_EQ(answered.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_LT(answered.status.message().size(), 300u);
}

TEST(ApiExchangeTest, WhoTakesTheBodyMayEndIt) {
  const absl::Status status = ExchangeInMemory(
      kChunked, 1000, [](std::string_view) { return absl::DataLossError("enough"); });
  EXPECT_EQ(status, absl::DataLossError("enough"));
}

}  // namespace
}  // namespace continuo::gateway
