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
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kKey[] = "correct-horse-battery";
// The digest of "abc…xyz", as sha256sum prints it.
constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz";
constexpr char kAlphabetHash[] = "71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73";

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
  EXPECT_EQ(ring->TenantOf(kKey), "alice");
  EXPECT_EQ(ring->TenantOf(absl::StrCat(kKey, "2")), "alice");
  EXPECT_EQ(ring->TenantOf(kAlphabet), "bob");
}

TEST(KeyRingTest, NothingButTheWholeKeyIsAKey) {
  const absl::StatusOr<KeyRing> ring =
      KeyRing::Parse(absl::StrCat("alice ", kKey, "\nbob sha256:", kAlphabetHash));
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(ring->TenantOf(""), std::nullopt);
  EXPECT_EQ(ring->TenantOf(std::string_view(kKey).substr(1)), std::nullopt);
  EXPECT_EQ(ring->TenantOf(absl::StrCat(kKey, " ")), std::nullopt);
  EXPECT_EQ(ring->TenantOf(kAlphabetHash), std::nullopt);
  EXPECT_EQ(ring->TenantOf(absl::StrCat("sha256:", kAlphabetHash)), std::nullopt);
}

TEST(KeyRingTest, EachOfManyKeysIsFound) {
  std::string text;
  for (int i = 0; i < 500; ++i) absl::StrAppend(&text, "tenant-", i, " key-of-somebody-", i, "\n");
  const absl::StatusOr<KeyRing> ring = KeyRing::Parse(text);
  ASSERT_TRUE(ring.ok());
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(ring->TenantOf(absl::StrCat("key-of-somebody-", i)), absl::StrCat("tenant-", i));
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
  EXPECT_EQ(*auth->Authenticate("", "alice"), "default");
  EXPECT_EQ(*auth->Authenticate("Bearer whatever", ""), "default");
}

TEST_F(AuthenticatorTest, ATrustedHeaderNamesTheTenant) {
  const auto auth = Open({.trust_tenant_header = true});
  EXPECT_EQ(*auth->Authenticate("", "alice"), "alice");
  EXPECT_EQ(*auth->Authenticate("", ""), "default");
  EXPECT_EQ(auth->Authenticate("", "\x01").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(auth->Authenticate("", std::string(129, 't')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(AuthenticatorTest, WithKeysTheTenantIsTheKeysWhateverTheHeaderSays) {
  const auto auth = Open({.keys_file = Write(absl::StrCat("alice ", kKey))});
  EXPECT_EQ(*auth->Authenticate(absl::StrCat("Bearer ", kKey), "bob"), "alice");
  EXPECT_EQ(*auth->Authenticate(absl::StrCat("bearer  ", kKey, " "), ""), "alice");
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

TEST_F(AuthenticatorTest, ANewFileCountsAtOnceAndABrokenOneDoesNot) {
  const std::string other = "another-key-of-bob";
  const auto auth = Open({.keys_file = Write(absl::StrCat("alice ", kKey))});
  auth->Reload();
  EXPECT_THAT(changes_, ElementsAre());

  Write(absl::StrCat("bob ", other, "\nalice ", kKey, "\n"));
  auth->Reload();
  EXPECT_EQ(*auth->Authenticate(absl::StrCat("Bearer ", other), ""), "bob");

  Write(absl::StrCat("bob ", other, "\nmallory"));
  auth->Reload();
  auth->Reload();  // told once
  EXPECT_EQ(*auth->Authenticate(absl::StrCat("Bearer ", kKey), ""), "alice");

  std::filesystem::remove(folder_ + "/keys");
  auth->Reload();
  EXPECT_EQ(*auth->Authenticate(absl::StrCat("Bearer ", kKey), ""), "alice");

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
  EXPECT_EQ(*(*auth)->Authenticate("Bearer another-key-of-bob", ""), "bob");
}

TEST_F(AuthenticatorTest, ReloadsAndCallsMayMeet) {
  const std::string one = absl::StrCat("alice ", kKey), two = absl::StrCat(one, "\n# again");
  const auto auth = Open({.keys_file = Write(one)});
  std::atomic<bool> stop = false;
  std::thread caller([&] {
    while (!stop) EXPECT_EQ(*auth->Authenticate(absl::StrCat("Bearer ", kKey), ""), "alice");
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
