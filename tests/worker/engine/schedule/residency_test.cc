// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/residency.h"

#include <gmock/gmock.h>

#include <utility>

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;

// A residency with an empty step; the test plays the other parts of the scheduler.
class ResidencyTest : public ::testing::Test {
 protected:
  explicit ResidencyTest(int num_blocks = 8)
      : options_{.num_blocks = num_blocks, .block_size = 4, .vocab_size = 50, .max_running = 4} {
    step_.Clear(/*step_number=*/1, /*token_budget=*/64);
  }
  LiveRequest& Add(int prompt, int max_tokens, int priority = 0, int num_sequences = 1) {
    Request r;
    r.id = ++num_requests_;
    for (int i = 0; i < prompt; ++i) r.prompt.push_back(i);
    r.max_tokens = max_tokens;
    r.priority = priority;
    r.num_sequences = num_sequences;
    return *book_.Add(
        std::move(r), [](RequestEvent) {}, absl::ZeroDuration());
  }
  bool Admit(LiveRequest& r) { return residency_.TryAdmit(r.sequences[0], step_); }
  // As if the first `num_tokens` had been computed.
  void Compute(Sequence& s, int num_tokens) {
    residency_.Grow(s, num_tokens);
    s.num_computed = num_tokens;
  }

  const EngineOptions options_;
  EngineMetrics metrics_;
  RequestBook book_{/*max_batch_tokens=*/64, &metrics_};
  Residency residency_{&options_, &book_, &metrics_};
  PlannedStep step_{.plan = {4, 64}};
  RequestId num_requests_ = 0;
};

TEST_F(ResidencyTest, RunningSequencesAreInOrderOfRank) {
  LiveRequest &low = Add(4, 4, -1), &high = Add(4, 4, 1);
  EXPECT_TRUE(Admit(low));
  EXPECT_TRUE(Admit(high));
  EXPECT_THAT(residency_.running(), ElementsAre(&high.sequences[0], &low.sequences[0]));
}

TEST_F(ResidencyTest, APreemptedSequenceGivesItsBlocksBackAndIsGuaranteed) {
  Sequence& s = Add(8, 4).sequences[0];
  ASSERT_TRUE(residency_.TryAdmit(s, step_));
  Compute(s, 8);
  EXPECT_EQ(residency_.pool().num_used(), 2);
  residency_.Preempt(s, step_);
  EXPECT_EQ(residency_.pool().num_used(), 0);
  EXPECT_EQ(s.state, SequenceState::kWaiting);
  EXPECT_TRUE(s.guaranteed);
  EXPECT_THAT(step_.preempted, ElementsAre(&s));
}

TEST_F(ResidencyTest, APublishedPromptIsFoundAgainExceptForItsLastToken) {
  Sequence& first = Add(8, 4).sequences[0];
  ASSERT_TRUE(residency_.TryAdmit(first, step_));
  Compute(first, 8);
  residency_.Publish(first, 8);
  book_.OnFinished(first, /*step=*/1);
  EXPECT_FALSE(residency_.Retire(first, /*last_step=*/1));
  EXPECT_EQ(residency_.pool().num_cached(), 2);
  Sequence& second = Add(8, 4).sequences[0];
  ASSERT_TRUE(residency_.TryAdmit(second, step_));
  EXPECT_EQ(second.num_computed, 4);
  EXPECT_EQ(second.request->cached_prompt_tokens, 4);
}

TEST_F(ResidencyTest, ARetiredSequenceTransfersItsPromptToASibling) {
  LiveRequest& r = Add(6, 4, 0, 2);
  Sequence &leader = r.sequences[0], &sibling = r.sequences[1];
  ASSERT_TRUE(residency_.TryAdmit(leader, step_));
  Compute(leader, 6);
  book_.OnPrefillDone(r);
  book_.OnFinished(leader, /*step=*/1);
  EXPECT_TRUE(residency_.Retire(leader, /*last_step=*/1));
  EXPECT_THAT(residency_.running(), ElementsAre(&sibling));
  EXPECT_EQ(sibling.num_computed, 5);  // the last token of the prompt is sampled from again
  EXPECT_EQ(residency_.pool().num_used(), 2);
  EXPECT_EQ(residency_.unaccounted_blocks(), 0);
}

TEST_F(ResidencyTest, AHeadThatDidNotFitIsBlockedUntilARelease) {
  Sequence& first = Add(20, 8).sequences[0];
  ASSERT_TRUE(residency_.TryAdmit(first, step_));
  Sequence& second = Add(20, 8).sequences[0];
  EXPECT_FALSE(residency_.IsBlocked(second));
  EXPECT_FALSE(residency_.TryAdmit(second, step_));
  EXPECT_TRUE(residency_.IsBlocked(second));
  residency_.Grow(first, 24);
  residency_.Shrink(first, 20);
  EXPECT_FALSE(residency_.IsBlocked(second));
}

class TwoBlocksTest : public ResidencyTest {
 protected:
  TwoBlocksTest() : ResidencyTest(2) {}
};

TEST_F(TwoBlocksTest, ADecodeTakesItsBlockFromTheOneThatRanksLast) {
  LiveRequest &a = Add(4, 1), &b = Add(4, 1);
  for (LiveRequest* r : {&a, &b}) {
    ASSERT_TRUE(Admit(*r));
    Compute(r->sequences[0], 4);
  }
  for (LiveRequest* r : {&a, &b}) r->sequences[0].answer.push_back(7);
  EXPECT_FALSE(residency_.CanReserveNextTokens());
  residency_.ReserveNextTokens(step_);
  EXPECT_THAT(residency_.running(), ElementsAre(&a.sequences[0]));
  EXPECT_THAT(step_.preempted, ElementsAre(&b.sequences[0]));
  EXPECT_TRUE(residency_.HasBlockForNextToken(a.sequences[0]));
}

}  // namespace
}  // namespace continuo::engine
