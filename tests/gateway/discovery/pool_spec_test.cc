// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/pool_spec.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace continuo::gateway {
namespace {

TEST(ParsePoolsTest, ATargetAloneIsOnePool) {
  for (const std::string target : {"a:1,b:2", "dns:///workers.default.svc:50051"}) {
    const auto pools = ParsePools(target);
    ASSERT_TRUE(pools.ok()) << pools.status();
    ASSERT_EQ(pools->size(), 1);
    EXPECT_EQ(pools->front().target, target);
    EXPECT_EQ(pools->front().weight, 1);
  }
}

TEST(ParsePoolsTest, EachPoolHasItsWeight) {
  const auto pools = ParsePools("dns:///stable:50051@95;a:1,b:1@4.5;c:1@0");
  ASSERT_TRUE(pools.ok()) << pools.status();
  ASSERT_EQ(pools->size(), 3);
  EXPECT_EQ((*pools)[0].target, "dns:///stable:50051");
  EXPECT_EQ((*pools)[0].weight, 95);
  EXPECT_EQ((*pools)[1].target, "a:1,b:1");
  EXPECT_EQ((*pools)[1].weight, 4.5);
  EXPECT_EQ((*pools)[2].weight, 0);
}

TEST(ParsePoolsTest, APoolHasANameOrItsNumber) {
  const auto pools = ParsePools("stable=dns:///a:1@95;b:1,c:1;c-1.x_y=d:1");
  ASSERT_TRUE(pools.ok()) << pools.status();
  EXPECT_EQ((*pools)[0].name, "stable");
  EXPECT_EQ((*pools)[0].target, "dns:///a:1");
  EXPECT_EQ((*pools)[0].weight, 95);
  EXPECT_EQ((*pools)[1].name, "1");
  EXPECT_EQ((*pools)[1].target, "b:1,c:1");
  EXPECT_EQ((*pools)[2].name, "c-1.x_y");
  EXPECT_EQ((*pools)[2].target, "d:1");
  // Other text before it is a part of the target.
  EXPECT_EQ(ParsePools("a b=c:1")->front().target, "a b=c:1");
  EXPECT_EQ(ParsePools("=c:1")->front().target, "=c:1");
}

TEST(ParsePoolsTest, WhatIsNoPoolIsNamed) {
  for (const std::string text :
       {"a:1@", "a:1@x", "a:1@-1", "a:1@nan", "a:1@inf", "a:1@2000000", "a:1;", ";a:1", "@5",
        "a:1@5;;b:1@5", "x=a:1;x=b:1", "1=a:1;b:1", "x=", "x=@5"}) {
    const absl::Status status = ParsePools(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_NE(status.message().find("--workers"), std::string::npos) << status;
  }
  std::string many = "a:1";
  for (int i = 0; i < 16; ++i) absl::StrAppend(&many, ";a:1");
  EXPECT_FALSE(ParsePools(many).ok());
}

}  // namespace
}  // namespace continuo::gateway
