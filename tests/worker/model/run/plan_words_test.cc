// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/plan_words.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::model {
namespace {

using ::testing::ElementsAre;
using testing::LastOf;
using testing::PlanBuilder;

std::vector<int32_t> Of(const PlanWords& words, PlanWords::Part part) {
  EXPECT_EQ(part.begin % 4, 0u);  // 16 bytes
  const auto all = words.words().subspan(part.begin, part.size);
  return {all.begin(), all.end()};
}

TEST(PlanWordsTest, AStepIsFilledUpWithSequencesOfOneTokenInTheSpareBlock) {
  PlanBuilder builder(/*block_size=*/4, /*max_blocks=*/2);
  builder.Add(0, 5, std::vector<int32_t>{11}, std::vector<int32_t>{0});
  builder.Add(1, 2, std::vector<int32_t>{12}, std::vector<int32_t>{0});
  PlanWords words;
  for (int time = 0; time < 2; ++time) {
    words.Set(builder.plan(), std::vector<int32_t>{0, 1}, 4,
              {.num_sequences = 3, .columns = 3, .spare_block = 9});
    EXPECT_THAT(Of(words, words.token_ids()), ElementsAre(11, 12, 11, 12, 11));
    EXPECT_THAT(Of(words, words.positions()), ElementsAre(5, 2, 0, 0, 0));
    EXPECT_THAT(Of(words, words.kv_slots()), ElementsAre(5, 10, 36, 36, 36));
    EXPECT_THAT(Of(words, words.kv_len()), ElementsAre(6, 3, 1, 1, 1));
    EXPECT_THAT(Of(words, words.query_begin()), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(Of(words, words.wanted_rows()), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(Of(words, words.block_tables()),
                ElementsAre(0, 1, -1, 2, -1, -1, 9, -1, -1, 9, -1, -1, 9, -1, -1));
  }
}

TEST(PlanWordsTest, SequencesThatFillUpAStepHaveNoStates) {
  PlanBuilder builder(4, 2);
  builder.Add(0, 5, std::vector<int32_t>{11}, std::vector<int32_t>{0}).KeepState(3, 4);
  PlanWords words;
  words.Set(builder.plan(), std::vector<int32_t>{0}, 4,
            {.num_sequences = 2, .columns = 2, .spare_block = 9});
  EXPECT_THAT(Of(words, words.state_from()), ElementsAre(3, -1, -1));
  EXPECT_THAT(Of(words, words.state_to()), ElementsAre(4, -1, -1));
  builder.plan().state_from.clear();
  builder.plan().state_to.clear();
  words.Set(builder.plan(), std::vector<int32_t>{0}, 4, {.columns = 2});
  EXPECT_TRUE(Of(words, words.state_from()).empty());
}

TEST(PlanWordsTest, TypesOfTokensAreZeroWhereAPlanNamesNone) {
  PlanBuilder builder(4, 2);
  const std::vector<int32_t> tokens = {7, 8, 9};
  builder.Add(0, 0, tokens, LastOf(tokens));
  PlanWords words(/*has_token_types=*/true), without;
  for (PlanWords* const w : {&words, &without}) {
    w->Set(builder.plan(), std::vector<int32_t>{2}, 4, {.columns = 2});
  }
  EXPECT_THAT(Of(words, words.token_types()), ElementsAre(0, 0, 0));
  EXPECT_TRUE(Of(without, without.token_types()).empty());
  builder.plan().token_types = {0, 1, 2};
  words.Set(builder.plan(), std::vector<int32_t>{2}, 4,
            {.num_sequences = 2, .columns = 2, .spare_block = 9});
  EXPECT_THAT(Of(words, words.token_types()), ElementsAre(0, 1, 2, 0, 0));
  EXPECT_THAT(Of(words, words.token_ids()), ElementsAre(7, 8, 9, 7, 8));
  EXPECT_THAT(Of(words, words.block_tables()), ElementsAre(0, -1, 9, -1, 9, -1));
}

TEST(PlanWordsTest, APlanThatIsNotFilledUpIsItself) {
  PlanBuilder builder(4, 2);
  const std::vector<int32_t> tokens = {7, 8, 9};
  builder.Add(0, 0, tokens, LastOf(tokens));
  PlanWords words;
  words.Set(builder.plan(), std::vector<int32_t>{2}, 4, {.columns = 2});
  EXPECT_THAT(Of(words, words.token_ids()), ElementsAre(7, 8, 9));
  EXPECT_THAT(Of(words, words.query_begin()), ElementsAre(0, 3));
  EXPECT_THAT(Of(words, words.wanted_rows()), ElementsAre(2));
  EXPECT_THAT(Of(words, words.block_tables()), ElementsAre(0, -1));
}

}  // namespace
}  // namespace continuo::model
