// SPDX-License-Identifier: Apache-2.0
// A matcher's masks, its ends and its way back.
#include <gtest/gtest.h>

#include "services/worker/text/grammar/grammar.h"
#include "tests/worker/text/grammar/random_answer.h"
#include "tests/worker/text/test_files.h"

namespace continuo::testing {
namespace {

const std::vector<Source>& Sources() {
  static const auto* sources = new std::vector<Source>{
      RegexSource("(yes|no)( maybe)?\\.{0,3}"),
      RegexSource("[^a-z]{1,8}"),
      ChoiceSource({"hello", "hello world", "help", "🙂"}),
      {.kind = Source::Kind::kJsonObject},
      SchemaSource(R"({"type": "array", "items": {"type": ["number", "string"]}, "maxItems": 4})"),
      SchemaSource(R"({"type": "object", "properties": {"he": {"enum": ["hell", "hello", 1, null]},
                       "world": {"$ref": "#"}}, "required": ["he"], "additionalProperties": false})"),
      LarkSource("start: item+\nitem: <|user|> /h[el]+/ \" world\" | \"<think>\" /[0-9]{1,3}/\n"),
  };
  return *sources;
}

class MatcherTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<text::TextModel> model_ = OpenTestModel(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Vocabularies, MatcherTest,
                         ::testing::Values("byte_level", "byte_fallback"));

// Ids beyond the vocabulary are asked about, too.
TEST_P(MatcherTest, TheMaskHasWhatAcceptTakes) {
  std::mt19937_64 random(1);
  for (const Source& source : Sources()) {
    if (source.kind == Source::Kind::kLark && GetParam() != std::string("byte_level")) continue;
    const auto matcher = NewMatcher(*model_, source);
    for (int step = 0; step < 12 && !matcher->MustEnd(); ++step) {
      const std::vector<uint32_t> mask = MaskOf(*model_, *matcher);
      for (int32_t id = 0; id < static_cast<int32_t>(mask.size() * 32); ++id) {
        const auto clone = matcher->Clone();
        ASSERT_TRUE(clone.ok());
        ASSERT_EQ((*clone)->Accept(id), HasBit(mask, id))
            << source.text << " step " << step << " id " << id;
      }
      const std::vector<int32_t> allowed = IdsOf(mask);
      ASSERT_FALSE(allowed.empty());
      ASSERT_TRUE(matcher->Accept(allowed[random() % allowed.size()]));
    }
    EXPECT_TRUE(matcher->status().ok()) << matcher->status();
  }
}

TEST_P(MatcherTest, WhatIsRefusedChangesNothing) {
  const auto matcher = NewMatcher(*model_, RegexSource("hello"));
  const std::vector<uint32_t> mask = MaskOf(*model_, *matcher);
  for (const int32_t id : {-1, model_->vocab_size(), 1 << 30, IdOf(*model_, "w")}) {
    EXPECT_FALSE(matcher->Accept(id)) << id;
    EXPECT_EQ(MaskOf(*model_, *matcher), mask);
  }
  EXPECT_TRUE(AcceptText(*model_, *matcher, "hello"));
}

TEST_P(MatcherTest, RollbackLeadsToTheSameMasks) {
  std::mt19937_64 random(2);
  for (const Source& source : Sources()) {
    if (source.kind == Source::Kind::kLark && GetParam() != std::string("byte_level")) continue;
    for (int round = 0; round < 4; ++round) {
      const auto matcher = NewMatcher(*model_, source);
      struct Step {
        std::vector<uint32_t> mask;
        bool can_end, must_end;
        bool operator==(const Step&) const = default;
      };
      const auto here = [&] {
        return Step{MaskOf(*model_, *matcher), matcher->CanEnd(), matcher->MustEnd()};
      };
      std::vector<Step> steps = {here()};
      for (int i = 0; i < 60; ++i) {
        const std::vector<int32_t> allowed = IdsOf(steps.back().mask);
        if (allowed.empty() || random() % 4 == 0) {
          const size_t count = random() % steps.size();
          matcher->Rollback(static_cast<int>(count));
          steps.resize(steps.size() - count);
          ASSERT_TRUE(here() == steps.back()) << source.text;
          if (allowed.empty() && count == 0) break;
          continue;
        }
        ASSERT_TRUE(matcher->Accept(allowed[random() % allowed.size()]));
        steps.push_back(here());
      }
      EXPECT_TRUE(matcher->status().ok()) << matcher->status();
    }
  }
}

TEST_P(MatcherTest, AnAnswerThatCanOnlyEndMustEnd) {
  const auto matcher = NewMatcher(*model_, ChoiceSource({"hell", "hello"}));
  EXPECT_FALSE(matcher->CanEnd());
  EXPECT_TRUE(AcceptText(*model_, *matcher, "hell"));
  EXPECT_TRUE(matcher->CanEnd());
  EXPECT_FALSE(matcher->MustEnd());
  EXPECT_TRUE(matcher->Accept(IdOf(*model_, "o")));
  EXPECT_TRUE(matcher->CanEnd());
  EXPECT_TRUE(matcher->MustEnd());
  EXPECT_TRUE(IdsOf(MaskOf(*model_, *matcher)).empty());
  EXPECT_FALSE(matcher->Accept(IdOf(*model_, "o")));
  matcher->Rollback(1);
  EXPECT_FALSE(matcher->MustEnd());
}

TEST_P(MatcherTest, AnEmptyAnswerMayBeTheOnlyOne) {
  const auto matcher = NewMatcher(*model_, RegexSource(""));
  EXPECT_TRUE(matcher->CanEnd());
  EXPECT_TRUE(matcher->MustEnd());
}

TEST_P(MatcherTest, AnObjectMustEndBehindItsBrace) {
  const auto matcher = NewMatcher(*model_, {.kind = Source::Kind::kJsonObject});
  EXPECT_TRUE(AcceptText(*model_, *matcher, "{}"));
  EXPECT_TRUE(matcher->MustEnd());
}

TEST_P(MatcherTest, AMaskMayBeSmallerOrLargerThanTheVocabulary) {
  const auto matcher = NewMatcher(*model_, RegexSource("[^x]+"));
  std::vector<uint32_t> large(100, ~uint32_t{0}), small(2, ~uint32_t{0});
  matcher->FillMask(large);
  matcher->FillMask(small);
  EXPECT_EQ(small, std::vector<uint32_t>(large.begin(), large.begin() + 2));
  for (const int32_t id : IdsOf(large)) EXPECT_LT(id, model_->vocab_size());
  matcher->FillMask({});
}

TEST_P(MatcherTest, AMaskOnlyLosesBits) {
  const auto matcher = NewMatcher(*model_, RegexSource("[a-f]+"));
  std::vector<uint32_t> mask(20, 0);
  mask[IdOf(*model_, "a") / 32] = ~uint32_t{0};
  const std::vector<uint32_t> before = mask;
  matcher->FillMask(mask);
  EXPECT_TRUE(HasBit(mask, IdOf(*model_, "a")));
  for (size_t i = 0; i < mask.size(); ++i) EXPECT_EQ(mask[i] & ~before[i], 0u);
}

TEST_P(MatcherTest, ClonesShareNothing) {
  const auto matcher = NewMatcher(*model_, RegexSource("[ab]{4}"));
  EXPECT_TRUE(AcceptText(*model_, *matcher, "ab"));
  const auto clone = *matcher->Clone();
  EXPECT_TRUE(AcceptText(*model_, *clone, "ab"));
  EXPECT_TRUE(clone->MustEnd());
  EXPECT_FALSE(matcher->CanEnd());
  matcher->Rollback(2);
  EXPECT_TRUE(AcceptText(*model_, *matcher, "bbbb"));
  clone->Rollback(4);
  EXPECT_TRUE(AcceptText(*model_, *clone, "aaaa"));
}

TEST_P(MatcherTest, SpecialTokensAreNoText) {
  const auto matcher = NewMatcher(*model_, RegexSource("(?s:.*)"));
  for (const int32_t id : IdsOf(MaskOf(*model_, *matcher))) {
    EXPECT_FALSE(model_->IsSpecial(id));
    EXPECT_FALSE(model_->TokenBytes(id).empty());
  }
}

}  // namespace
}  // namespace continuo::testing
