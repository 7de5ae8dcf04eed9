// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/key_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

using ::testing::HasSubstr;
using Claim = KeyLimiter::Claim;
using Key = std::shared_ptr<const KeyGrant>;

Key MakeKey(const std::string& options, const std::string& key = "a-key-of-alice-01") {
  const absl::StatusOr<KeyRing> ring = KeyRing::Parse(absl::StrCat("alice ", key, " ", options));
  EXPECT_TRUE(ring.ok()) << ring.status();
  return ring->Find(key);
}

class KeyLimiterTest : public ::testing::Test {
 protected:
  absl::StatusOr<Claim> Take(const Key& key, int64_t tokens = 1, bool is_continuation = false) {
    return limiter_.Take(key, tokens, is_continuation);
  }
  // Takes a place and gives it back; the request counts.
  absl::Status Run(const Key& key, int64_t tokens = 1, bool is_continuation = false) {
    return Take(key, tokens, is_continuation).status();
  }
  void ExpectLimit(const absl::Status& status, const char* message, absl::Duration retry) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonRateLimited);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    const auto told = protocol::RetryDelayOf(status);
    ASSERT_TRUE(told.has_value());
    EXPECT_NEAR(absl::ToDoubleSeconds(*told), absl::ToDoubleSeconds(retry), 1e-3);
  }

  ManualClock clock_;
  KeyLimiter limiter_{&clock_};
};

TEST_F(KeyLimiterTest, WithoutLimitsNothingIsCounted) {
  const Key key = MakeKey("");
  std::vector<Claim> claims;
  for (int i = 0; i < 1000; ++i) {
    claims.push_back(*Take(key, 1 << 20));
    claims.push_back(*Take(nullptr, 1 << 20));
  }
  EXPECT_EQ(claims[0].key(), key.get());
  EXPECT_EQ(claims[1].key(), nullptr);
  EXPECT_EQ(limiter_.num_keys(), 0u);
}

TEST_F(KeyLimiterTest, AMinutesRequestsMayComeAtOnceAndThenAtTheirRate) {
  const Key key = MakeKey("requests_per_minute=6");
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Run(key).ok()) << i;
  ExpectLimit(Run(key), "the key has its limit of 6 requests a minute", absl::Seconds(10));
  clock_.Advance(absl::Seconds(4));
  ExpectLimit(Run(key), "requests a minute", absl::Seconds(6));
  clock_.Advance(absl::Seconds(6.001));
  EXPECT_TRUE(Run(key).ok());
  EXPECT_FALSE(Run(key).ok());
  // A long pause saves up one minute's.
  clock_.Advance(absl::Hours(5));
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Run(key).ok()) << i;
  EXPECT_FALSE(Run(key).ok());
  EXPECT_EQ(limiter_.num_rejected(KeyLimit::kRequests), 4);
  EXPECT_EQ(limiter_.num_rejected(KeyLimit::kTokens), 0);
}

TEST_F(KeyLimiterTest, TokensAreThoseOfThePromptAndThenOfTheAnswerToo) {
  const Key key = MakeKey("tokens_per_minute=600");
  {
    Claim claim = *Take(key, 100);
    claim.Settle(1200);  // 600 more than there are.
  }
  ExpectLimit(Run(key), "the key has its limit of 600 tokens a minute", absl::Seconds(60.1));
  clock_.Advance(absl::Seconds(60.2));
  {
    // A prompt may take more than is left; an answer that did not come gives it back.
    Claim claim = *Take(key, 1 << 20);
    EXPECT_FALSE(Run(key).ok());
    claim.Settle(0);
  }
  EXPECT_TRUE(Run(key).ok());
  EXPECT_EQ(limiter_.num_rejected(KeyLimit::kTokens), 2);
}

TEST_F(KeyLimiterTest, ConcurrentRequestsEndOneByOne) {
  const Key key = MakeKey("concurrent_requests=2");
  std::vector<Claim> claims;
  claims.push_back(*Take(key));
  claims.push_back(*Take(key));
  ExpectLimit(Run(key), "the key has its limit of 2 concurrent requests", absl::Seconds(1));
  clock_.Advance(absl::Hours(1));
  EXPECT_FALSE(Run(key).ok());
  Claim moved = std::move(claims.back());
  claims.pop_back();
  EXPECT_FALSE(Run(key).ok());
  moved = Claim();
  EXPECT_TRUE(Run(key).ok());
  EXPECT_EQ(limiter_.num_rejected(KeyLimit::kConcurrency), 3);
}

TEST_F(KeyLimiterTest, ARequestThatIsRejectedElsewhereDoesNotCount) {
  const Key key = MakeKey("requests_per_minute=1 tokens_per_minute=10 concurrent_requests=1");
  for (int i = 0; i < 10; ++i) {
    absl::StatusOr<Claim> claim = Take(key, 10);
    ASSERT_TRUE(claim.ok()) << claim.status();
    claim->Refund();
    claim->Settle(1000);  // It is over.
  }
  EXPECT_TRUE(Run(key, 10).ok());
  EXPECT_FALSE(Run(key, 10).ok());
}

TEST_F(KeyLimiterTest, AContinuationGoesOnWithinBounds) {
  const Key key = MakeKey("requests_per_minute=1 concurrent_requests=2");
  ASSERT_TRUE(Run(key).ok());
  EXPECT_FALSE(Run(key).ok());
  int num_taken = 0;
  while (num_taken < 100 && Run(key, 1, /*is_continuation=*/true).ok()) ++num_taken;
  EXPECT_EQ(num_taken, 10);  // Ten minutes' worth.
  // Its debt is paid off before anything new comes in.
  clock_.Advance(absl::Minutes(10));
  EXPECT_FALSE(Run(key).ok());
  clock_.Advance(absl::Minutes(1.001));
  EXPECT_TRUE(Run(key).ok());
  clock_.Advance(absl::Hours(1));
  std::vector<Claim> claims;
  while (claims.size() < 100) {
    absl::StatusOr<Claim> claim = Take(key, 1, /*is_continuation=*/true);
    if (!claim.ok()) break;
    claims.push_back(*std::move(claim));
  }
  EXPECT_EQ(claims.size(), 4u);
}

TEST_F(KeyLimiterTest, KeysDoNotShareTheirLimits) {
  const Key one = MakeKey("requests_per_minute=1"),
            two = MakeKey("requests_per_minute=1", "b-key-of-alice-01");
  EXPECT_TRUE(Run(one).ok());
  EXPECT_TRUE(Run(two).ok());
  EXPECT_FALSE(Run(one).ok());
}

TEST_F(KeyLimiterTest, NewLimitsOfAKeyHoldAtOnceAndForgiveNothing) {
  const Key key = MakeKey("requests_per_minute=10");
  Claim open = *Take(key);
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(Run(key).ok()) << i;
  const Key more = MakeKey("requests_per_minute=60");
  EXPECT_FALSE(Run(more).ok());
  clock_.Advance(absl::Seconds(1.001));
  EXPECT_TRUE(Run(more).ok());
  EXPECT_FALSE(Run(more).ok());
  // A request of before ends: the new limits stay.
  open = Claim();
  EXPECT_FALSE(Run(more).ok());
  // Fewer than what was saved up.
  clock_.Advance(absl::Hours(1));
  const Key fewer = MakeKey("requests_per_minute=2");
  EXPECT_TRUE(Run(fewer).ok());
  EXPECT_TRUE(Run(fewer).ok());
  EXPECT_FALSE(Run(fewer).ok());
}

TEST_F(KeyLimiterTest, AKeyIsRememberedWhileItIsUsed) {
  std::vector<Claim> open;
  for (int i = 0; i < 10'000; ++i) {
    absl::StatusOr<Claim> claim = Take(MakeKey("requests_per_minute=1 concurrent_requests=1",
                                               absl::StrCat("key-of-somebody-", i)));
    ASSERT_TRUE(claim.ok());
    if (i % 1000 == 0) open.push_back(*std::move(claim));
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_GE(limiter_.num_keys(), 10u);
  EXPECT_LT(limiter_.num_keys(), 400u);
  const absl::Status taken =
      Run(MakeKey("requests_per_minute=1 concurrent_requests=1", "key-of-somebody-0"));
  EXPECT_THAT(std::string(taken.message()), HasSubstr("concurrent"));
}

TEST_F(KeyLimiterTest, AModelIsOneOfTheKeys) {
  const Key key = MakeKey("models=a,org/b");
  EXPECT_TRUE(limiter_.CheckModel(nullptr, "x").ok());
  EXPECT_TRUE(limiter_.CheckModel(MakeKey("").get(), "").ok());
  EXPECT_TRUE(limiter_.CheckModel(key.get(), "org/b").ok());
  const absl::Status other = limiter_.CheckModel(key.get(), "c\n");
  EXPECT_EQ(other.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(protocol::ReasonOf(other), protocol::kReasonModelNotAllowed);
  EXPECT_THAT(std::string(other.message()), HasSubstr("the model \"c\\n\""));
  const absl::Status none = limiter_.CheckModel(key.get(), "");
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::FieldOf(none), "model");
  EXPECT_THAT(std::string(none.message()), HasSubstr("the key is for a, org/b"));
  EXPECT_EQ(limiter_.num_rejected(KeyLimit::kModels), 1);
}

}  // namespace
}  // namespace continuo::gateway
