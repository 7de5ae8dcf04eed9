// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/key_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"

namespace continuo::gateway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kKey[] = "correct-horse-battery";
// The digest of "abc…xyz", as sha256sum prints it.
constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz";
constexpr char kAlphabetHash[] = "71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73";

std::string TenantOf(const KeyRing& ring, std::string_view key) {
  const auto grant = ring.Find(key);
  return grant == nullptr ? "" : grant->tenant;
}

// Returns what a key with these options allows.
KeyGrant GrantOf(const std::string& options) {
  const absl::StatusOr<KeyRing> ring =
      KeyRing::Parse(absl::StrCat("alice sha256:", kAlphabetHash, " ", options));
  EXPECT_TRUE(ring.ok()) << ring.status();
  return ring.ok() ? *ring->Find(kAlphabet) : KeyGrant();
}

absl::Time Utc(int year, int month, int day, int hour = 0) {
  return absl::FromCivil(absl::CivilSecond(year, month, day, hour), absl::UTCTimeZone());
}

std::string Refusal(std::string_view text) {
  const absl::StatusOr<KeyRing> ring = KeyRing::Parse(text);
  EXPECT_EQ(ring.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(ring.status().message());
}

TEST(KeyRingTest, AKeyHasTheTenantOfItsLine) {
  const absl::StatusOr<KeyRing> ring = KeyRing::Parse(absl::StrCat(
      "# keys\r\n\n  alice\t ", kKey, "\r\nbob sha256:", kAlphabetHash, "\nalice ", kKey, "2"));
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(ring->num_keys(), 3);
  EXPECT_EQ(TenantOf(*ring, kKey), "alice");
  EXPECT_EQ(TenantOf(*ring, absl::StrCat(kKey, "2")), "alice");
  EXPECT_EQ(TenantOf(*ring, kAlphabet), "bob");
}

TEST(KeyRingTest, NothingButTheWholeKeyIsAKey) {
  const absl::StatusOr<KeyRing> ring =
      KeyRing::Parse(absl::StrCat("alice ", kKey, "\nbob sha256:", kAlphabetHash));
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(TenantOf(*ring, ""), "");
  EXPECT_EQ(TenantOf(*ring, std::string_view(kKey).substr(1)), "");
  EXPECT_EQ(TenantOf(*ring, absl::StrCat(kKey, " ")), "");
  EXPECT_EQ(TenantOf(*ring, kAlphabetHash), "");
  EXPECT_EQ(TenantOf(*ring, absl::StrCat("sha256:", kAlphabetHash)), "");
}

TEST(KeyRingTest, EachOfManyKeysIsFound) {
  std::string text;
  for (int i = 0; i < 500; ++i) absl::StrAppend(&text, "tenant-", i, " key-of-somebody-", i, "\n");
  const absl::StatusOr<KeyRing> ring = KeyRing::Parse(text);
  ASSERT_TRUE(ring.ok());
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(TenantOf(*ring, absl::StrCat("key-of-somebody-", i)), absl::StrCat("tenant-", i));
  }
}

TEST(KeyRingTest, ABadLineIsNamedWithoutItsKey) {
  EXPECT_THAT(Refusal(absl::StrCat("alice ", kKey, "\nbob ")), HasSubstr("line 2"));
  EXPECT_THAT(Refusal(absl::StrCat("alice ", kKey, " ", kKey)),
              AllOf(HasSubstr("line 1"), Not(HasSubstr(kKey))));
  EXPECT_THAT(Refusal("alice too-short"), HasSubstr("16 to 512"));
  EXPECT_THAT(Refusal(absl::StrCat("alice ", std::string(513, 'k'))), HasSubstr("16 to 512"));
  EXPECT_THAT(Refusal("alice kkkkkkkkkkkkkkkk\xc3\xa9"), HasSubstr("printable"));
  EXPECT_THAT(Refusal(absl::StrCat(std::string(129, 't'), " ", kKey)), HasSubstr("1 to 128"));
  EXPECT_THAT(Refusal("alice sha256:abcd"), HasSubstr("64 hexadecimal"));
  EXPECT_THAT(Refusal(absl::StrCat("alice sha256:", std::string(64, 'g'))),
              HasSubstr("64 hexadecimal"));
  EXPECT_THAT(Refusal(absl::StrCat("alice ", kKey, "\n\nbob ", kKey)),
              AllOf(HasSubstr("line 3"), HasSubstr("another tenant's"), Not(HasSubstr(kKey))));
  EXPECT_THAT(Refusal("# nobody\n"), HasSubstr("has no key"));
}

TEST(KeyRingTest, WithoutOptionsAKeyAllowsEverything) {
  const KeyGrant grant = GrantOf("");
  EXPECT_EQ(grant.expires, absl::InfiniteFuture());
  EXPECT_EQ(grant.limits, KeyLimits());
  EXPECT_THAT(grant.models, IsEmpty());
  EXPECT_TRUE(grant.MayUse("any") && grant.MayUse(""));
  EXPECT_EQ(grant.id(), "71c480df");
}

TEST(KeyRingTest, OptionsAreRead) {
  const KeyGrant grant = GrantOf(
      "models=a,org/b expires=2027-01-31T12:00:00Z  tokens_per_minute=1000000000000 "
      "requests_per_minute=1\tconcurrent_requests=8\r");
  EXPECT_EQ(grant.expires, Utc(2027, 1, 31, 12));
  EXPECT_EQ(grant.limits, (KeyLimits{.requests_per_minute = 1,
                                     .tokens_per_minute = 1'000'000'000'000,
                                     .concurrent_requests = 8}));
  EXPECT_THAT(grant.models, ElementsAre("a", "org/b"));
  EXPECT_TRUE(grant.MayUse("org/b"));
  EXPECT_FALSE(grant.MayUse("org") || grant.MayUse("A") || grant.MayUse(""));
  EXPECT_FALSE(grant.is_admin);
  EXPECT_TRUE(GrantOf("admin=true").is_admin);
  EXPECT_EQ(GrantOf("expires=2028-02-29").expires, Utc(2028, 2, 29));
}

TEST(KeyRingTest, ABadOptionIsRefusedWithoutItsWords) {
  const auto refusal = [](std::string_view option) {
    return Refusal(absl::StrCat("alice ", kKey, " ", std::string(option)));
  };
  for (const char* date :
       {"", "2027", "2027-1-31", "2027-02-30", "2027-13-01", "2027-01-31T12:00:00",
        "2027-01-31T25:00:00Z", "2027-01-31T12:00:00+01:00", "infinite-future", "tomorrow",
        "+027-01-31", "2027-01-31t12:00:00Z", "20270131", "2027-01-31x"}) {
    EXPECT_THAT(refusal(absl::StrCat("expires=", date)),
                AllOf(HasSubstr("line 1"), HasSubstr("expires="), HasSubstr("2027-01-31")))
        << date;
  }
  for (const char* number : {"", "0", "-1", "+1", "1.5", "1e3", "0x10", "1000000000001",
                             "99999999999999999999", "many"}) {
    for (const char* name : {"requests_per_minute", "tokens_per_minute", "concurrent_requests"}) {
      EXPECT_THAT(refusal(absl::StrCat(name, "=", number)),
                  AllOf(HasSubstr(name), HasSubstr("an integer from 1 to")))
          << number;
    }
  }
  std::string many = "models=m";
  for (int i = 0; i < 64; ++i) absl::StrAppend(&many, ",m", i);
  for (const std::string& models :
       {std::string("models="), std::string("models=,"), std::string("models=a,"),
        std::string("models=,a"), std::string("models=a,,b"), std::string("models=\xc3\xa9"),
        absl::StrCat("models=", std::string(257, 'm')), many}) {
    EXPECT_THAT(refusal(models), HasSubstr("models= must be followed by up to 64 names"));
  }
  for (const char* admin : {"admin=", "admin=false", "admin=1", "admin=True"}) {
    EXPECT_THAT(refusal(admin), HasSubstr("admin= must be followed by true"));
  }
  EXPECT_THAT(refusal("secret-option=1"),
              AllOf(HasSubstr("an option must be expires,"), Not(HasSubstr("secret"))));
  EXPECT_THAT(refusal("=1"), HasSubstr("an option must be"));
  EXPECT_THAT(refusal("Expires=2027-01-31"), HasSubstr("an option must be"));
  EXPECT_THAT(refusal("models=a models=b"), HasSubstr("an option is given twice"));
  EXPECT_THAT(refusal("expires=2027-01-31 expires=2027-01-31"), HasSubstr("given twice"));
}

TEST(KeyRingTest, AKeyThatStandsTwiceHasOneSetOfOptions) {
  const std::string line = absl::StrCat("alice ", kKey, " concurrent_requests=2");
  EXPECT_TRUE(KeyRing::Parse(absl::StrCat(line, "\n", line)).ok());
  EXPECT_THAT(Refusal(absl::StrCat(line, "\nalice ", kKey)),
              AllOf(HasSubstr("line 2"), HasSubstr("other options")));
}

}  // namespace
}  // namespace continuo::gateway
