// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/batch_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/cli/fleet/steps.h"

namespace continuo::cli {
namespace {

using ::testing::ElementsAre;
using testing::MakeStep;

constexpr auto kLength = v1::FINISH_REASON_LENGTH;
using State = BatchRow::State;

TEST(BatchRowsTest, ARowTellsHowFarItsRequestIs) {
  BatchRows batch;
  batch.Take(MakeStep(1, {{"a", 100, 32, 50, 0}}));
  EXPECT_EQ(batch.rows()[0].state, State::kPrefill);
  EXPECT_EQ(batch.rows()[0].cached_tokens, 32u);
  EXPECT_EQ(batch.rows()[0].prefilled_tokens, 82u);
  batch.Take(MakeStep(2, {{"a", 100, 82, 18, 1}}));
  EXPECT_EQ(batch.rows()[0].state, State::kGenerating);
  batch.Take(MakeStep(3, {{"a", 100, 100, 1, 2}}));
  EXPECT_EQ(batch.rows()[0].prefilled_tokens, 100u);
  EXPECT_EQ(batch.rows()[0].cached_tokens, 32u);
  EXPECT_EQ(batch.rows()[0].generated_tokens, 2u);
}

TEST(BatchRowsTest, TheNextRequestTakesTheFreeRow) {
  BatchRows batch;
  batch.Take(MakeStep(1, {{"a", 5, 0, 5, 1}, {"b", 5, 0, 5, 1}, {"c", 5, 0, 5, 1}}));
  batch.Take(MakeStep(2, {{"a", 5, 5, 1, 2}, {"b", 5, 5, 1, 2, kLength}, {"c", 5, 5, 1, 2}}));
  EXPECT_EQ(batch.rows()[1].state, State::kEnded);
  EXPECT_EQ(batch.num_running(), 2u);
  EXPECT_THAT(batch.Take(MakeStep(3, {{"c", 5, 6, 1, 3}, {"d", 9, 0, 9, 1}, {"a", 5, 6, 1, 3}})),
              ElementsAre(2, 1, 0));
  EXPECT_EQ(batch.rows()[1].name, "d");
  EXPECT_EQ(batch.rows().size(), 3u);
}

TEST(BatchRowsTest, TheRowOfASequenceThatEndsIsFreeFromTheNextStepOn) {
  BatchRows batch;
  batch.Take(MakeStep(1, {{"a", 5, 0, 5, 1}, {"b", 5, 0, 5, 1}}));
  batch.Take(MakeStep(2, {{"a", 5, 5, 1, 2}, {"b", 5, 5, 1, 2, kLength}}));
  EXPECT_THAT(batch.Take(MakeStep(3, {{"a", 5, 6, 1, 3, kLength}, {"c", 9, 0, 9, 1}})),
              ElementsAre(0, 1));
  EXPECT_EQ(batch.rows()[0].state, State::kEnded);
  EXPECT_THAT(batch.Take(MakeStep(4, {{"c", 9, 9, 1, 2}, {"d", 9, 0, 9, 1}})), ElementsAre(1, 0));
}

TEST(BatchRowsTest, AnIdThatComesBackIsAnotherRequest) {
  BatchRows batch;
  batch.Take(MakeStep(1, {{"a", 5, 0, 5, 1, kLength}}));
  batch.Take(MakeStep(2, {{"a", 7, 4, 3, 1}}));
  EXPECT_EQ(batch.rows().size(), 1u);
  EXPECT_EQ(batch.rows()[0].prompt_tokens, 7u);
  EXPECT_EQ(batch.rows()[0].cached_tokens, 4u);
}

TEST(BatchRowsTest, EqualIdsOfTenantsAndSequencesOfARequestHaveRowsOfTheirOwn) {
  BatchRows batch;
  EXPECT_THAT(
      batch.Take(MakeStep(
          1, {{"a", 5, 0, 5, 1}, {"a", 8, 0, 8, 1}, {"a", 5, 5, 1, 1, {}, false, /*index=*/1}})),
      ElementsAre(0, 1, 2));
  EXPECT_EQ(batch.rows()[2].name, "a#1");
}

TEST(BatchRowsTest, WhatIsPreemptedKeepsItsRow) {
  BatchRows batch;
  batch.Take(MakeStep(1, {{"a", 5, 0, 5, 1}, {"b", 5, 0, 5, 1}}));
  batch.Take(MakeStep(2, {{"a", 5, 5, 1, 2}, {"b", 5, 0, 0, 1, {}, /*preempted=*/true}}));
  EXPECT_EQ(batch.rows()[1].state, State::kPreempted);
  for (uint64_t i = 3; i < 1000; ++i) batch.Take(MakeStep(i, {{"a", 5, 5, 1, 3}}));
  batch.Take(MakeStep(1000, {{"c", 5, 0, 5, 1}, {"b", 5, 0, 6, 2}}));
  EXPECT_EQ(batch.rows()[1].name, "b");
  EXPECT_EQ(batch.rows()[1].state, State::kGenerating);
}

TEST(BatchRowsTest, WhoLeavesWithoutALastStepIsGone) {
  BatchRows batch;
  batch.Take(MakeStep(1, {{"a", 5, 0, 5, 1}, {"b", 5, 0, 5, 1}}));
  uint64_t step = 2;
  for (; step <= 100; ++step) batch.Take(MakeStep(step, {{"b", 5, 5, 1, 2}}));
  EXPECT_EQ(batch.rows()[0].state, State::kGenerating);  // perhaps left out of steps
  for (; step <= 300; ++step) batch.Take(MakeStep(step, {{"b", 5, 5, 1, 2}}));
  EXPECT_EQ(batch.rows()[0].state, State::kGone);
  batch.Take(MakeStep(step, {{"a", 5, 5, 1, 2}}));  // it was not
  EXPECT_EQ(batch.rows()[0].state, State::kGenerating);
}

TEST(BatchRowsTest, NothingRunsAfterAllHaveLeft) {
  BatchRows batch;
  batch.Take(MakeStep(1, {{"a", 5, 0, 5, 1}, {"b", 5, 0, 5, 1, kLength}}));
  batch.Leave();
  EXPECT_EQ(batch.rows()[0].state, State::kGone);
  EXPECT_EQ(batch.rows()[1].state, State::kEnded);
}

TEST(BatchRowsTest, AStepThatNoWorkerMakesDoesNoHarm) {
  BatchRows batch;
  v1::Step step;
  for (int i = 0; i < 10000; ++i) step.add_sequences()->set_index(static_cast<uint32_t>(i));
  step.mutable_start_time()->set_seconds(std::numeric_limits<int64_t>::max());
  const std::vector<size_t> rows = batch.Take(step);
  EXPECT_EQ(batch.rows().size(), BatchRows::kMaxRows);
  EXPECT_EQ(rows.back(), BatchRows::kNoRow);
  v1::Step other = MakeStep(7, {{std::string(100000, 'x'), 5, 4'000'000'000, 4'000'000'000, 1}});
  other.mutable_start_time()->set_seconds(std::numeric_limits<int64_t>::min());
  other.mutable_sequences(0)->set_finish_reason(static_cast<v1::FinishReason>(99));
  BatchRows second;
  second.Take(other);
  EXPECT_LT(second.rows()[0].name.size(), 1000u);
  EXPECT_EQ(second.rows()[0].prefilled_tokens, 5u);
  EXPECT_EQ(FinishName(second.rows()[0].finish), "reason 99");
}

TEST(PlainTextTest, OnlyPrintableAsciiPasses) {
  EXPECT_EQ(PlainText("a b~", 10), "a b~");
  EXPECT_EQ(PlainText("\x1b[2J\r\n\t\x7f\u009b\u202e", 20), "?[2J????" + std::string("?????"));
  EXPECT_EQ(PlainText("abc", 2), "ab");
}

}  // namespace
}  // namespace continuo::cli
