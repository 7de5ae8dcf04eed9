// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cursor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace continuo::gateway::openai {
namespace {

Cursor BetweenTwoEvents() {
  Cursor cursor;
  cursor.request_id = "req-0123456789abcdef0123456789abcdef";
  cursor.seed = std::numeric_limits<uint64_t>::max();
  cursor.reference_time = absl::FromUnixSeconds(-1);
  cursor.fingerprint = ShortFingerprint("00112233445566778899aabbccddeeff");
  cursor.num_events = 3;
  cursor.units.resize(2);
  cursor.units[1].amount.of[Amount::kPromptLogprobs] = 300;
  cursor.units[1].hash = 0xfedcba98;
  cursor.unit = 1;
  cursor.num_skipped = 2;
  cursor.slice.of[Amount::kText] = 5;
  return cursor;
}

TEST(CursorTest, BytesAreReadBack) {
  Cursor other = BetweenTwoEvents();
  other.request_id = "of a client";
  other.fingerprint = "";
  other.seed.reset();
  other.is_exact = false;
  other.at_end = other.is_last = true;
  other.num_skipped = 0;
  other.unit = 0;
  other.slice = {};
  for (const Cursor& cursor : {BetweenTwoEvents(), other}) {
    EXPECT_EQ(ReadCursorBytes(CursorBytes(cursor)), cursor);
  }
}

TEST(CursorTest, AFingerprintIsShortenedWhereWorkersMakeItSo) {
  EXPECT_EQ(ShortFingerprint("00112233445566778899aabbccddeeff"), "00112233");
  for (const char* other : {"", "F", "00112233", "00112233445566778899AABBCCDDEEFF",
                            "00112233445566778899aabbccddeeff0"}) {
    EXPECT_EQ(ShortFingerprint(other), other);
  }
}

TEST(CursorTest, BytesThatAreCutOrFollowedAreNoCursor) {
  const std::string bytes = CursorBytes(BetweenTwoEvents());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ReadCursorBytes(bytes.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(ReadCursorBytes(bytes + '\0').has_value());
}

TEST(CursorTest, AnAbsurdNumberOfUnitsIsNoCursor) {
  Cursor cursor = BetweenTwoEvents();
  cursor.units.assign(4097, {});
  EXPECT_FALSE(ReadCursorBytes(CursorBytes(cursor)).has_value());
  cursor.units.resize(4096);
  EXPECT_TRUE(ReadCursorBytes(CursorBytes(cursor)).has_value());
}

}  // namespace
}  // namespace continuo::gateway::openai
