// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/pattern.h"

#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace continuo::text {
namespace {

using State = Pattern::Match::State;
using ::testing::HasSubstr;

Pattern Compiled(std::string_view regex) {
  auto pattern = Pattern::Compile(regex);
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  return pattern.value_or(Pattern());
}

// "no", "pending", or the length of the match.
std::string At(const Pattern& pattern, std::string_view text, bool at_start = false,
               bool at_end = false) {
  const Pattern::Match match = pattern.MatchAt(text, at_start, at_end);
  if (match.state == State::kNone) return "no";
  return match.state == State::kPending ? "pending" : std::to_string(match.length);
}

TEST(PatternTest, AMatchIsFinalOnceNothingPreferredCanFollow) {
  const Pattern pattern = Compiled(R"(<tool_call>\s*<f=(?P<name>\w+)>)");
  EXPECT_EQ(At(pattern, "<tool"), "pending");
  EXPECT_EQ(At(pattern, "<toolx"), "no");
  EXPECT_EQ(At(pattern, "<tool_call>\n \n<f=ab_1>rest"), "22");
  EXPECT_EQ(pattern.MatchAt("<tool_call><f=ab_1>", false, false).group("name"), "ab_1");
  EXPECT_EQ(At(Compiled("a+"), "aa"), "pending");
  EXPECT_EQ(At(Compiled("a+"), "aa", false, /*at_end=*/true), "2");
  EXPECT_EQ(At(Compiled("a+"), "aab"), "2");
  EXPECT_EQ(At(Compiled("a+?"), "aab"), "1");
}

TEST(PatternTest, AlternativesArePreferredInTheirOrderAndLiteralsByLength) {
  EXPECT_EQ(At(Compiled("ab|abc"), "abcd"), "2");
  EXPECT_EQ(At(Compiled("abc|ab"), "abcd"), "3");
  EXPECT_EQ(At(Compiled("abc|ab"), "abx"), "2");
  EXPECT_EQ(At(Compiled("(?:abc|ab)"), "ab"), "pending");
  EXPECT_EQ(At(Pattern::OfLiterals({"ab", "abc"}), "abcd"), "3");
  EXPECT_EQ(At(Pattern::OfLiterals({"ab", "abc"}), "ab", false, true), "2");
}

TEST(PatternTest, LazyRepetitionEndsAtTheFirstPlace) {
  const Pattern pattern = Compiled(R"(<a.*?>)");
  EXPECT_EQ(At(pattern, "<a b>c>"), "5");
  EXPECT_EQ(At(Compiled(R"(<a.*>)"), "<a b>c>d", false, true), "7");
  EXPECT_EQ(At(Compiled("a{2,3}b?"), "aaaab"), "3");
  EXPECT_EQ(At(Compiled("a{2}"), "aaa"), "2");
  EXPECT_EQ(At(Compiled("(?:ab)*c"), "ababc"), "5");
}

TEST(PatternTest, AnchorsAreTheStartAndTheEndOfTheText) {
  EXPECT_EQ(At(Compiled("^a"), "a", /*at_start=*/true), "1");
  EXPECT_EQ(At(Compiled("^a"), "a"), "no");
  EXPECT_EQ(At(Compiled("a$"), "a"), "pending");
  EXPECT_EQ(At(Compiled("a$"), "a", false, /*at_end=*/true), "1");
  EXPECT_EQ(At(Compiled("a$"), "ab"), "no");
  EXPECT_EQ(At(Compiled("(?:^|<x>)"), "q", /*at_start=*/true), "0");
  EXPECT_EQ(At(Compiled("(?:^|<x>)"), "q"), "no");
}

TEST(PatternTest, ClassesAndEscapes) {
  EXPECT_EQ(At(Compiled(R"([^<]+<)"), "a]\n<"), "4");
  EXPECT_EQ(At(Compiled(R"([]a-c\d-]+x)"), "]ab7-x"), "6");
  EXPECT_EQ(At(Compiled(R"(\w+\W)"), "a_é!"), "5");
  EXPECT_EQ(At(Compiled(R"(\x41é\|)"), "Aé|"), "4");
  EXPECT_EQ(At(Compiled("é+x"), "ééx"), "5") << "a character is repeated, not its last byte";
}

TEST(PatternTest, WhatIsNotSupportedIsNamed) {
  for (const char* regex : {"(?=a)", "(?<!a)b", "(?i)a", R"(\bword)", R"((a)\1)", "a**", "(a", "a)",
                            "[a", "*a", "a{2", "a{3,2}", "a{1000}", "[é]", "\\", "^*"}) {
    const auto pattern = Pattern::Compile(regex);
    EXPECT_EQ(pattern.status().code(), absl::StatusCode::kInvalidArgument) << regex;
    EXPECT_THAT(std::string(pattern.status().message()), HasSubstr(regex));
  }
  EXPECT_FALSE(Pattern::Compile("(?:(?:a{200}){200}){200}").ok());
}

TEST(PatternTest, ALongMatchIsNone) {
  const Pattern pattern = Compiled("<[^>]*>");
  const std::string open = "<" + std::string(Pattern::kMaxLength, 'a');
  EXPECT_EQ(At(pattern, open.substr(0, 1000)), "pending");
  EXPECT_EQ(At(pattern, open), "no");
  EXPECT_EQ(At(pattern, open + ">"), "no");
}

TEST(PatternTest, IsSplitAroundAGroup) {
  const auto around = Pattern::SplitAt(R"(<p=(?P<key>\w+)>\s*(?P<value>.*?)\s*</p>)", "value");
  ASSERT_TRUE(around.ok()) << around.status();
  EXPECT_EQ(At(around->before, "<p=k>\n v"), "7");
  EXPECT_EQ(At(around->after, " </p>"), "5");
  EXPECT_FALSE(Pattern::SplitAt(R"((?P<key>\w+)=(?P<value>\w+))", "value").ok());
  EXPECT_FALSE(Pattern::SplitAt("a", "value").ok());
}

// A grammar takes two things of a pattern: a regular expression that finds what it matches, and a
// text.
TEST(PatternTest, APatternHasARegexAndAnExample) {
  const auto regex = [](const char* text) { return Pattern::Compile(text)->regex(); };
  const auto example = [](const char* text) { return Pattern::Compile(text)->example(); };
  EXPECT_EQ(regex("^<a/>\\s*(?P<name>[^>x]+)(?:b|é){2,3}$"),
            "<a\\/>(?:[\\x{9}-\\x{d} ])*(?:(?:[\\x{0}-=\\?-wy-\\x{7f}\\x{80}-\\x{10ffff}])+)"
            "(?:(?:(?:b|é))){2,3}");
  EXPECT_EQ(example("^<a>\\s*(?P<name>\\w+)(?:b|c){2}\\s+<(?P<key>.*?)>$"), "<a>\1bb <\3>");
  EXPECT_EQ(example("(?:\\w|a)b?"), "a");
  EXPECT_EQ(example("<\\d>"), std::nullopt);
  EXPECT_EQ(Pattern().regex(), "");
  EXPECT_EQ(Pattern::OfLiterals({"a", "bc"}).example(), "bc");
}

}  // namespace
}  // namespace continuo::text
