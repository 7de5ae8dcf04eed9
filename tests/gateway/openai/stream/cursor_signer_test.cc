// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cursor_signer.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

const std::string kBody(64, 'a'), kOtherBody(64, 'b');

FleetSecret CursorSecret(std::vector<uint8_t> values) {
  return FleetSecret([values] {
    std::vector<FleetSecret::Key> keys(values.size());
    for (size_t i = 0; i < values.size(); ++i) keys[i].fill(values[i]);
    return keys;
  });
}

Cursor SomeCursor() {
  Cursor cursor;
  cursor.request_id = "req-0123456789abcdef0123456789abcdef";
  cursor.seed = uint64_t{1} << 52;
  cursor.reference_time = absl::FromUnixSeconds(1764333000);
  cursor.fingerprint = "00112233";
  cursor.num_events = 300;
  cursor.units.resize(3);
  cursor.units[0].amount.of[Amount::kIds] = 1000;
  cursor.units[0].amount.of[Amount::kPromptLogprobs] = 1;
  cursor.units[0].hash = 0xfedcba98;
  cursor.units[2].amount.of[Amount::kText] = 7;
  cursor.unit = 2;
  cursor.num_skipped = 3;
  cursor.slice.of[Amount::kArguments] = 5;
  return cursor;
}

std::string TextOf(CursorSigner& signer, const Cursor& cursor) {
  std::string text;
  signer.SetGeneration(cursor);
  signer.Sign(cursor, &text);
  return text;
}

TEST(CursorSignerTest, WhatIsSignedIsRead) {
  CursorSigner signer(CursorSecret({1}), "t", kBody);
  std::vector<Cursor> cursors = {Cursor(), SomeCursor(), SomeCursor(), SomeCursor()};
  cursors[0].reference_time = absl::FromUnixSeconds(0);
  cursors[2].request_id = "made by somebody else";
  cursors[2].fingerprint = "F";
  cursors[2].is_exact = false;
  cursors[2].seed.reset();
  cursors[3].request_id = "req-ABCDEF6789abcdef0123456789abcdef";  // digits of another kind
  cursors[3].at_end = cursors[3].is_last = true;
  for (const Cursor& cursor : cursors) {
    const absl::StatusOr<Cursor> read = signer.Read(TextOf(signer, cursor));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, cursor);
  }
}

TEST(CursorSignerTest, ACursorIsShortAndHasNoCharacterThatAnHttpHeaderLacks) {
  CursorSigner signer(CursorSecret({1}), "t", kBody);
  Cursor cursor = SomeCursor();
  cursor.units.resize(1);
  cursor.num_skipped = 0;
  cursor.seed.reset();
  const std::string text = TextOf(signer, cursor);
  EXPECT_LT(text.size(), 72u);
  EXPECT_EQ(
      text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
      std::string::npos);
}

TEST(CursorSignerTest, ACursorDoesNotDependOnWhatWasSignedBefore) {
  CursorSigner signer(CursorSecret({1}), "t", kBody);
  // Names of each length as to blocks of the cipher and groups of three bytes.
  for (size_t size = 0; size < 50; ++size) {
    Cursor cursor = SomeCursor();
    cursor.request_id = std::string(size, 'x');
    signer.SetGeneration(cursor);
    for (uint64_t num_events : {1, 127, 128, 100000}) {
      cursor.num_events = num_events;
      std::string text = "before";
      signer.Sign(cursor, &text);
      CursorSigner fresh(CursorSecret({1}), "t", kBody);
      EXPECT_EQ(text, "before" + TextOf(fresh, cursor)) << size;
      EXPECT_TRUE(fresh.Read(text.substr(6)).ok()) << size;
      std::string bytes;
      ASSERT_TRUE(absl::WebSafeBase64Unescape(text.substr(6), &bytes));
      EXPECT_EQ(absl::WebSafeBase64Escape(bytes), text.substr(6));
    }
  }
}

TEST(CursorSignerTest, EachChangedCharacterIsRefused) {
  CursorSigner signer(CursorSecret({1}), "t", kBody);
  const std::string text = TextOf(signer, SomeCursor());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'A', '7', '_', '=', ' '}) {
      std::string changed = text;
      if (changed[i] == c) continue;
      changed[i] = c;
      const absl::Status status = signer.Read(changed).status();
      EXPECT_FALSE(status.ok()) << i << c;
      EXPECT_NE(protocol::ReasonOf(status), "");
    }
    EXPECT_FALSE(signer.Read(text.substr(0, i)).ok());
  }
  EXPECT_FALSE(signer.Read(text + "A").ok());
  EXPECT_FALSE(signer.Read(std::string(100000, 'A')).ok());
}

TEST(CursorSignerTest, OthersCursorsAreRefused) {
  CursorSigner signer(CursorSecret({1}), "t", kBody);
  const std::string text = TextOf(signer, SomeCursor());
  const absl::Status of_tenant = CursorSigner(CursorSecret({1}), "u", kBody).Read(text).status();
  EXPECT_EQ(of_tenant.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::ReasonOf(of_tenant), protocol::kReasonInvalidCursor);
  const absl::Status of_fleet = CursorSigner(CursorSecret({2}), "t", kBody).Read(text).status();
  EXPECT_EQ(protocol::ReasonOf(of_fleet), protocol::kReasonInvalidCursor);
  const absl::Status of_request =
      CursorSigner(CursorSecret({1}), "t", kOtherBody).Read(text).status();
  EXPECT_EQ(of_request.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(protocol::ReasonOf(of_request), protocol::kReasonOtherRequest);
  // The whole digest counts, not its begin alone.
  std::string near = kBody;
  near.back() = 'c';
  EXPECT_EQ(protocol::ReasonOf(CursorSigner(CursorSecret({1}), "t", near).Read(text).status()),
            protocol::kReasonInvalidCursor);
}

TEST(CursorSignerTest, ACursorOutlivesAChangeOfTheSecret) {
  CursorSigner signer(CursorSecret({1}), "t", kBody);
  const std::string text = TextOf(signer, SomeCursor());
  EXPECT_TRUE(CursorSigner(CursorSecret({2, 1}), "t", kBody).Read(text).ok());
  EXPECT_FALSE(CursorSigner(CursorSecret({2, 3}), "t", kBody).Read(text).ok());
}

TEST(CursorSignerTest, ASeedThatFollowsFromTheIdOutlivesAChangeOfTheSecret) {
  Cursor cursor = SomeCursor();
  cursor.seed.reset();
  CursorSigner signer(CursorSecret({1}), "t", kBody);
  const uint64_t seed = signer.SeedOf(cursor.request_id);
  EXPECT_LT(seed, uint64_t{1} << 53);
  EXPECT_NE(seed, signer.SeedOf("another"));
  EXPECT_NE(seed, CursorSigner(CursorSecret({1}), "u", kBody).SeedOf(cursor.request_id));
  const std::string text = TextOf(signer, cursor);
  EXPECT_EQ(CursorSigner(CursorSecret({1, 2}), "t", kBody).Read(text)->seed, std::nullopt);
  // The signer has another seed of this id now, so the cursor tells.
  CursorSigner changed(CursorSecret({2, 1}), "t", kBody);
  EXPECT_NE(changed.SeedOf(cursor.request_id), seed);
  const absl::StatusOr<Cursor> read = changed.Read(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->seed, seed);
  EXPECT_EQ(changed.Read(TextOf(changed, *read))->seed, seed);
}

}  // namespace
}  // namespace continuo::gateway::openai
