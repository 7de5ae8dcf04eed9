// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/route_hash.h"

#include <gtest/gtest.h>

#include <string>

namespace continuo::gateway {
namespace {

const std::string kSystem(3000, 's');

v1::GenerateRequest Chat(const std::string& first) {
  v1::GenerateRequest request;
  v1::ChatMessage* message = request.mutable_conversation()->add_messages();
  message->set_role("system");
  message->set_content(kSystem);
  message = request.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content(first);
  return request;
}

v1::GenerateRequest Text(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

TEST(PrefixHashTest, LaterTurnsOfAConversationHashAsItsFirst) {
  v1::GenerateRequest later = Chat("Where is Oslo?");
  const uint64_t first = PrefixHash(later, "t");
  v1::ChatMessage* message = later.mutable_conversation()->add_messages();
  message->set_role("assistant");
  message->set_content("In Norway.");
  message = later.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("And Lima?");
  EXPECT_NE(first, 0);
  EXPECT_EQ(PrefixHash(later, "t"), first);
  EXPECT_NE(PrefixHash(Chat("Where is Lima?"), "t"), first);
}

TEST(PrefixHashTest, OnlyTheBeginningCounts) {
  const std::string prefix(kPrefixTokens * kBytesPerToken, 'x');
  EXPECT_EQ(PrefixHash(Text(prefix + "a"), "t"), PrefixHash(Text(prefix + "b"), "t"));
  EXPECT_NE(PrefixHash(Text("a" + prefix), "t"), PrefixHash(Text("b" + prefix), "t"));
  v1::GenerateRequest ids, more;
  for (uint32_t i = 0; i < kPrefixTokens; ++i) {
    ids.mutable_token_ids()->add_ids(i * 70000);
    more.mutable_token_ids()->add_ids(i * 70000);
  }
  more.mutable_token_ids()->add_ids(5);
  EXPECT_EQ(PrefixHash(ids, "t"), PrefixHash(more, "t"));
  ids.mutable_token_ids()->set_ids(7, 1u << 31);
  EXPECT_NE(PrefixHash(ids, "t"), PrefixHash(more, "t"));
}

TEST(PrefixHashTest, WhatSharesNoBlocksHasAnotherHash) {
  v1::GenerateRequest salted = Text(kSystem);
  salted.mutable_cache()->set_salt("x");
  EXPECT_NE(PrefixHash(Text(kSystem), "t"), PrefixHash(Text(kSystem), "u"));
  EXPECT_NE(PrefixHash(salted, "t"), PrefixHash(Text(kSystem), "t"));
  v1::GenerateRequest bypass = Text(kSystem);
  bypass.mutable_cache()->set_bypass(true);
  EXPECT_EQ(PrefixHash(bypass, "t"), 0);
}

TEST(PrefixHashTest, AShortPromptMayGoAnywhere) {
  EXPECT_EQ(PrefixHash(Text("short"), "t"), 0);
  EXPECT_EQ(PrefixHash({}, "t"), 0);
  EXPECT_NE(PrefixHash(Text(std::string(kMinPrefixTokens * kBytesPerToken, 'x')), "t"), 0);
}

TEST(RouteHashTest, TheNumbersAreTheSameInEveryBuild) {
  // Gateways of different builds run side by side, so these hashes must not change.
  EXPECT_EQ(PrefixHash(Text(kSystem), "default"), 2416071955591971895u);
  EXPECT_EQ(SessionHash("session-1", "default"), 5136992687735196341u);
  EXPECT_EQ(SessionHash("", "default"), 0);
  EXPECT_NE(SessionHash("s", "a"), SessionHash("s", "b"));
}

}  // namespace
}  // namespace continuo::gateway
