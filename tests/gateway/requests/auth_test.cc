// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/auth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/civil_time.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kKey[] = "correct-horse-battery";

std::string TenantOf(const Authenticator& auth, std::string_view authorization,
                     std::string_view tenant_header) {
  const absl::StatusOr<Caller> caller = auth.Authenticate(authorization, tenant_header);
  return caller.ok() ? caller->tenant : caller.status().ToString();
}

class AuthenticatorTest : public ::testing::Test {
 protected:
  AuthenticatorTest() {}

  // Replaces the file, as an operator or Kubernetes does.
  std::string Write(const std::string& text) const {
    const std::string path = folder_ + "/keys";
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
    return path;
  }
  std::unique_ptr<Authenticator> Open(AuthOptions options) {
    options.on_change = [this](const absl::StatusOr<int>& outcome) {
      changes_.push_back(outcome.ok() ? absl::StrCat(*outcome)
                                      : std::string(outcome.status().message()));
    };
    options.poll_interval = absl::InfiniteDuration();  // Reload is called here
    auto result = Authenticator::Open(std::move(options));
    EXPECT_TRUE(result.ok()) << result.status();
    return *std::move(result);
  }

  const testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  std::vector<std::string> changes_;
};

TEST_F(AuthenticatorTest, WithoutKeysEverybodyIsTheDefaultTenant) {
  const auto auth = Open({});
  EXPECT_EQ(TenantOf(*auth, "", "alice"), "default");
  EXPECT_EQ(TenantOf(*auth, "Bearer whatever", ""), "default");
}

TEST_F(AuthenticatorTest, ATrustedHeaderNamesTheTenant) {
  const auto auth = Open({.trust_tenant_header = true});
  EXPECT_EQ(TenantOf(*auth, "", "alice"), "alice");
  EXPECT_EQ(TenantOf(*auth, "", ""), "default");
  EXPECT_EQ(auth->Authenticate("", "\x01").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(auth->Authenticate("", std::string(129, 't')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(AuthenticatorTest, WithKeysTheTenantIsTheKeysWhateverTheHeaderSays) {
  const auto auth = Open({.keys_file = Write(absl::StrCat("alice ", kKey))});
  EXPECT_EQ(TenantOf(*auth, absl::StrCat("Bearer ", kKey), "bob"), "alice");
  EXPECT_EQ(TenantOf(*auth, absl::StrCat("bearer  ", kKey, " "), ""), "alice");
}

TEST_F(AuthenticatorTest, WithoutAValidKeyNobodyComesIn) {
  const auto auth = Open({.keys_file = Write(absl::StrCat("alice ", kKey))});
  for (const std::string& authorization :
       {std::string(), std::string("Bearer"), std::string("Bearer "), std::string("Bearer x"),
        std::string(kKey), absl::StrCat("Basic ", kKey), absl::StrCat("Bearer ", kKey, "x"),
        absl::StrCat("Bearer ", kKey, " ", kKey), absl::StrCat("Bearer ", std::string(9000, 'k')),
        std::string("Bearer \x01\xff")}) {
    const absl::Status status = auth->Authenticate(authorization, "alice").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << authorization;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kKey)));
  }
}

TEST_F(AuthenticatorTest, AKeyIsValidUntilItExpires) {
  ManualClock clock(
      absl::FromCivil(absl::CivilSecond(2027, 1, 30, 23, 59, 59), absl::UTCTimeZone()));
  const auto auth = Open(
      {.keys_file = Write(absl::StrCat("alice ", kKey, " expires=2027-01-31\nalice ", kKey, "2")),
       .clock = &clock});
  const std::string bearer = absl::StrCat("Bearer ", kKey);
  const absl::StatusOr<Caller> caller = auth->Authenticate(bearer, "");
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->key->tenant, "alice");
  clock.Advance(absl::Seconds(1));
  const absl::Status expired = auth->Authenticate(bearer, "").status();
  EXPECT_EQ(expired.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(expired.message()), HasSubstr("has expired: 2027-01-31T00:00:00"));
  EXPECT_EQ(TenantOf(*auth, absl::StrCat(bearer, "2"), ""), "alice");
  // A later end in the file counts at once.
  Write(absl::StrCat("alice ", kKey, " expires=2027-01-31T00:00:01Z"));
  auth->Reload();
  EXPECT_EQ(TenantOf(*auth, bearer, ""), "alice");
}

TEST_F(AuthenticatorTest, ANewFileCountsAtOnceAndABrokenOneDoesNot) {
  const std::string other = "another-key-of-bob";
  const auto auth = Open({.keys_file = Write(absl::StrCat("alice ", kKey))});
  auth->Reload();
  EXPECT_THAT(changes_, ElementsAre());

  Write(absl::StrCat("bob ", other, "\nalice ", kKey, "\n"));
  auth->Reload();
  EXPECT_EQ(TenantOf(*auth, absl::StrCat("Bearer ", other), ""), "bob");

  Write(absl::StrCat("bob ", other, "\nmallory"));
  auth->Reload();
  auth->Reload();  // told once
  EXPECT_EQ(TenantOf(*auth, absl::StrCat("Bearer ", kKey), ""), "alice");

  std::filesystem::remove(folder_ + "/keys");
  auth->Reload();
  EXPECT_EQ(TenantOf(*auth, absl::StrCat("Bearer ", kKey), ""), "alice");

  Write(absl::StrCat("bob ", other));
  auth->Reload();
  EXPECT_EQ(auth->Authenticate(absl::StrCat("Bearer ", kKey), "").status().code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(changes_, ElementsAre("2", HasSubstr("line 2"), HasSubstr("is not a file"), "1"));
}

TEST_F(AuthenticatorTest, TheFileIsWatched) {
  absl::BlockingCounter changed(1);
  AuthOptions options = {.keys_file = Write(absl::StrCat("alice ", kKey)),
                         .poll_interval = absl::Milliseconds(1)};
  options.on_change = [&changed](const absl::StatusOr<int>&) { changed.DecrementCount(); };
  const auto auth = Authenticator::Open(options);
  ASSERT_TRUE(auth.ok());
  Write("bob another-key-of-bob");
  changed.Wait();
  EXPECT_EQ(TenantOf(**auth, "Bearer another-key-of-bob", ""), "bob");
}

TEST_F(AuthenticatorTest, ReloadsAndCallsMayMeet) {
  const std::string one = absl::StrCat("alice ", kKey), two = absl::StrCat(one, "\n# again");
  const auto auth = Open({.keys_file = Write(one)});
  std::atomic<bool> stop = false;
  std::thread caller([&] {
    while (!stop) EXPECT_EQ(TenantOf(*auth, absl::StrCat("Bearer ", kKey), ""), "alice");
  });
  for (int i = 0; i < 50; ++i) {
    Write(i % 2 == 0 ? two : one);
    auth->Reload();
  }
  stop = true;
  caller.join();
  EXPECT_EQ(changes_.size(), 50u);
}

TEST_F(AuthenticatorTest, WhatCannotWorkIsRefusedAtStartByAClearLine) {
  const auto refusal = [](AuthOptions options) {
    const auto result = Authenticator::Open(std::move(options));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  EXPECT_THAT(refusal({.keys_file = folder_ + "/none"}),
              AllOf(HasSubstr("--api_keys_file"), HasSubstr("/none\"")));
  EXPECT_THAT(refusal({.keys_file = folder_}), HasSubstr("is not a file"));
  EXPECT_THAT(refusal({.keys_file = Write("alice")}), HasSubstr("line 1"));
  EXPECT_THAT(refusal({.keys_file = Write("")}), HasSubstr("has no key"));
  EXPECT_THAT(refusal({.keys_file = Write(absl::StrCat("a ", kKey)), .trust_tenant_header = true}),
              HasSubstr("exclude each other"));
}

}  // namespace
}  // namespace continuo::gateway
