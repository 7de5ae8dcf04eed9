// SPDX-License-Identifier: Apache-2.0
// The fake model's module gives the tokens that the model will give, if it is told the right hidden
// states, tokens and places: then every draft is right.
#include "services/worker/engine/draft/mtp_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

// Steps of the module take no time, so that drafts are always worth theirs.
absl::Duration Cost(const model::StepPlan& plan) {
  return plan.is_mtp() ? absl::ZeroDuration() : absl::Milliseconds(10);
}

struct Fixture : Harness {
  explicit Fixture(EngineOptions options = {}) : Harness(std::move(options), Cost, true) {}

  int64_t drafts() const { return static_cast<int64_t>(metrics().draft_tokens.load()); }
  int64_t right() const { return static_cast<int64_t>(metrics().accepted_draft_tokens.load()); }
  void ExpectUndisturbed(RequestId id, int index = 0) {
    ASSERT_TRUE(status().ok()) << status();
    ASSERT_TRUE(received(id).ended.has_value());
    EXPECT_TRUE(received(id).ended->ok()) << *received(id).ended;
    EXPECT_EQ(received(id).answers[static_cast<size_t>(index)], Expected(id, index));
  }
};

TEST(MtpDrafterTest, EveryDraftIsRight) {
  Fixture f;
  const RequestId id = f.Add(RequestOf(Tokens(9), 200));
  f.RunToEnd();
  f.ExpectUndisturbed(id);
  EXPECT_GT(f.drafts(), 120);
  EXPECT_EQ(f.right(), f.drafts());
  EXPECT_EQ(f.executor().num_mtp_gaps(), 0);
  EXPECT_LT(f.steps(), 60);
}

TEST(MtpDrafterTest, PromptsInChunksAndManySequencesLeaveNoGap) {
  EngineOptions options;
  options.max_prefill_chunk = 7;
  options.max_drafts = 3;
  Fixture f(options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 12; ++i) {
    Request request = RequestOf(Tokens(5 + 3 * i, i), 20 + i);
    request.sampling.temperature = static_cast<float>(i % 3);
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i % 4 == 1) request.sampling.repetition_penalty = 1.2f;
    if (i % 4 == 2) request.sampling.presence_penalty = 0.5f;
    if (i % 4 == 3) request.biases = {{.token_id = 7, .bias = 1.5f}};
    ids.push_back(f.Add(std::move(request)));
  }
  f.RunToEnd();
  for (const RequestId id : ids) f.ExpectUndisturbed(id);
  EXPECT_GT(f.drafts(), 100);
  EXPECT_EQ(f.right(), f.drafts());
  EXPECT_EQ(f.executor().num_mtp_gaps(), 0);
}

// Keys and values of the module lie in the blocks of the prefix cache.
TEST(MtpDrafterTest, APrefixOfTheCacheHasTheModulesKeysAndValues) {
  Fixture f;
  f.Add(RequestOf(Tokens(30), 10));
  f.RunToEnd();
  const int64_t steps = f.executor().num_mtp_steps();
  EXPECT_GT(steps, 0);
  const RequestId again = f.Add(RequestOf(Tokens(30), 30));
  f.RunToEnd();
  f.ExpectUndisturbed(again);
  EXPECT_GT(f.received(again).cached_prompt_tokens, 20);
  EXPECT_EQ(f.executor().num_mtp_gaps(), 0);
  EXPECT_EQ(f.right(), f.drafts());
}

// The last position of a cached prefix was computed for another next token: a worse draft at most.
TEST(MtpDrafterTest, AnotherContinuationOfACachedPrefixAnswersTheSame) {
  Fixture f;
  f.Add(RequestOf(Tokens(32), 10));
  f.RunToEnd();
  std::vector<int32_t> other = Tokens(24);
  for (const int32_t token : Tokens(9, 5)) other.push_back(token);
  const RequestId id = f.Add(RequestOf(other, 30));
  f.RunToEnd();
  f.ExpectUndisturbed(id);
  EXPECT_EQ(f.received(id).cached_prompt_tokens, 24);
  EXPECT_GT(f.executor().num_mtp_gaps(), 0);
}

TEST(MtpDrafterTest, SiblingsDraftEachTheirOwn) {
  Fixture f;
  Request request = RequestOf(Tokens(10), 40);
  request.num_sequences = 3;
  request.sampling.temperature = 1;
  const RequestId id = f.Add(std::move(request));
  f.RunToEnd();
  for (int i = 0; i < 3; ++i) f.ExpectUndisturbed(id, i);
  EXPECT_GT(f.drafts(), 60);
  EXPECT_EQ(f.right(), f.drafts());
}

// Little memory: sequences are preempted, and what they computed is void.
TEST(MtpDrafterTest, PreemptedSequencesAnswerTheSame) {
  EngineOptions options;
  options.num_blocks = 14;
  options.expected_answer_tokens = 4;
  Fixture f(options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(f.Add(RequestOf(Tokens(9, i), 30)));
  f.RunToEnd();
  for (const RequestId id : ids) f.ExpectUndisturbed(id);
  EXPECT_GT(f.metrics().preemptions.load(), 0u);
  EXPECT_GT(f.drafts(), 30);
  EXPECT_EQ(f.right(), f.drafts());
}

// A request that ends between two steps takes nothing with it.
TEST(MtpDrafterTest, RequestsThatEndBetweenStepsAreForgotten) {
  Fixture f;
  const RequestId gone = f.Add(RequestOf(Tokens(9), 100)),
                  stays = f.Add(RequestOf(Tokens(9, 2), 60));
  for (int i = 0; i < 4; ++i) f.Step();
  f.scheduler().End(gone, absl::CancelledError("gone"), f.now());
  f.scheduler().Deliver();
  f.RunToEnd();
  f.ExpectUndisturbed(stays);
  EXPECT_GT(f.drafts(), 40);
  EXPECT_EQ(f.right(), f.drafts());
}

// Equal requests side by side give their equal blocks up for one, where one of them writes.
TEST(MtpDrafterTest, EqualRequestsShareBlocksThatOneOfThemWrites) {
  for (const int prompt : {3, 8, 30}) {
    Fixture f;
    const RequestId a = f.Add(RequestOf(Tokens(prompt), 50)),
                    b = f.Add(RequestOf(Tokens(prompt), 50));
    f.RunToEnd();
    f.ExpectUndisturbed(a);
    f.ExpectUndisturbed(b);
    EXPECT_GT(f.drafts(), 20) << prompt;
  }
}

// The module does not read a sequence's last step, whose part it lacks in the cached prefix.
TEST(MtpDrafterTest, APromptThatEndedInItsFirstStepIsCachedWithoutTheModulesPart) {
  Fixture f;
  f.Add(RequestOf(Tokens(24), 1));
  f.RunToEnd();
  EXPECT_EQ(f.executor().num_mtp_gaps(), 0);
  const RequestId again = f.Add(RequestOf(Tokens(30), 30));
  f.RunToEnd();
  f.ExpectUndisturbed(again);
  EXPECT_GT(f.received(again).cached_prompt_tokens, 20);
  EXPECT_GT(f.executor().num_mtp_gaps(), 0);
  EXPECT_GT(f.drafts(), 10);
}

TEST(MtpDrafterTest, DraftsGoOnBeyondTheEndOfABlock) {
  EngineOptions options;
  options.block_size = 2;
  Fixture f(options);
  const RequestId id = f.Add(RequestOf(Tokens(9), 200));
  f.RunToEnd();
  f.ExpectUndisturbed(id);
  EXPECT_EQ(f.right(), f.drafts());
  EXPECT_LT(f.steps(), 40);
}

// The scheduler releases the blocks that it reserved for drafts which nobody made.
TEST(MtpDrafterTest, AnExecutorThatFailsGivesNoDraftsAndTheirBlocksBack) {
  EngineOptions options;
  options.block_size = 2;
  Fixture f(options);
  f.Add(RequestOf(Tokens(9), 100));
  while (f.Step().num_samples() < 4) ASSERT_LT(f.steps(), 20);
  f.executor().FailWith(absl::InternalError("lost"));
  const int64_t steps = f.executor().num_mtp_steps();
  const model::StepPlan plan = f.Begin();
  EXPECT_EQ(plan.num_samples(), 1);
  EXPECT_FALSE(f.status().ok());
  EXPECT_EQ(f.executor().num_mtp_steps(), steps);
  EXPECT_EQ(f.scheduler().pool().num_used(), BlocksFor(plan.positions.back() + 1, 2));
}

}  // namespace
}  // namespace continuo::engine
