// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_reference.h"

#include <gmock/gmock.h>

#include <string>

namespace continuo::hub {
namespace {

using ::testing::HasSubstr;

TEST(HubReferenceTest, PartsAreFound) {
  const HubReference whole = *ParseHubReference("hf://org/name");
  EXPECT_EQ(whole.repository, "org/name");
  EXPECT_EQ(whole.revision, "main");
  EXPECT_EQ(whole.file, "");
  const HubReference all = *ParseHubReference("hf://My-org/na.me_2@refs/pr/1:q/Model-Q4_K_M.gguf");
  EXPECT_EQ(all.repository, "My-org/na.me_2");
  EXPECT_EQ(all.revision, "refs/pr/1");
  EXPECT_EQ(all.file, "q/Model-Q4_K_M.gguf");
  EXPECT_EQ(ParseHubReference("hf://a/b:Q4_0")->revision, "main");
}

TEST(HubReferenceTest, NothingLeadsOutOfAFolder) {
  for (const char* bad : {"hf://",
                          "hf://a",
                          "hf:///b",
                          "hf://a/",
                          "hf://a/b/c",
                          "hf://../b",
                          "hf://a/..",
                          "hf://a/.b",
                          "hf://a/b--c",
                          "hf://a/b@",
                          "hf://a/b@../c",
                          "hf://a/b@/c",
                          "hf://a/b@c//d",
                          "hf://a/b:",
                          "hf://a/b:../x",
                          "hf://a/b:/etc/passwd",
                          "hf://a/b:c/./d",
                          "hf://a/b:c\\d",
                          "hf://a b/c",
                          "hf://a/b?c",
                          "hf://a/b#c",
                          "hf://a/b@c\nd",
                          "hf://a%2f/b",
                          "/a/b",
                          "a/b"}) {
    const auto parsed = ParseHubReference(bad);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("hf://org/name")) << bad;
  }
  EXPECT_FALSE(ParseHubReference("hf://" + std::string(97, 'a') + "/b").ok());
  EXPECT_FALSE(IsPlainPath(std::string(256, 'a')));
  EXPECT_FALSE(IsPlainPath(std::string(2000, 'a')));
}

TEST(HubReferenceTest, DigitsAreCounted) {
  EXPECT_TRUE(IsHexDigits("0af9", 4));
  EXPECT_FALSE(IsHexDigits("0af9", 5));
  EXPECT_FALSE(IsHexDigits("0AF9", 4));
  EXPECT_FALSE(IsHexDigits("../x", 4));
}

}  // namespace
}  // namespace continuo::hub
