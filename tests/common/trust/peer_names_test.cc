// SPDX-License-Identifier: Apache-2.0
#include "services/common/trust/peer_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/test_certificate.h"

namespace continuo::common {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool AllowsDns(const char* listed, const std::string& name) {
  const auto names = PeerNames::Parse("names", {listed});
  EXPECT_TRUE(names.ok()) << names.status();
  return names->Allow({.dns = {name}});
}

bool AllowsUri(const char* listed, const std::string& uri) {
  const auto names = PeerNames::Parse("names", {listed});
  EXPECT_TRUE(names.ok()) << names.status();
  return names->Allow({.uris = {uri}});
}

TEST(PeerNamesTest, ADnsNameIsItselfInAnyCase) {
  EXPECT_TRUE(AllowsDns("Gateway.llm.svc", "gateway.LLM.svc"));
  EXPECT_TRUE(AllowsDns("localhost", "localhost"));
  for (const char* other : {"gateway.llm.svc.", "agateway.llm.svc", "a.gateway.llm.svc", "llm.svc",
                            "gateway.llm.svc.evil", "", ".", "*.llm.svc", "*"}) {
    EXPECT_FALSE(AllowsDns("gateway.llm.svc", other)) << other;
  }
}

TEST(PeerNamesTest, AWildcardIsOneFirstLabel) {
  EXPECT_TRUE(AllowsDns("*.llm.svc", "gateway.llm.svc"));
  EXPECT_TRUE(AllowsDns("*.llm.svc", "a_b-1.LLM.svc"));
  for (const char* other : {"llm.svc", ".llm.svc", "a.b.llm.svc", "*.llm.svc", "a*.llm.svc",
                            "a.llm.svc.evil", "a.evil-llm.svc", "a b.llm.svc", "allm.svc"}) {
    EXPECT_FALSE(AllowsDns("*.llm.svc", other)) << other;
  }
}

TEST(PeerNamesTest, AUriIsItselfByteForByte) {
  constexpr char kId[] = "spiffe://cluster.local/ns/llm/sa/gateway";
  EXPECT_TRUE(AllowsUri(kId, kId));
  for (const char* other :
       {"spiffe://cluster.local/ns/llm/sa/Gateway", "spiffe://cluster.local/ns/llm/sa/gateway/",
        "spiffe://cluster.local/ns/llm/sa/gateway2", "spiffe://cluster.local/ns/llm/sa",
        "SPIFFE://cluster.local/ns/llm/sa/gateway", "http://cluster.local/ns/llm/sa/gateway",
        "spiffe://cluster.local/ns/llm/sa/gateway?x", ""}) {
    EXPECT_FALSE(AllowsUri(kId, other)) << other;
  }
}

TEST(PeerNamesTest, AWildcardIsOneLastSegment) {
  constexpr char kIds[] = "spiffe://cluster.local/ns/llm/sa/*";
  EXPECT_TRUE(AllowsUri(kIds, "spiffe://cluster.local/ns/llm/sa/gateway"));
  EXPECT_TRUE(AllowsUri(kIds, "spiffe://cluster.local/ns/llm/sa/a.b-c_1"));
  for (const char* last : {"", "a/b", "/", ".", "..", "*", "a?b", "a#b", "a%2fb", "a b", "../x"}) {
    EXPECT_FALSE(AllowsUri(kIds, std::string("spiffe://cluster.local/ns/llm/sa/") + last)) << last;
  }
  EXPECT_FALSE(AllowsUri(kIds, "spiffe://evil.local/ns/llm/sa/gateway"));
}

TEST(PeerNamesTest, ADnsNameIsNoUriAndTheOtherWayRound) {
  EXPECT_FALSE(AllowsUri("gateway.llm.svc", "gateway.llm.svc"));
  EXPECT_FALSE(AllowsDns("spiffe://a/b", "spiffe://a/b"));
  EXPECT_FALSE(PeerNames::Parse("names", {"a.b", "spiffe://a/b"})->Allow({}));
  EXPECT_TRUE(PeerNames::Parse("names", {"a.b", "spiffe://a/b"})
                  ->Allow({.dns = {"x.y", "a.b"}, .uris = {"spiffe://c/d"}}));
}

TEST(PeerNamesTest, WhatIsNoNameIsRefused) {
  EXPECT_TRUE(PeerNames::Parse("names", {})->empty());
  for (const char* bad : {"",
                          "*",
                          "*.",
                          "*.svc",
                          "**.a.b",
                          "a.*.b",
                          "a*.b.c",
                          "a..b",
                          ".a",
                          "a.",
                          "a b",
                          "a/b",
                          "a.b:1",
                          "10.0.0.1:5",
                          "é.a",
                          "spiffe://",
                          "spiffe:///a",
                          "://a",
                          "spiffe://*",
                          "spiffe://a/*/b",
                          "spiffe://a*/b",
                          "spiffe://a/b*",
                          "spiffe://a /b",
                          "spiffe://a/b/**"}) {
    const auto names = PeerNames::Parse("tls_client_names", {bad});
    EXPECT_EQ(names.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(names.status().message()),
                AllOf(HasSubstr("--tls_client_names"), HasSubstr("neither a DNS name")));
  }
  EXPECT_THAT(
      std::string(PeerNames::Parse("names", std::vector<std::string>(65, "a")).status().message()),
      HasSubstr("has 65 names, the limit is 64"));
}

TEST(CertificateNamesTest, NamesAreReadWholeAndOddOnesAreLeftOut) {
  const auto ca = testing::MakeTestCertificate("ca", nullptr);
  const auto certificate = testing::MakeTestCertificate(
      "gateway.evil", ca.get(),
      {.dns = {"a.test", std::string("gateway.test\0.evil", 18), "b c", "b.test"},
       .uris = {"spiffe://x/y", std::string("spiffe://x/z\0", 13), "spiffe://x/\xc3\xa9"}});
  const CertificateNames names = NamesOf(certificate->Pem());
  EXPECT_THAT(names.dns, ElementsAre("a.test", "b.test"));
  EXPECT_THAT(names.uris, ElementsAre("spiffe://x/y"));
  EXPECT_THAT(NamesOf(ca->Pem()).dns, IsEmpty());
  EXPECT_THAT(NamesOf("no certificate").dns, IsEmpty());
}

}  // namespace
}  // namespace continuo::common
