// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/sequence_states.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

EngineOptions WithSlots(int num_slots) {
  EngineOptions options;
  options.num_state_slots = num_slots;
  return options;
}

// The positions, relative to the first row, behind which a plan leaves states.
std::vector<int> LeftBehind(const model::StepPlan& plan) {
  std::vector<int> rows;
  for (int r = 0; r < plan.num_rows(); ++r) {
    if (plan.state_to[r] >= 0) rows.push_back(r + 1);
  }
  return rows;
}

TEST(SequenceStatesTest, WithoutSlotsAPlanHasNoStates) {
  Harness h;
  h.Add(RequestOf(Tokens(9, 1), 2));
  const model::StepPlan plan = h.Step();
  EXPECT_THAT(plan.state_from, IsEmpty());
  EXPECT_THAT(plan.state_to, IsEmpty());
  h.RunToEnd();
  EXPECT_TRUE(h.status().ok()) << h.status();
}

TEST(SequenceStatesTest, AnAnswerIsComputedInOneSlot) {
  Harness h(WithSlots(8));  // blocks of 4
  Request request = RequestOf(Tokens(5, 1), 8);
  request.cache_bypass = true;
  const RequestId id = h.Add(request);
  const model::StepPlan first = h.Step();
  EXPECT_THAT(first.state_from, ElementsAre(-1));
  EXPECT_THAT(LeftBehind(first), ElementsAre(5));
  const int32_t slot = first.state_to.back();
  for (int i = 0; i < 7; ++i) {
    const model::StepPlan plan = h.Step();
    ASSERT_TRUE(h.status().ok()) << h.status();
    EXPECT_THAT(plan.state_from, ElementsAre(slot));
    EXPECT_THAT(plan.state_to, ElementsAre(slot));
  }
  EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
  EXPECT_TRUE(h.status().ok()) << h.status();
}

// A continuation begins behind the block that ends with another request's prompt, which is its own,
// and whose state that request keeps for siblings.
TEST(SequenceStatesTest, TwoRequestsKeepTheStateBehindOnePromptForTheirSiblings) {
  EngineOptions options = WithSlots(16);
  options.max_running = 3;  // the last sibling waits
  Harness h(options);
  Request request = RequestOf(Tokens(8, 1), 20);  // two whole blocks
  request.num_sequences = 2;
  request.sampling.temperature = 1;
  const RequestId first = h.Add(request);
  h.Step();
  constexpr int kReceived = 2;
  for (int i = 0; i < 2; ++i) {
    std::vector<int32_t> answer = h.Expected(first, i);
    answer.resize(kReceived);
    request.received.push_back({.tokens = answer});
  }
  const RequestId second = h.Add(request);
  h.RunToEnd();
  ASSERT_TRUE(h.status().ok()) << h.status();
  for (int i = 0; i < 2; ++i) {
    const std::vector<int32_t> expected = h.Expected(second, i);
    EXPECT_EQ(h.received(first).answers[i], h.Expected(first, i));
    EXPECT_THAT(h.received(second).answers[i],
                ::testing::ElementsAreArray(expected.begin() + kReceived, expected.end()));
  }
}

TEST(SequenceStatesTest, APromptLeavesSnapshotsBehindItsLastFullBlocks) {
  EngineOptions options = WithSlots(16);
  options.max_prefill_chunk = 10;
  Harness h(options);
  h.Add(RequestOf(Tokens(16, 1), 1));
  EXPECT_THAT(LeftBehind(h.Step()), ElementsAre(8, 10));
  // The prompt itself can be found to 12 only, its continuation to 16.
  EXPECT_THAT(LeftBehind(h.Step()), ElementsAre(2, 6));
}

TEST(SequenceStatesTest, ACachedPromptGoesOnBehindItsSnapshot) {
  Harness h(WithSlots(16));
  h.Add(RequestOf(Tokens(16, 1), 1));
  h.RunToEnd();
  const RequestId same = h.Add(RequestOf(Tokens(16, 1), 1));
  EXPECT_EQ(h.Step().num_rows(), 4);
  EXPECT_EQ(h.received(same).cached_prompt_tokens, 12);
  std::vector<int32_t> longer = Tokens(16, 1);
  longer.push_back(3);
  const RequestId id = h.Add(RequestOf(longer, 1));
  EXPECT_EQ(h.Step().num_rows(), 1);
  EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
  EXPECT_TRUE(h.status().ok()) << h.status();
}

TEST(SequenceStatesTest, TheThirdPromptFindsWhereTheFirstTwoBranch) {
  Harness h(WithSlots(32));
  const auto prompt = [](int salt) {
    std::vector<int32_t> tokens = Tokens(12, 1);  // three blocks
    const std::vector<int32_t> tail = Tokens(9, salt);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    return tokens;
  };
  std::vector<int> cached;
  for (int salt = 2; salt < 5; ++salt) {
    const RequestId id = h.Add(RequestOf(prompt(salt), 1));
    h.RunToEnd();
    EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
    cached.push_back(h.received(id).cached_prompt_tokens);
  }
  EXPECT_THAT(cached, ElementsAre(0, 0, 12));
}

TEST(SequenceStatesTest, TheNextTurnGoesOnBehindTheAnswer) {
  Harness h(WithSlots(16));
  const RequestId first = h.Add(RequestOf(Tokens(8, 1), 10));
  h.RunToEnd();
  // One snapshot of the answer is left, behind 16 tokens, beside those behind 4 and 8.
  EXPECT_EQ(h.scheduler().states().num_kept(), 3);
  std::vector<int32_t> next = Tokens(8, 1);
  next.insert(next.end(), h.received(first).answers[0].begin(), h.received(first).answers[0].end());
  const RequestId second = h.Add(RequestOf(next, 1));
  h.RunToEnd();
  EXPECT_EQ(h.received(second).cached_prompt_tokens, 16);
  EXPECT_EQ(h.received(second).answers[0], h.Expected(second));
  // The second request computes two tokens, which end no block.
  EXPECT_EQ(h.scheduler().states().num_kept(), 3);
}

TEST(SequenceStatesTest, SiblingsShareThePromptsState) {
  Harness h(WithSlots(16));
  Request request = RequestOf(Tokens(6, 1), 5);  // it ends within a block
  request.num_sequences = 4;
  request.sampling.temperature = 1;
  const RequestId id = h.Add(request);
  EXPECT_EQ(h.Step().num_rows(), 6);
  const model::StepPlan second = h.Step();
  EXPECT_EQ(second.num_rows(), 4);
  EXPECT_THAT(second.state_from, Each(second.state_from[0]));
  h.RunToEnd();
  EXPECT_EQ(h.tokens(), 6 + 4 * 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(h.received(id).answers[i], h.Expected(id, i));
  EXPECT_TRUE(h.status().ok()) << h.status();
  EXPECT_EQ(h.scheduler().states().num_used(), 0);
}

TEST(SequenceStatesTest, HalfAsManySequencesRunAsThereAreSlots) {
  Harness h(WithSlots(5));
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(h.Add(RequestOf(Tokens(5, i), 6)));
  int most = 0;
  while (!h.scheduler().idle() && h.status().ok()) most = std::max(most, h.Step().num_seqs());
  EXPECT_EQ(most, 2);
  EXPECT_EQ(h.scheduler().max_running(), 2);
  for (const RequestId id : ids) EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
  EXPECT_TRUE(h.status().ok()) << h.status();
}

TEST(SequenceStatesTest, StepsDoNotOverlap) {
  Harness h(WithSlots(8));
  const RequestId id = h.Add(RequestOf(Tokens(5, 1), 6));
  h.Step();
  h.Begin();
  EXPECT_FALSE(h.scheduler().CanOverlap());
  h.Finish();
  h.RunToEnd();
  EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
}

}  // namespace
}  // namespace continuo::engine
