// SPDX-License-Identifier: Apache-2.0
// Sources that would cost much are refused, or their answers are. No time is measured: a bound that
// does not hold makes a test that does not end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "services/worker/text/grammar/grammar.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/grammar/random_answer.h"
#include "tests/worker/text/test_files.h"

namespace continuo::testing {
namespace {

using ::testing::HasSubstr;

std::string Repeated(int n, std::string_view text) {
  std::string result;
  for (int i = 0; i < n; ++i) result += text;
  return result;
}

std::vector<std::string> Numbers(int n, const std::string& before = "") {
  std::vector<std::string> numbers;
  for (int i = 0; i < n; ++i) numbers.push_back(absl::StrCat(before, i));
  return numbers;
}

class HostileTest : public ::testing::Test {
 protected:
  const std::unique_ptr<text::TextModel> model_ = OpenTestModel("byte_level");

  // Compiles and answers. Returns how it ended.
  absl::Status Run(const Source& source, int max_tokens = 60) {
    const auto grammar = text::Grammar::Compile(*model_, source);
    if (!grammar.ok()) {
      EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_LT(grammar.status().message().size(), 700u);
      return grammar.status();
    }
    std::mt19937_64 random(3);
    const auto matcher = (*grammar)->NewMatcher();
    if (!matcher.ok()) return matcher.status();
    return AnswerRandomly(*model_, **matcher, random, max_tokens).status;
  }

  // Whichever way it ends.
  void Survive(const Source& source, int max_tokens = 60) { Run(source, max_tokens).IgnoreError(); }

  // The next matcher is as if nothing had been.
  void ExpectUnhurt() { EXPECT_TRUE(IsAnswer(*model_, RegexSource("[a-c]+x"), "abcx")); }
};

TEST_F(HostileTest, DeepSchemasAreRefused) {
  for (const int depth : {50, 100, 10000}) {
    const absl::Status arrays = Run(
        SchemaSource(absl::StrCat(Repeated(depth, R"({"items":)"), "{}", Repeated(depth, "}"))));
    const absl::Status unions = Run(
        SchemaSource(absl::StrCat(Repeated(depth, R"({"anyOf":[)"), "{}", Repeated(depth, "]}"))));
    EXPECT_EQ(arrays.ok(), depth == 50) << arrays;
    EXPECT_EQ(unions.ok(), depth == 50) << unions;
  }
  ExpectUnhurt();
}

TEST_F(HostileTest, RecursionThatNeverEndsIsRefused) {
  EXPECT_FALSE(Run(SchemaSource(R"({"$ref": "#"})")).ok());
  EXPECT_FALSE(Run(SchemaSource(R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"},
                                     "b": {"$ref": "#/$defs/a"}}})"))
                   .ok());
  EXPECT_FALSE(Run(SchemaSource(R"({"allOf": [{"$ref": "#"}, {"$ref": "#"}]})")).ok());
  EXPECT_FALSE(Run(LarkSource("start: start")).ok());
  EXPECT_FALSE(Run(LarkSource("start: A\nA: A")).ok());
  ExpectUnhurt();
}

TEST_F(HostileTest, LongChainsOfReferencesAreBounded) {
  for (const int n : {100, 3000}) {
    std::string lark = "start: r0\n", terminals = "start: T0\n", definitions;
    for (int i = 0; i < n; ++i) {
      absl::StrAppend(&lark, "r", i, ": \"a\" r", i + 1, "?\n");
      absl::StrAppend(&terminals, "T", i, ": \"a\" T", i + 1, "?\n");
      absl::StrAppend(&definitions, R"("d)", i, R"(":{"anyOf":[{"$ref":"#/$defs/d)", i + 1,
                      R"("},{"type":"null"}]},)");
    }
    absl::StrAppend(&lark, "r", n, ": \"b\"\n");
    absl::StrAppend(&terminals, "T", n, ": \"b\"\n");
    Survive(LarkSource(lark), 2 * n);
    Survive(LarkSource(terminals), 2 * n);
    Survive(SchemaSource(
        absl::StrCat(R"({"$ref":"#/$defs/d0","$defs":{)", definitions, R"("d)", n, R"(":{}}})")));
  }
  ExpectUnhurt();
}

TEST_F(HostileTest, LargeListsAreTakenOrRefused) {
  EXPECT_TRUE(Run(ChoiceSource(Numbers(5000, "option "))).ok());
  EXPECT_FALSE(Run(ChoiceSource(Numbers(10001))).ok());
  EXPECT_FALSE(Run(ChoiceSource({std::string(300000, 'x')})).ok());
  EXPECT_TRUE(
      Run(SchemaSource(absl::StrCat(R"({"enum":[)", absl::StrJoin(Numbers(3000), ","), "]}")))
          .ok());
  Survive(SchemaSource(
      absl::StrCat(R"({"enum":[")", absl::StrJoin(Numbers(10000), R"(",")"), R"("]})")));
  Survive(SchemaSource(
      absl::StrCat(R"({"properties":{")", absl::StrJoin(Numbers(3000), R"(":{},")"), R"(":{}}})")));
  Survive(SchemaSource(absl::StrCat(
      R"({"anyOf":[)",
      absl::StrJoin(std::vector<std::string>(3000, R"({"properties":{"a":{}}})"), ","), "]}")));
  ExpectUnhurt();
}

TEST_F(HostileTest, IntersectionsThatMultiplyAreRefused) {
  const std::string some =
      R"({"anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}},{"properties":{"c":{}}}]})";
  EXPECT_FALSE(
      Run(SchemaSource(absl::StrCat(R"({"allOf":[)",
                                    absl::StrJoin(std::vector<std::string>(20, some), ","), "]}")))
          .ok());
  ExpectUnhurt();
}

// The compiler's work is the product of all alternatives, and is counted afterwards.
TEST_F(HostileTest, PatternsThatMeetAreFew) {
  const auto patterns = [](int n, const std::string& form) {
    std::vector<std::string> schemas;
    for (int i = 1; i <= n; ++i) schemas.push_back(absl::Substitute(form, i));
    return absl::StrCat(R"({"allOf":[)", absl::StrJoin(schemas, ","), "]}");
  };
  EXPECT_TRUE(Run(SchemaSource(patterns(2, R"({"pattern":".{$0}a"})"))).ok());
  for (const std::string& form :
       {std::string(R"({"pattern":".{$0}a"})"),
        std::string(R"({"properties":{"p":{"pattern":".{$0}a"}}})"),
        std::string(R"({"items":{"anyOf":[{},{"pattern":".{$0}a"}]}})"),
        std::string(
            R"({"patternProperties":{"^x":{"additionalProperties":{"pattern":".{$0}a"}}}})")}) {
    const absl::Status status = Run(SchemaSource(patterns(50, form)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("may apply to one string")) << form;
  }
  std::string chain;
  for (int i = 0; i < 50; ++i) {
    absl::StrAppend(&chain, R"("d)", i, R"(":{"pattern":".{)", i, R"(}a","$ref":"#/$defs/d)", i + 1,
                    R"("},)");
  }
  EXPECT_FALSE(
      Run(SchemaSource(absl::StrCat(R"({"$ref":"#/$defs/d0","$defs":{)", chain, R"("d50":{}}})")))
          .ok());
  EXPECT_FALSE(Run(LarkSource(absl::StrCat(
                       "start: A\nA: ",
                       absl::StrJoin(std::vector<std::string>(40, "/.*a.*b/"), " & "), "\n")))
                   .ok());
  // Heirs and their ancestor may have patterns of their own.
  EXPECT_TRUE(
      Run(SchemaSource(
              R"({"allOf":[{"$ref":"#/$defs/a"},{"properties":{"x":{"pattern":"a"},"y":{"pattern":"b"},
      "z":{"format":"uuid"}}}],"$defs":{"a":{"type":"object","properties":{"p":{"pattern":"a"},"q":{"pattern":"b"},
      "r":{"pattern":"c"},"s":{"format":"date"}}}}})"))
          .ok());
  ExpectUnhurt();
}

TEST_F(HostileTest, LargeBoundsAreTaken) {
  EXPECT_TRUE(
      Run(SchemaSource(R"({"type": "string", "minLength": 100000, "maxLength": 100000})")).ok());
  EXPECT_TRUE(
      Run(SchemaSource(R"({"type": "array", "items": {"type": "null"}, "minItems": 100000})"))
          .ok());
  Survive(SchemaSource(R"({"type": "array", "prefixItems": [{}, {}], "maxItems": 100000})"));
  Survive(SchemaSource(R"({"type": "object", "maxProperties": 100000})"));
  ExpectUnhurt();
}

// Each takes more states or expressions than there are operations, or has a small equal.
TEST_F(HostileTest, ExponentialRegexesAreBounded) {
  for (const std::string& regex :
       {std::string("(a|b)*a(a|b){20}"), std::string("(a|b)*a(a|b){2000}"),
        std::string("((a{1,100}){1,100}){1,100}"), std::string("(((a*)*)*)*b"),
        std::string("(a?){500}a{500}"), std::string("(x+x+)+y"), std::string("(.*a){30}"),
        std::string("[\\s\\S]{0,1000}z[\\s\\S]{0,1000}"),
        absl::StrCat("(", Repeated(60, "(a|b|ab)(c|d|cd)?"), ")*"),
        absl::StrJoin(Numbers(3000, "x"), "|"), Repeated(50, "(.*[0-9].*)|") + "z",
        std::string("\\w{1000}"), absl::StrCat("(?i)", Repeated(2000, "é"))}) {
    Survive(RegexSource(regex), 200);
    Survive(SchemaSource(nlohmann::json({{"type", "string"}, {"pattern", regex}}).dump()), 200);
  }
  ExpectUnhurt();
}

TEST_F(HostileTest, AmbiguousGrammarsAreBounded) {
  for (const std::string& lark :
       {std::string("start: start start | \"a\" | \"\""),
        std::string("start: a a a a a a\na: (\"x\" | \"xx\" | \"\")*"),
        std::string("start: e\ne: e \"+\" e | e e | \"a\" | \"(\" e \")\""),
        absl::StrCat("start: ", absl::StrJoin(Numbers(1000, "r"), " | "), "\n",
                     absl::StrJoin(Numbers(1000, "r"), ": \"a\"* start?\n"), ": \"b\"\n"),
        std::string("start: (\"a\"? \"a\"?)~1000"), std::string("start: (\"a\"~1..1000)~1..1000"),
        std::string("start: /(a|b)*a(a|b){15}/ start | \"c\""),
        std::string("start: \"a\"~100000000")}) {
    Survive(LarkSource(lark), 200);
  }
  ExpectUnhurt();
}

TEST_F(HostileTest, ClientsRulesHaveNarrowerBounds) {
  Source source = LarkSource(
      absl::StrCat("start: (", absl::StrJoin(Numbers(100, "r"), " | "), ")*\n",
                   absl::StrJoin(Numbers(100, "r"), ": \"a\" /b/ \"c\" | \"ac\"\n"), ": \"b\"\n"));
  EXPECT_FALSE(Run(source).ok());
  // Also within other rules.
  source.around = "start: \"<\" @text";
  EXPECT_FALSE(Run(source).ok());
  source.around.clear();
  source.is_own_lark = true;
  EXPECT_TRUE(Run(source).ok());
}

TEST_F(HostileTest, AFailureIsTakenBackWithItsIds) {
  const auto grammar = text::Grammar::Compile(*model_, RegexSource("x(a|b)*a(a|b){2000}"));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto matcher = *(*grammar)->NewMatcher();
  ASSERT_TRUE(matcher->Accept(IdOf(*model_, "x")));
  const std::vector<uint32_t> mask = MaskOf(*model_, *matcher);
  int num_accepted = 0;
  while (matcher->status().ok() && num_accepted < 4000) {
    if (!matcher->Accept(IdOf(*model_, num_accepted % 3 == 0 ? "a" : "b"))) break;
    ++num_accepted;
    MaskOf(*model_, *matcher);
  }
  EXPECT_EQ(matcher->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(matcher->CanEnd());
  EXPECT_FALSE(matcher->MustEnd());
  EXPECT_FALSE(matcher->Accept(IdOf(*model_, "a")));
  std::vector<uint32_t> all(20, ~uint32_t{0});
  matcher->FillMask(all);
  EXPECT_EQ(all, std::vector<uint32_t>(20, ~uint32_t{0}));
  matcher->Rollback(num_accepted);
  EXPECT_TRUE(matcher->status().ok());
  EXPECT_EQ(MaskOf(*model_, *matcher), mask);
}

TEST_F(HostileTest, AVocabularyThatCannotWriteTheGrammarIsADeadEnd) {
  const auto words = OpenText({.tokenizer_json = R"({"version": "1.0", "added_tokens": [],
      "decoder": {"type": "Fuse"},
      "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "ab": 2}, "unk_token": "a"}})"});
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ(text::Grammar::Compile(**words, RegexSource("c")).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto matcher = NewMatcher(**words, RegexSource("a(c|bb)"));
  ASSERT_TRUE(matcher->Accept(0));
  EXPECT_EQ(IdsOf(MaskOf(**words, *matcher)), std::vector<int32_t>{1});
  const auto dead = NewMatcher(**words, RegexSource("(a|b)c"));
  ASSERT_TRUE(dead->Accept(0));
  EXPECT_EQ(IdsOf(MaskOf(**words, *dead)).size(), 128u);
  EXPECT_EQ(dead->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(dead->CanEnd());
  EXPECT_FALSE(dead->Accept(1));
  dead->Rollback(1);
  EXPECT_TRUE(dead->status().ok());
  EXPECT_EQ(IdsOf(MaskOf(**words, *dead)), (std::vector<int32_t>{0, 1}));
}

TEST_F(HostileTest, AVocabularyWithoutBytesOfItsOwnHasNoGrammars) {
  const auto ctc = OpenText({.tokenizer_json = R"({"version": "1.0", "added_tokens": [],
      "decoder": {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": false},
      "model": {"type": "WordLevel", "vocab": {"a": 0, "<pad>": 1}, "unk_token": "a"}})"});
  ASSERT_TRUE(ctc.ok()) << ctc.status();
  EXPECT_EQ(text::Grammar::Compile(**ctc, RegexSource("a")).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace continuo::testing
