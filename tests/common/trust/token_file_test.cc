// SPDX-License-Identifier: Apache-2.0
#include "services/common/trust/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_folder.h"

namespace continuo::common {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "token-of-the-fleet-1";
constexpr char kOther[] = "token-of-the-fleet-2";

std::string Refusal(std::string_view text) {
  const absl::StatusOr<Tokens> tokens = Tokens::Parse(text);
  EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(tokens.status().message());
}

TEST(TokensTest, TheFirstIsSentAndEachIsTaken) {
  const absl::StatusOr<Tokens> tokens =
      Tokens::Parse(absl::StrCat("# ours\r\n\n ", kToken, "\t\r\n", kOther));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->first(), kToken);
  EXPECT_TRUE(tokens->Contain(kToken));
  EXPECT_TRUE(tokens->Contain(kOther));
}

TEST(TokensTest, NothingButAWholeTokenIsTaken) {
  const absl::StatusOr<Tokens> tokens = Tokens::Parse(kToken);
  ASSERT_TRUE(tokens.ok());
  const std::string token = kToken;
  for (const std::string& wrong :
       {std::string(), token.substr(1), token.substr(0, 19), token + " ", token + token,
        token + std::string(1, '\0'), std::string("# ours"), std::string(1 << 20, 'a')}) {
    EXPECT_FALSE(tokens->Contain(wrong)) << wrong.size();
  }
}

TEST(TokensTest, ABadLineIsNamedWithoutItsToken) {
  EXPECT_THAT(Refusal(""), HasSubstr("has no token"));
  EXPECT_THAT(Refusal("# nothing\n\n"), HasSubstr("has no token"));
  EXPECT_THAT(Refusal(absl::StrCat(kToken, "\nshort")),
              AllOf(HasSubstr("line 2"), HasSubstr("16 to 512"), Not(HasSubstr("short"))));
  EXPECT_THAT(Refusal(absl::StrCat(kToken, " ", kOther)),
              AllOf(HasSubstr("line 1"), Not(HasSubstr(kToken))));
  EXPECT_THAT(Refusal(std::string(513, 't')), HasSubstr("16 to 512"));
  EXPECT_THAT(Refusal(absl::StrCat(kToken, std::string(1, '\0'))), HasSubstr("printable"));
  EXPECT_THAT(Refusal(absl::StrCat(kToken, "\xc3\xa9")), HasSubstr("printable"));
  std::string many;
  for (int i = 0; i < 17; ++i) absl::StrAppend(&many, kToken, "\n");
  EXPECT_THAT(Refusal(many), HasSubstr("line 17: there are more than 16"));
}

TEST(TokenFileTest, AChangeCountsAndABrokenFileDoesNot) {
  const testing::TempFolder temp;
  const std::string path = absl::StrCat(temp.path().string(), "/token");
  const auto write = [&](const std::string& text) {
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
  };
  EXPECT_THAT(std::string(TokenFile::Open(path).status().message()),
              AllOf(HasSubstr("--token_file"), HasSubstr("/token\""), HasSubstr("is not a file")));
  write("short");
  EXPECT_THAT(std::string(TokenFile::Open(path).status().message()),
              AllOf(HasSubstr("--token_file"), HasSubstr("line 1")));
  write(kToken);
  const auto file = TokenFile::Open(path, absl::InfiniteDuration());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tokens()->first(), kToken);
  write(absl::StrCat(kOther, "\n", kToken));
  (*file)->Reload();
  EXPECT_EQ((*file)->tokens()->first(), kOther);
  EXPECT_TRUE((*file)->tokens()->Contain(kToken));
  write("broken");
  (*file)->Reload();
  EXPECT_EQ((*file)->tokens()->first(), kOther);
  std::filesystem::remove(path);
  (*file)->Reload();
  EXPECT_EQ((*file)->tokens()->first(), kOther);
  write(kOther);
  (*file)->Reload();
  EXPECT_FALSE((*file)->tokens()->Contain(kToken));
}

TEST(TokenFileTest, MetricsNeedATokenOfTheirFile) {
  const testing::TempFolder temp;
  const std::string path = absl::StrCat(temp.path().string(), "/token");
  const auto none = OpenMetricsTokens("");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(*none) << "there is no file, so that nobody asks for a token";
  EXPECT_THAT(std::string(OpenMetricsTokens(path).status().message()),
              AllOf(HasSubstr("--metrics_token_file"), HasSubstr("is not a file")));
  std::ofstream(path) << kToken << "\n" << kOther << "\n";
  const auto may_read = OpenMetricsTokens(path);
  ASSERT_TRUE(may_read.ok()) << may_read.status();
  EXPECT_TRUE((*may_read)(kToken));
  EXPECT_TRUE((*may_read)(kOther));
  EXPECT_FALSE((*may_read)(""));
  EXPECT_FALSE((*may_read)("another token, as long"));
}

}  // namespace
}  // namespace continuo::common
