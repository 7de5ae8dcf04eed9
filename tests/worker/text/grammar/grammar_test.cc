// SPDX-License-Identifier: Apache-2.0
// The five kinds of grammar, by the texts that they allow.
#include "services/worker/text/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/worker/text/grammar/random_answer.h"
#include "tests/worker/text/test_files.h"

namespace continuo::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using text::Grammar;

class GrammarTest : public ::testing::Test {
 protected:
  const std::unique_ptr<text::TextModel> model_ = OpenTestModel("byte_level");

  bool Is(const Source& source, std::string_view text) { return IsAnswer(*model_, source, text); }

  std::string Refusal(const Source& source) {
    const auto grammar = Grammar::Compile(*model_, source);
    EXPECT_FALSE(grammar.ok()) << source.text;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(grammar.status().message());
  }
};

TEST_F(GrammarTest, ARegexMatchesTheWholeAnswer) {
  const Source source = RegexSource("a[bc]{2,3}/|\\d+");
  EXPECT_TRUE(Is(source, "abc/"));
  EXPECT_TRUE(Is(source, "abcb/"));
  EXPECT_TRUE(Is(source, "17"));
  EXPECT_FALSE(Is(source, "ab/"));
  EXPECT_FALSE(Is(source, "xabc/"));
  EXPECT_FALSE(Is(source, "abc/x"));
  EXPECT_FALSE(Is(source, ""));
}

TEST_F(GrammarTest, ARegexIsThatOfRustAndOfPython) {
  EXPECT_TRUE(Is(RegexSource("^\\w+$"), "é7_"));
  EXPECT_FALSE(Is(RegexSource("\\w"), "²"));  // Python has it in \\w, Rust has not,
  EXPECT_FALSE(Is(RegexSource("\\W"), "²"));  // so an answer has it in neither
  EXPECT_TRUE(Is(RegexSource("(?i)(?P<stop>hello) .*"), "HELLO w"));
  EXPECT_TRUE(Is(RegexSource("[a-z&&[^b]]"), "a"));
  EXPECT_FALSE(Is(RegexSource("[a-z&&[^b]]"), "b"));
  EXPECT_TRUE(Is(RegexSource("a{0,2}\\x{42}"), "aaB"));
}

TEST_F(GrammarTest, AChoiceIsOneOfItsOptionsLiterally) {
  const Source source = ChoiceSource({"yes", "no", "no way", "a\"b\\n", "/x/", "<|end|>", "é😀\n"});
  for (const std::string& option : source.options) EXPECT_TRUE(Is(source, option)) << option;
  EXPECT_FALSE(Is(source, "ye"));
  EXPECT_FALSE(Is(source, "yess"));
  EXPECT_FALSE(Is(source, "no wa"));
}

TEST_F(GrammarTest, AJsonObjectIsAny) {
  const Source source = {.kind = Source::Kind::kJsonObject};
  EXPECT_TRUE(Is(source, "{}"));
  EXPECT_TRUE(Is(source, R"({"a": [1, 2.5e3, null, {"b": "é\n"}]})"));
  EXPECT_TRUE(Is(source, "{\n  \"a\": 1\n}"));
  EXPECT_FALSE(Is(source, "[]"));
  EXPECT_FALSE(Is(source, "1"));
  EXPECT_FALSE(Is(source, "{\"a\"}"));
}

TEST_F(GrammarTest, OwnLarkStandsAroundASource) {
  const std::string around = "start: \"<\" (@text \">\" | OTHER)\nOTHER: /[A-Z]+/";
  Source source = RegexSource("[a-z]{2}|\\w9");
  source.around = around;
  EXPECT_TRUE(Is(source, "<ab>"));
  EXPECT_TRUE(Is(source, "<é9>"));
  EXPECT_TRUE(Is(source, "<AB"));
  EXPECT_FALSE(Is(source, "ab"));
  EXPECT_FALSE(Is(source, "<ab"));
  source = ChoiceSource({"a>", "b"});
  source.around = around;
  EXPECT_TRUE(Is(source, "<a>>"));
  EXPECT_FALSE(Is(source, "<a>"));
  source = {.kind = Source::Kind::kJsonObject, .around = around};
  EXPECT_TRUE(Is(source, "<{\"a\": [1]}>"));
  source = {.kind = Source::Kind::kLark, .text = "start: A+\nA: \"a\"\n%ignore \" \""};
  source.around = around;
  EXPECT_TRUE(Is(source, "<a a>"));
  EXPECT_FALSE(Is(source, "<a A>"));
}

TEST_F(GrammarTest, ASchemaAllowsWhatValidates) {
  const Source source = SchemaSource(R"({
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": false})");
  EXPECT_TRUE(Is(source, R"({"name":"Ann"})"));
  EXPECT_TRUE(Is(source, R"({"name": "Ann", "age": 7})"));
  EXPECT_FALSE(Is(source, R"({"name": "Antonia"})"));
  EXPECT_FALSE(Is(source, R"({"name": "Ann", "age": -7})"));
  EXPECT_FALSE(Is(source, R"({"age": 7})"));
  EXPECT_FALSE(Is(source, R"({"name": "Ann", "other": 1})"));
}

TEST_F(GrammarTest, ALarkGrammarMayHoldASchema) {
  const Source source = LarkSource(R"(start: "<call>" obj "</call>" | /[a-z ]+/
obj: %json {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false}
)");
  EXPECT_TRUE(Is(source, R"(<call>{"x": 1}</call>)"));
  EXPECT_TRUE(Is(source, "hello world"));
  EXPECT_FALSE(Is(source, R"(<call>{"y": 1}</call>)"));
  EXPECT_FALSE(Is(source, R"(<call>{"x": 1})"));
}

TEST_F(GrammarTest, ALarkGrammarMayNameSpecialTokens) {
  const auto matcher = NewMatcher(*model_, LarkSource("start: <|user|> \"hello\""));
  EXPECT_FALSE(AcceptText(*model_, *matcher, "h"));
  EXPECT_FALSE(matcher->Accept(IdOf(*model_, "<|end|>")));
  EXPECT_TRUE(matcher->Accept(IdOf(*model_, "<|user|>")));
  EXPECT_TRUE(AcceptText(*model_, *matcher, "hello"));
  EXPECT_TRUE(matcher->MustEnd());
}

TEST_F(GrammarTest, WhatIsNoGrammarIsRefused) {
  EXPECT_THAT(Refusal(SchemaSource("{")), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal(SchemaSource(R"({"type": "strin"})")), HasSubstr("strin"));
  EXPECT_THAT(Refusal(RegexSource("(")), HasSubstr("the regular expression"));
  EXPECT_THAT(Refusal(RegexSource("\xff")), HasSubstr("UTF-8"));
  EXPECT_THAT(Refusal(LarkSource("start: missing")), HasSubstr("missing"));
  EXPECT_THAT(Refusal(LarkSource("")), HasSubstr("the grammar"));
  EXPECT_THAT(Refusal(RegexSource("(?-u:a)")), HasSubstr("answers are Unicode: `-u`"));
  EXPECT_THAT(Refusal(RegexSource("a[^\\s\\S]")), HasSubstr("no answer obeys it"));
  EXPECT_THAT(Refusal(RegexSource("a(?!b)c")), HasSubstr("look-around"));
  EXPECT_THAT(Refusal(RegexSource("(a)\\1")), HasSubstr("backreferences"));
  EXPECT_THAT(Refusal(RegexSource("a^b")), HasSubstr("the regular expression"));
  EXPECT_THAT(Refusal(RegexSource("\\bab")), HasSubstr("word boundaries are not supported: `\\b`"));
  EXPECT_THAT(Refusal(RegexSource(std::string(200, '(') + std::string(200, ')'))),
              HasSubstr("nest"));
  EXPECT_THAT(Refusal(LarkSource("start[temperature=0.5]: /a/")), HasSubstr("temperature="));
  EXPECT_THAT(Refusal(LarkSource("start[max_tokens = 3]: /a/")), HasSubstr("max_tokens="));
  EXPECT_THAT(Refusal(LarkSource("start[stop=\"b\"]: /a/")), HasSubstr("stop="));
  EXPECT_THAT(Refusal(LarkSource("start: /a(?P<stop>b)/")), HasSubstr("named stop"));
  // It would allow bytes that are not UTF-8, among them that before a special token's name.
  EXPECT_THAT(Refusal(LarkSource("start: \"a\" | ~/b/")), HasSubstr("~: a complement"));
  EXPECT_THAT(Refusal(LarkSource("start: A\nA: ~ \"b\"")), HasSubstr("~: a complement"));
  EXPECT_THAT(Refusal(LarkSource("start: A\nA: ~/b/ & /a/")), HasSubstr("~: a complement"));
  EXPECT_THAT(Refusal(LarkSource("%llguidance {\"allow_invalid_utf8\": true}\nstart: /a/")),
              HasSubstr("allow_invalid_utf8"));
  EXPECT_THAT(
      Refusal(LarkSource("start: " + std::string(100, '(') + "\"a\"" + std::string(100, ')'))),
      HasSubstr("brackets"));
  EXPECT_THAT(Refusal(ChoiceSource({})), HasSubstr("0 options"));
  EXPECT_THAT(Refusal(ChoiceSource({"a", "\xff"})), HasSubstr("UTF-8"));
}

TEST_F(GrammarTest, AComplementTakesAwayFromText) {
  const auto matcher = NewMatcher(*model_, LarkSource("start: A\nA: /[a-c]+/ & ~/.*b.*/"));
  EXPECT_FALSE(AcceptText(*model_, *matcher, "b"));
  EXPECT_TRUE(AcceptText(*model_, *matcher, "ac"));
  EXPECT_TRUE(matcher->CanEnd());
}

TEST_F(GrammarTest, TheLibraryIsThatOfTheFingerprint) {
  const std::string lock = ReadFile(SourcePath("services/worker/text/rust/Cargo.lock"));
  const std::string library(text::kGrammarLibrary);
  const size_t space = library.find(' ');
  EXPECT_THAT(lock, HasSubstr("name = \"" + library.substr(0, space) + "\"\nversion = \"" +
                              library.substr(space + 1) + "\"\n"));
}

TEST_F(GrammarTest, ErrorsAreShort) {
  const std::string message = Refusal(LarkSource("start: " + std::string(5000, 'x')));
  EXPECT_LT(message.size(), 700u);
  EXPECT_THAT(message, Not(HasSubstr("backtrace")));
}

}  // namespace
}  // namespace continuo::testing
