// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/worker/fairness_check.h"

#include <gmock/gmock.h>

namespace continuo::simulate {
namespace {

TEST(FairnessCheckTest, ATenantThatWaitsMayLagByTheSlack) {
  FairnessCheck check(100);
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(check.OnStep({{"a", {10}}}, {"a", "b"}, {"a", "b"}).ok()) << i;
  const absl::Status status = check.OnStep({{"a", {1}}}, {"a", "b"}, {"a", "b"});
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("101 tokens ahead"));
}

TEST(FairnessCheckTest, EachOfTwoCountsAgainstTheOther) {
  FairnessCheck check(100);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(check.OnStep({{i % 2 == 0 ? "a" : "b", {90}}}, {"a", "b"}, {"a", "b"}).ok()) << i;
  }
  EXPECT_TRUE(absl::IsInternal(check.OnStep({{"b", {101}}}, {"a", "b"}, {"a", "b"})));
}

TEST(FairnessCheckTest, WhoDoesNotWaitStartsAnew) {
  FairnessCheck check(100);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(check.OnStep({{"a", {60}}}, {"a", "b"}, {"a", "b"}).ok()) << i;
    EXPECT_TRUE(check.OnStep({{"a", {60}}}, {"a"}, {"a"}).ok()) << i;
  }
}

TEST(FairnessCheckTest, WhoGotLessBeforeMayCatchUp) {
  FairnessCheck check(100);
  // Only "b" has more than runs.
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(check.OnStep({{"b", {50}}}, {"a", "b"}, {"b"}).ok());
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(check.OnStep({{"a", {50}}}, {"a", "b"}, {"a", "b"}).ok()) << i;
  }
  EXPECT_TRUE(absl::IsInternal(check.OnStep({{"a", {1}}}, {"a", "b"}, {"a", "b"})));
}

TEST(FairnessCheckTest, WhoIsAheadMustNotGetFurtherAhead) {
  FairnessCheck check(100);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(check.OnStep({{"b", {50}}}, {"a", "b"}, {"b"}).ok());
  EXPECT_TRUE(check.OnStep({{"b", {100}}}, {"a", "b"}, {"a", "b"}).ok());
  EXPECT_TRUE(absl::IsInternal(check.OnStep({{"b", {1}}}, {"a", "b"}, {"a", "b"})));
}

TEST(FairnessCheckTest, MigratedRequestsComeFirst) {
  for (const char* tenant : {"a", "b"}) {
    FairnessCheck check(100);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(
          check.OnStep({{tenant, {.all = 50, .migrated = 40}}}, {"a", "b"}, {"a", "b"}).ok())
          << tenant << " " << i;
    }
    EXPECT_TRUE(absl::IsInternal(check.OnStep({{tenant, {1}}}, {"a", "b"}, {"a", "b"}))) << tenant;
  }
}

}  // namespace
}  // namespace continuo::simulate
