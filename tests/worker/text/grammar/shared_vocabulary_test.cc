// SPDX-License-Identifier: Apache-2.0
// Grammars over real vocabularies, of the shared data.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/worker/text/grammar/grammar.h"
#include "tests/testing/shared_data.h"
#include "tests/worker/text/grammar/random_answer.h"

namespace continuo::testing {
namespace {

constexpr char kSchema[] = R"({
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 30},
                   "tags": {"type": "array", "items": {"enum": ["red", "green", "déjà vu 😀"]}, "maxItems": 3},
                   "size": {"type": "number", "minimum": 0, "maximum": 99}},
    "required": ["name", "tags", "size"], "additionalProperties": false})";

class SharedVocabularyTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string path = std::string("data/tokenizers/assembled/") + GetParam();
    if (!SharedExists(path)) GTEST_SKIP() << "no shared data";
    auto model = text::TextModel::Open(SharedPath(path));
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  std::unique_ptr<text::TextModel> model_;
};

INSTANTIATE_TEST_SUITE_P(Tokenizers, SharedVocabularyTest, ::testing::Values("qwen3", "llama3.2"));

TEST_P(SharedVocabularyTest, RandomAnswersObeyTheSchema) {
  std::mt19937_64 random(4);
  const auto grammar = text::Grammar::Compile(*model_, SchemaSource(kSchema));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  int num_finished = 0;
  for (int i = 0; i < 20; ++i) {
    const auto matcher = *(*grammar)->NewMatcher();
    const RandomAnswer answer = AnswerRandomly(*model_, *matcher, random, 100);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    if (!answer.is_finished) continue;
    ++num_finished;
    const auto json = nlohmann::json::parse(answer.text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << answer.text;
    EXPECT_EQ(json.size(), 3u) << answer.text;
    EXPECT_LE(json.at("tags").size(), 3u) << answer.text;
    EXPECT_LE(json.at("size"), 99) << answer.text;
  }
  EXPECT_GT(num_finished, 5);
}

TEST_P(SharedVocabularyTest, WhatTheTokenizerWritesIsAllowed) {
  const std::string answer =
      "{\n  \"name\": \"Ada, née Byron 😀\",\n  \"tags\": [\"red\", \"déjà vu 😀\"],\n  \"size\": "
      "12.5\n}";
  const auto ids = model_->Encode(answer, false);
  ASSERT_TRUE(ids.ok());
  const auto matcher = NewMatcher(*model_, SchemaSource(kSchema));
  std::mt19937_64 random(5);
  for (const int32_t id : *ids) {
    const std::vector<uint32_t> mask = MaskOf(*model_, *matcher);
    EXPECT_TRUE(HasBit(mask, id)) << model_->TokenName(id);
    for (int i = 0; i < 200; ++i) {
      const auto other = static_cast<int32_t>(random() % (mask.size() * 32));
      const bool accepts = matcher->Accept(other);
      ASSERT_EQ(accepts, HasBit(mask, other)) << other;
      if (accepts) matcher->Rollback(1);
    }
    ASSERT_TRUE(matcher->Accept(id));
  }
  EXPECT_TRUE(matcher->MustEnd());
}

}  // namespace
}  // namespace continuo::testing
