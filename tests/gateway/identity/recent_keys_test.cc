// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/identity/recent_keys.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

CallIdentity WithBody(const std::string& body, int64_t seconds = 1) {
  return {.request_id = "id", .reference_time = absl::FromUnixSeconds(seconds), .body = body};
}

TEST(RecentKeysTest, TheFirstBodyAndTimeHold) {
  RecentKeys keys;
  EXPECT_FALSE(keys.Find("t", "id").has_value());
  ASSERT_TRUE(keys.Bind("t", "id", WithBody("one", 1)).ok());
  EXPECT_TRUE(keys.Bind("t", "id", WithBody("one", 2)).ok());
  EXPECT_EQ(keys.Find("t", "id")->reference_time, absl::FromUnixSeconds(1));
  const absl::Status other = keys.Bind("t", "id", WithBody("two"));
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(protocol::ReasonOf(other), protocol::kReasonKeyReused);
  EXPECT_TRUE(keys.Bind("u", "id", WithBody("two")).ok()) << "another tenant's";
}

TEST(RecentKeysTest, TheLatestFingerprintIsKnown) {
  RecentKeys keys;
  keys.OnAnswered("t", "id", "F");
  EXPECT_FALSE(keys.Find("t", "id").has_value());
  ASSERT_TRUE(keys.Bind("t", "id", WithBody("one")).ok());
  EXPECT_EQ(keys.Find("t", "id")->fingerprint, "");
  keys.OnAnswered("t", "id", "F");
  keys.OnAnswered("t", "id", "");
  EXPECT_EQ(keys.Find("t", "id")->fingerprint, "F");
}

TEST(RecentKeysTest, TheOldestAreForgotten) {
  RecentKeys keys(/*max_entries=*/3);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(keys.Bind("t", absl::StrCat(i), WithBody("one")).ok());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(keys.Find("t", absl::StrCat(i)).has_value(), i >= 2);
}

}  // namespace
}  // namespace continuo::gateway
