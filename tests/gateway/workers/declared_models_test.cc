// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/declared_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(DeclaredModelsTest, AreModelsAndAdaptersOfThem) {
  const auto declared =
      ParseDeclaredModels({"poet=org/m:8b", "org/m:8b", "a", "poet=org/m:8b", "clerk=a"});
  ASSERT_TRUE(declared.ok()) << declared.status();
  EXPECT_THAT(declared->models, ElementsAre("a", "org/m:8b"));
  EXPECT_THAT(declared->adapters, ElementsAre(Pair("clerk", "a"), Pair("poet", "org/m:8b")));
  EXPECT_TRUE(ParseDeclaredModels({}).ok());
}

TEST(DeclaredModelsTest, WhatIsWrongIsNamed) {
  const auto error = [](const std::vector<std::string>& names) {
    const absl::Status status = ParseDeclaredModels(names).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--models"));
    return std::string(status.message());
  };
  const std::string longest(256, 'm');
  EXPECT_TRUE(ParseDeclaredModels({longest, "a=" + longest}).ok());
  EXPECT_THAT(error({longest + "m"}), HasSubstr("257 bytes"));
  EXPECT_THAT(error({"a=" + longest + "m"}), HasSubstr("257 bytes"));
  EXPECT_THAT(error({"=m", "m"}), HasSubstr("\"=m\""));
  EXPECT_THAT(error({"m", "poet="}), HasSubstr("ADAPTER=MODEL"));
  EXPECT_THAT(error({"poet=m"}), HasSubstr("\"m\""));
  EXPECT_THAT(error({"m", "poet", "poet=m"}), HasSubstr("a model and an adapter"));
  EXPECT_THAT(error({"m", "n", "poet=m", "poet=n"}), HasSubstr("\"n\""));
  std::vector<std::string> many(65, "m");
  EXPECT_THAT(error(many), HasSubstr("the limit is 64"));
  many = {"m"};
  for (int i = 0; i < 4096; ++i) many.push_back(absl::StrCat(i, "=m"));
  EXPECT_TRUE(ParseDeclaredModels(many).ok());
  many.push_back("more=m");
  EXPECT_THAT(error(many), HasSubstr("the limit is 4096"));
}

}  // namespace
}  // namespace continuo::gateway
