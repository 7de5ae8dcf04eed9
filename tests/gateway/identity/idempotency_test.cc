// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/identity/idempotency.h"

#include <gtest/gtest.h>

#include <set>

namespace continuo::gateway {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1764333000);  // 2025-11-28 12:30:00
const absl::Time kMidnight = absl::FromUnixSeconds(1764288000);

FleetSecret Secret(uint8_t value = 7) {
  FleetSecret::Key key;
  key.fill(value);
  return FleetSecret([key] { return std::vector<FleetSecret::Key>{key}; });
}

CallIdentity Of(std::string_view tenant, std::string_view key, absl::Time now = kNow) {
  const absl::StatusOr<CallIdentity> identity = IdentityOfKey(Secret(), tenant, key, now);
  EXPECT_TRUE(identity.ok()) << identity.status();
  return *identity;
}

TEST(IdempotencyTest, EachGatewayDerivesTheSameWheneverOnADay) {
  const CallIdentity first = Of("t", "key"), second = Of("t", "key", kNow + absl::Hours(11));
  EXPECT_EQ(first.request_id, second.request_id);
  EXPECT_EQ(first.seed, second.seed);
  EXPECT_EQ(first.reference_time, kMidnight);
  EXPECT_EQ(second.reference_time, kMidnight);
  EXPECT_TRUE(first.takes_over);
  EXPECT_EQ(Of("t", "key", kNow + absl::Hours(12)).reference_time, kMidnight + absl::Hours(24));
}

TEST(IdempotencyTest, KeysTenantsAndSecretsAreApart) {
  const CallIdentity other = *IdentityOfKey(Secret(8), "t", "key", kNow);
  std::set<std::string> ids;
  std::set<uint64_t> seeds;
  for (const CallIdentity& identity :
       {Of("t", "key"), Of("t", "key2"), Of("u", "key"), Of("tk", "ey"), other}) {
    ids.insert(identity.request_id);
    seeds.insert(identity.seed);
    EXPECT_LT(identity.seed, uint64_t{1} << 53);
    EXPECT_EQ(identity.request_id.size(), 36u);
    EXPECT_TRUE(identity.request_id.starts_with("req-"));
  }
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ(seeds.size(), 5u);
}

TEST(IdempotencyTest, AUuidOfVersion7BringsItsTime) {
  // 0x019aca55ec40 ms is 2025-11-28T12:00:20.
  const absl::Time own = absl::FromUnixSeconds(0x019aca55ec40 / 1000);
  for (const char* const key :
       {"019aca55-ec40-7abc-8def-0123456789ab", "019ACA55-EC40-7ABC-8DEF-0123456789AB"}) {
    EXPECT_EQ(Of("t", key).reference_time, own);
    EXPECT_EQ(Of("t", key, kNow + absl::Hours(100)).reference_time, own);
  }
  for (const char* const key :
       {"019aca55-ec40-4abc-8def-0123456789ab",   // another version
        "019aca55-ec40-7abc-8def-0123456789a",    // too short
        "019aca55-ec40-7abc-8def-0123456789abc",  // too long
        "019aca55xec40-7abc-8def-0123456789ab", "019aca5g-ec40-7abc-8def-0123456789ab",
        "00000000-0000-7abc-8def-0123456789ab",  // 1970
        "ffffffff-ffff-7abc-8def-0123456789ab"}) {
    EXPECT_EQ(Of("t", key).reference_time, kMidnight) << key;
  }
}

TEST(IdempotencyTest, AnIdIsKnownUnderEachKeyOfTheSecret) {
  FleetSecret::Key old_key, new_key;
  old_key.fill(7);
  new_key.fill(8);
  const FleetSecret both([&] { return std::vector<FleetSecret::Key>{new_key, old_key}; });
  const std::string old_id = Of("t", "key").request_id;
  EXPECT_TRUE(IsIdOfKey(Secret(), "t", "key", old_id));
  EXPECT_TRUE(IsIdOfKey(both, "t", "key", old_id));
  EXPECT_FALSE(IsIdOfKey(Secret(8), "t", "key", old_id));
  EXPECT_FALSE(IsIdOfKey(both, "t", "key2", old_id));
  EXPECT_FALSE(IsIdOfKey(both, "u", "key", old_id));
}

TEST(IdempotencyTest, AKeyHasABound) {
  EXPECT_EQ(IdentityOfKey(Secret(), "t", "", kNow).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(IdentityOfKey(Secret(), "t", std::string(255, 'k'), kNow).ok());
  EXPECT_EQ(IdentityOfKey(Secret(), "t", std::string(256, 'k'), kNow).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(IdempotencyTest, PromptsHaveSeedsOfTheirOwn) {
  const CallIdentity identity = Of("t", "key");
  EXPECT_EQ(SeedOfPrompt(identity, 0), identity.seed);
  std::set<uint64_t> seeds;
  for (size_t i = 0; i < 128; ++i) {
    seeds.insert(SeedOfPrompt(identity, i));
    EXPECT_LT(SeedOfPrompt(identity, i), uint64_t{1} << 53);
  }
  EXPECT_EQ(seeds.size(), 128u);
}

}  // namespace
}  // namespace continuo::gateway
