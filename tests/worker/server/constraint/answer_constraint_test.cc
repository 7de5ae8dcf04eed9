// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/constraint/answer_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "services/protocol/error.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Tokens of tests/worker/text/testdata/byte_level, whose ids below 256 are bytes.
constexpr int32_t kHe = 256, kHell = 258, kHello = 259, kWorld = 264, kThink = 271;
constexpr int kVocab = 272;

constexpr char kSchema[] =
    R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],)"
    R"("additionalProperties":false})";

std::vector<int32_t> Ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

class AnswerConstraintTest : public ::testing::Test {
 protected:
  // Opens a model whose format has thoughts as `config` says, a tokenizer_config.json.
  void Open(const std::string& config) {
    const std::string tokenizer = testing::ReadFile(
        testing::SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json"));
    auto text = testing::OpenText({.tokenizer_json = tokenizer,
                                   .tokenizer_config_json = config,
                                   .chat_template = "{{ messages[0].content }}"});
    ASSERT_TRUE(text.ok()) << text.status();
    text_ = *std::move(text);
    marks_ = ThoughtMarks::Find(*text_);
    ASSERT_NE(marks_, nullptr);
  }
  void OpenThink() {
    Open(R"({"response_template": {"fields": {
      "thinking": {"open": "<think>", "close": "</think>"}, "content": {}}}})");
  }
  void OpenBracket() {
    Open(R"({"response_template": {"fields": {
      "thinking": {"open": "[T]", "close": "[/T]"}, "content": {}}}})");
  }

  std::shared_ptr<AnswerConstraint> Make(text::GrammarSource source, Thoughts thoughts) {
    auto grammar = text::Grammar::Compile(*text_, source);
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return *AnswerConstraint::Create(*grammar, marks_, thoughts, "constraint.x");
  }
  std::shared_ptr<AnswerConstraint> MakeSchema(Thoughts thoughts) {
    return Make({.kind = text::GrammarSource::Kind::kJsonSchema, .text = kSchema}, thoughts);
  }
  std::shared_ptr<AnswerConstraint> MakeRegex(const std::string& regex, Thoughts thoughts) {
    return Make({.kind = text::GrammarSource::Kind::kRegex, .text = regex}, thoughts);
  }

  // Returns the ids that may come.
  static std::vector<int32_t> Allowed(AnswerConstraint& constraint) {
    std::vector<uint32_t> mask((kVocab + 31) / 32, ~uint32_t{0});
    constraint.FillMask(mask);
    EXPECT_TRUE(constraint.status().ok()) << constraint.status();
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < kVocab; ++id) {
      if ((mask[id / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    }
    return ids;
  }
  // Returns the ASCII characters among them.
  static std::string AllowedBytes(AnswerConstraint& constraint) {
    std::string bytes;
    for (const int32_t id : Allowed(constraint)) {
      if (id < 128) bytes += static_cast<char>(id);
    }
    return bytes;
  }
  // Returns false at the first id that is not accepted.
  static bool Push(AnswerConstraint& constraint, const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      if (!constraint.Accept(id)) return false;
    }
    return true;
  }

  std::unique_ptr<text::TextModel> text_;
  std::shared_ptr<const ThoughtMarks> marks_;
};

TEST_F(AnswerConstraintTest, WithoutThoughtsTheGrammarBeginsAtOnce) {
  OpenThink();
  const auto constraint = MakeSchema(Thoughts::kNone);
  EXPECT_EQ(AllowedBytes(*constraint), "{");
  EXPECT_FALSE(constraint->CanEnd());
  EXPECT_FALSE(constraint->Accept('x'));
  EXPECT_FALSE(constraint->Accept(kThink));
  EXPECT_TRUE(Push(*constraint, Ids(R"({"a":1)")));
  EXPECT_FALSE(constraint->CanEnd());
  EXPECT_TRUE(constraint->Accept('}'));
  EXPECT_TRUE(constraint->CanEnd());
  EXPECT_TRUE(constraint->MustEnd());
}

TEST_F(AnswerConstraintTest, AThoughtMayComeFirstAndIsFreeButDoesNotEndTheAnswer) {
  OpenThink();
  const auto constraint = MakeSchema(Thoughts::kPossible);
  EXPECT_THAT(Allowed(*constraint), ElementsAre('{', kThink));
  EXPECT_FALSE(constraint->MustEnd());
  ASSERT_TRUE(constraint->Accept(kThink));
  EXPECT_EQ(Allowed(*constraint).size(), kVocab);
  for (const int32_t id : Ids("Hm {\"a\":1} < </thin </")) {
    ASSERT_TRUE(constraint->Accept(id));
    EXPECT_FALSE(constraint->CanEnd());
    EXPECT_FALSE(constraint->MustEnd());
  }
  ASSERT_TRUE(Push(*constraint, Ids("think>")));
  EXPECT_EQ(AllowedBytes(*constraint), "\t\n\v\f\r {") << "white space or the answer";
  EXPECT_FALSE(constraint->Accept(kThink)) << "one thought";
  ASSERT_TRUE(Push(*constraint, Ids("\n\n{")));
  EXPECT_EQ(AllowedBytes(*constraint).find('<'), std::string::npos);
  ASSERT_TRUE(Push(*constraint, Ids(R"("a":1})")));
  EXPECT_TRUE(constraint->MustEnd());
}

TEST_F(AnswerConstraintTest, AnAnswerThatMayBeEmptyDoesNotEndAThought) {
  OpenThink();
  const auto constraint = MakeRegex("a*", Thoughts::kPossible);
  EXPECT_TRUE(constraint->CanEnd());
  ASSERT_TRUE(constraint->Accept(kThink));
  EXPECT_FALSE(constraint->CanEnd());
  ASSERT_TRUE(Push(*constraint, Ids("x</think>")));
  EXPECT_TRUE(constraint->CanEnd());
}

// As gpt-oss does: the mark may have more in it, and something before it.
TEST_F(AnswerConstraintTest, AMarkThatIsAPatternOpensWithItsPlainestText) {
  Open(R"({"response_template": {"fields": {
      "thinking": {"open_pattern": "(?:<s>)?<c>t[^<]*<m>", "close_pattern": "<(?:e|r)>"},
      "content": {}}}})");
  const auto constraint = MakeSchema(Thoughts::kPossible);
  EXPECT_EQ(AllowedBytes(*constraint), "<{");
  ASSERT_TRUE(Push(*constraint, Ids("<c>")));
  EXPECT_EQ(AllowedBytes(*constraint), "t");
  ASSERT_TRUE(Push(*constraint, Ids("t<m>Hm<e")));
  EXPECT_FALSE(constraint->CanEnd());
  ASSERT_TRUE(Push(*constraint, Ids(R"(>{"a":1})")));
  EXPECT_TRUE(constraint->MustEnd());
}

TEST_F(AnswerConstraintTest, WhiteSpaceBehindAThoughtHasAnEnd) {
  OpenThink();
  const auto constraint = MakeSchema(Thoughts::kOpen);
  ASSERT_TRUE(Push(*constraint, Ids("x</think>")));
  for (int i = 0; i < AnswerConstraint::kMaxSpaces; ++i) ASSERT_TRUE(constraint->Accept('\n'));
  EXPECT_EQ(AllowedBytes(*constraint), "{");
  EXPECT_FALSE(constraint->Accept('\n'));
  EXPECT_TRUE(constraint->Accept('{'));
  // White space that the grammar begins with is the grammar's.
  const auto spaced = MakeRegex(" *ab", Thoughts::kOpen);
  ASSERT_TRUE(Push(*spaced, Ids("</think>   ")));
  EXPECT_EQ(AllowedBytes(*spaced), " a");
}

TEST_F(AnswerConstraintTest, AMarkOfSeveralTokensMayAsWellBeTheAnswer) {
  OpenBracket();
  const auto regex = R"(\[[a-zT]*\])";
  {
    const auto constraint = MakeRegex(regex, Thoughts::kPossible);
    EXPECT_EQ(AllowedBytes(*constraint), "[");
    ASSERT_TRUE(Push(*constraint, Ids("[T")));
    EXPECT_EQ(AllowedBytes(*constraint), "T]abcdefghijklmnopqrstuvwxyz");
    ASSERT_TRUE(constraint->Accept('a'));
    EXPECT_EQ(AllowedBytes(*constraint), "T]abcdefghijklmnopqrstuvwxyz");
    ASSERT_TRUE(constraint->Accept(']'));
    EXPECT_TRUE(constraint->MustEnd());
  }
  const auto constraint = MakeRegex(regex, Thoughts::kPossible);
  ASSERT_TRUE(Push(*constraint, Ids("[T]")));
  EXPECT_FALSE(constraint->CanEnd()) << "it is a thought";
  ASSERT_TRUE(Push(*constraint, Ids("[T[/T] [")));
  // Back into the thought, and to the place where it might have become an answer.
  constraint->Rollback(9);
  EXPECT_EQ(AllowedBytes(*constraint), "T]abcdefghijklmnopqrstuvwxyz");
  ASSERT_TRUE(Push(*constraint, Ids("x]")));
  EXPECT_TRUE(constraint->MustEnd());

  // If the grammar cannot begin with it, it is a thought.
  const auto number = MakeRegex("[0-9]+", Thoughts::kPossible);
  EXPECT_EQ(AllowedBytes(*number), "0123456789[");
  ASSERT_TRUE(number->Accept('['));
  EXPECT_EQ(AllowedBytes(*number), "T");
  EXPECT_FALSE(number->CanEnd());
  number->Rollback(1);
  EXPECT_EQ(AllowedBytes(*number), "0123456789[");
}

TEST_F(AnswerConstraintTest, ATokenThatClosesAThoughtHasNoTextBehindIt) {
  Open(R"({"response_template": {"fields": {
      "thinking": {"open": "<think>", "close": "he"}, "content": {}}}})");
  const auto constraint = MakeRegex("l+", Thoughts::kOpen);
  std::vector<int32_t> allowed = Allowed(*constraint);
  EXPECT_THAT(allowed, ::testing::IsSupersetOf({int32_t{'h'}, kHe, kWorld}));
  EXPECT_THAT(allowed, ::testing::Not(::testing::Contains(kHell)));
  EXPECT_THAT(allowed, ::testing::Not(::testing::Contains(kHello)));
  EXPECT_FALSE(constraint->Accept(kHell));
  ASSERT_TRUE(Push(*constraint, {'h', 'e'}));
  EXPECT_THAT(AllowedBytes(*constraint), "\t\n\v\f\r l");
}

TEST_F(AnswerConstraintTest, IdsThatAreNoTokensNeverCome) {
  OpenThink();
  for (const Thoughts thoughts : {Thoughts::kNone, Thoughts::kPossible, Thoughts::kOpen}) {
    const auto constraint = MakeRegex("(.|\n)*", thoughts);
    std::vector<uint32_t> mask(kVocab / 32 + 3, ~uint32_t{0});
    constraint->FillMask(mask);
    for (int32_t id = kVocab; id < static_cast<int32_t>(mask.size()) * 32; ++id) {
      EXPECT_EQ(mask[id / 32] >> (id % 32) & 1, 0u) << id;
    }
  }
}

// Wherever drafts were taken and given back, the state is that of a constraint that never saw them.
TEST_F(AnswerConstraintTest, DraftsThatAreTakenBackLeaveNothing) {
  OpenBracket();
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const auto thoughts = static_cast<Thoughts>(round % 3);
    const auto make = [&] {
      return round % 2 == 0 ? MakeRegex(R"(\[T?(ab)*[c-e]*\]( |x){0,9})", thoughts)
                            : MakeSchema(thoughts);
    };
    const auto constraint = make();
    std::vector<int32_t> accepted;
    // Thoughts are made to end.
    const auto choose = [&](AnswerConstraint& from, size_t at) {
      const std::vector<int32_t> allowed = Allowed(from);
      const std::string close = "[/T]";
      const int32_t wanted = static_cast<unsigned char>(close[at % close.size()]);
      if (allowed.size() > 60 && random() % 8 != 0) return wanted;
      return allowed.empty() ? -1 : allowed[random() % allowed.size()];
    };
    while (accepted.size() < 60) {
      const int num_drafts = static_cast<int>(random() % 6);
      int taken = 0;
      for (; taken < num_drafts; ++taken) {
        const int32_t draft = choose(*constraint, accepted.size() + taken);
        if (draft < 0) break;
        ASSERT_TRUE(constraint->Accept(draft)) << draft;
      }
      constraint->Rollback(taken);
      const auto fresh = make();
      ASSERT_TRUE(Push(*fresh, accepted));
      ASSERT_EQ(Allowed(*constraint), Allowed(*fresh)) << round;
      ASSERT_EQ(constraint->CanEnd(), fresh->CanEnd());
      ASSERT_EQ(constraint->MustEnd(), fresh->MustEnd());
      const int32_t next = choose(*constraint, accepted.size());
      if (next < 0) break;
      ASSERT_TRUE(constraint->Accept(next)) << next;
      accepted.push_back(next);
    }
    EXPECT_FALSE(accepted.empty());
  }
}

// The grammar has a second part that nothing can end.
TEST_F(AnswerConstraintTest, AFailureNamesItsFieldAndIsTakenBackWithWhatLedToIt) {
  OpenThink();
  for (const Thoughts thoughts : {Thoughts::kNone, Thoughts::kOpen}) {
    const auto constraint =
        Make({.kind = text::GrammarSource::Kind::kLark, .text = "start: \"ab\" x\nx: x \"c\""},
             thoughts);
    if (thoughts == Thoughts::kOpen) {
      ASSERT_TRUE(Push(*constraint, Ids("h</think>")));
    }
    const std::vector<int32_t> first = Allowed(*constraint);
    ASSERT_TRUE(constraint->Accept('a'));
    const auto fails = [&] {
      std::vector<uint32_t> mask((kVocab + 31) / 32, ~uint32_t{0});
      if (constraint->Accept('b')) constraint->FillMask(mask);
      EXPECT_TRUE(absl::IsInvalidArgument(constraint->status())) << constraint->status();
      EXPECT_EQ(protocol::FieldOf(constraint->status()), "constraint.x");
      EXPECT_FALSE(constraint->Accept('c'));
    };
    constraint->Rollback(0);
    EXPECT_TRUE(constraint->status().ok());
    EXPECT_EQ(AllowedBytes(*constraint), "b");
    const bool counts = constraint->Accept('b');
    constraint->Rollback(counts ? 1 : 0);
    EXPECT_TRUE(constraint->status().ok()) << constraint->status();
    EXPECT_EQ(AllowedBytes(*constraint), "b");
    fails();
    constraint->Rollback(counts ? 2 : 1);
    EXPECT_TRUE(constraint->status().ok()) << constraint->status();
    EXPECT_EQ(Allowed(*constraint), first);
    ASSERT_TRUE(constraint->Accept('a'));
    fails();
  }
}

TEST_F(AnswerConstraintTest, MasksAreWhatIsAccepted) {
  OpenBracket();
  for (const Thoughts thoughts : {Thoughts::kNone, Thoughts::kPossible, Thoughts::kOpen}) {
    const auto constraint = MakeRegex(R"(\[[a-c]{2}\])", thoughts);
    for (const int32_t next : Ids(thoughts == Thoughts::kOpen ? "x[/[/T] \n[ab]" : "[ab]")) {
      std::vector<int32_t> accepted;
      for (int32_t id = 0; id < kVocab; ++id) {
        if (!constraint->Accept(id)) continue;
        accepted.push_back(id);
        constraint->Rollback(1);
      }
      EXPECT_EQ(Allowed(*constraint), accepted);
      ASSERT_TRUE(constraint->Accept(next)) << next;
    }
    EXPECT_TRUE(constraint->MustEnd());
    EXPECT_THAT(Allowed(*constraint), IsEmpty());
  }
}

}  // namespace
}  // namespace continuo::server
