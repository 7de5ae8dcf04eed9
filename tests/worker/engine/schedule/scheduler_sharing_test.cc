// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/scheduler.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kVocab = 50;

// ---- The prefix cache.

TEST(SchedulerTest, ACachedPromptIsComputedOnlyFromWhereItDiffers) {
  Harness h;  // blocks of 4
  std::vector<int32_t> a = Tokens(16, 1), b = a;
  b.push_back(3);
  h.Add(RequestOf(a, 1));
  h.RunToEnd();
  const int64_t before = h.tokens();
  const RequestId id = h.Add(RequestOf(b, 1));
  h.RunToEnd();
  EXPECT_EQ(h.tokens() - before, 1);
  EXPECT_EQ(h.received(id).cached_prompt_tokens, 16);
  EXPECT_EQ(h.metrics().prefix_cache_hit_tokens, 16u);
  EXPECT_EQ(h.metrics().prefix_cache_queried_tokens, 33u);
  EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
}

TEST(SchedulerTest, TheLastTokenOfAPromptIsAlwaysComputed) {
  Harness h;
  h.Add(RequestOf(Tokens(16, 1), 1));
  h.RunToEnd();
  const int64_t before = h.tokens();
  const RequestId id = h.Add(RequestOf(Tokens(16, 1), 1));
  h.RunToEnd();
  EXPECT_EQ(h.tokens() - before, 4);
  EXPECT_EQ(h.received(id).cached_prompt_tokens, 12);
}

TEST(SchedulerTest, AnswersAreCachedForTheNextTurn) {
  Harness h;
  const RequestId first = h.Add(RequestOf(Tokens(8, 1), 9));
  h.RunToEnd();
  std::vector<int32_t> next = Tokens(8, 1);
  next.insert(next.end(), h.received(first).answers[0].begin(), h.received(first).answers[0].end());
  next.push_back(1);
  const RequestId second = h.Add(RequestOf(next, 1));
  h.RunToEnd();
  EXPECT_EQ(h.received(second).cached_prompt_tokens, 16);
}

TEST(SchedulerTest, PrefixesAreNotSharedBetweenSalts) {
  Harness h;
  h.Add(RequestOf(Tokens(16, 1), 1));
  h.RunToEnd();
  Request other = RequestOf(Tokens(16, 1), 1);
  other.cache_salt = {0, 9};
  const RequestId id = h.Add(other);
  h.RunToEnd();
  EXPECT_EQ(h.received(id).cached_prompt_tokens, 0);
}

TEST(SchedulerTest, WithBypassTheCacheIsNeitherUsedNorFilled) {
  Harness h;
  Request request = RequestOf(Tokens(16, 1), 4);
  request.cache_bypass = true;
  h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.scheduler().pool().num_cached(), 0);
  request.cache_bypass = false;
  h.Add(request);
  h.RunToEnd();
  EXPECT_GT(h.scheduler().pool().num_cached(), 0);
  request.cache_bypass = true;
  request.id = 0;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.received(id).cached_prompt_tokens, 0);
  EXPECT_EQ(h.metrics().prefix_cache_hit_tokens, 0u);
}

// ---- Several sequences of one request.

class SequencesTest : public ::testing::TestWithParam<bool> {};  // cache_bypass

TEST_P(SequencesTest, ThePromptIsComputedOnceForAll) {
  for (const int prompt : {1, 3, 4, 13, 16}) {
    EngineOptions options;
    options.num_blocks = 1000;
    options.max_running = 128;
    options.max_batch_tokens = 256;
    Harness h(options);
    Request request = RequestOf(Tokens(prompt, 1), 5);
    request.num_sequences = 128;
    request.sampling.temperature = 1;
    request.cache_bypass = GetParam();
    const RequestId id = h.Add(request);
    h.RunToEnd();
    ASSERT_TRUE(h.status().ok()) << h.status();
    // The prompt is computed once, and each answer but for its last token.
    EXPECT_EQ(h.tokens(), prompt + 128 * 4);
    std::set<std::vector<int32_t>> distinct;
    for (int i = 0; i < 128; ++i) {
      EXPECT_EQ(h.received(id).answers[i], h.Expected(id, i));
      distinct.insert(h.received(id).answers[i]);
    }
    EXPECT_GT(distinct.size(), 100u);
  }
}

TEST_P(SequencesTest, TheLastTokenOfThePromptIsSampledForEach) {
  Harness h;
  Request request = RequestOf(Tokens(6, 1), 3);
  request.num_sequences = 4;
  request.cache_bypass = GetParam();
  h.Add(request);
  const model::StepPlan plan = h.Step();
  EXPECT_EQ(plan.num_seqs(), 1);
  EXPECT_THAT(plan.sample_rows, ElementsAre(5, 5, 5, 5));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(plan.sampling[i].sequence_index, i);
}

TEST_P(SequencesTest, FullBlocksAreSharedAndThePartialOneIsCopied) {
  Harness h;  // blocks of 4
  Request request = RequestOf(Tokens(10, 1), 6);
  request.num_sequences = 3;
  request.sampling.temperature = 1;
  request.cache_bypass = GetParam();
  h.Add(request);
  h.Step();
  const model::StepPlan plan = h.Step();
  ASSERT_EQ(plan.num_seqs(), 3);
  ASSERT_THAT(plan.block_copies, SizeIs(2));
  const auto block = [&](int sequence, int b) {
    return plan.block_tables[sequence * plan.max_blocks + b];
  };
  for (int i = 1; i < 3; ++i) {
    EXPECT_EQ(block(i, 0), block(0, 0));
    EXPECT_EQ(block(i, 1), block(0, 1));
    EXPECT_NE(block(i, 2), block(0, 2));
    EXPECT_EQ(plan.block_copies[i - 1].from, block(0, 2));  // the first keeps the original
    EXPECT_EQ(plan.block_copies[i - 1].to, block(i, 2));
  }
  EXPECT_EQ(h.scheduler().pool().num_used(), 2 + 3);
}

TEST_P(SequencesTest, ThePromptIsComputedOnceEvenIfOnlyOneCanRunAtATime) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  Request request = RequestOf(Tokens(13, 1), 5);
  request.num_sequences = 4;
  request.sampling.temperature = 1;
  request.cache_bypass = GetParam();
  const RequestId id = h.Add(request);
  h.RunToEnd();
  // Each transfers the blocks of the prompt to the next. The block in which the prompt ends may
  // also hold the answer of the one before; then its token is computed again.
  EXPECT_LE(h.tokens(), 13 + 4 * 4 + 3);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(h.received(id).answers[i], h.Expected(id, i));
}

TEST_P(SequencesTest, ASequenceThatEndsWithItsFirstTokenLeavesThePromptToTheOthers) {
  Harness h;
  Request request = RequestOf(Tokens(13, 1), 5);
  request.num_sequences = 3;
  request.sampling.temperature = 1;
  request.cache_bypass = GetParam();
  request.stop_ids = {FakeAnswer(request, 0, kVocab)[0]};
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.received(id).finish[0], FinishReason::kStop);
  EXPECT_THAT(h.received(id).answers[0], SizeIs(1));
  EXPECT_LE(h.tokens(), 13 + 2 * 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(h.received(id).answers[i], h.Expected(id, i));
}

TEST_P(SequencesTest, UnfinishedOnesOfAContinuationGoOnAndFinishedOnesAreLeftAlone) {
  Harness h;
  Request request = RequestOf(Tokens(10, 1), 8);
  request.num_sequences = 4;
  request.sampling.temperature = 1;
  request.cache_bypass = GetParam();
  std::vector<std::vector<int32_t>> whole;
  for (int i = 0; i < 4; ++i) whole.push_back(FakeAnswer(request, i, kVocab));
  request.received = {{{whole[0].begin(), whole[0].begin() + 3}},
                      {whole[1], /*finished=*/true},
                      {{}},
                      {{whole[3].begin(), whole[3].begin() + 6}}};
  const RequestId id = h.Add(request);
  h.RunToEnd();
  ASSERT_TRUE(h.received(id).ended->ok());
  EXPECT_THAT(h.received(id).answers[0],
              std::vector<int32_t>(whole[0].begin() + 3, whole[0].end()));
  EXPECT_THAT(h.received(id).answers[1], IsEmpty());
  EXPECT_EQ(h.received(id).finish[1], FinishReason::kNone);
  EXPECT_THAT(h.received(id).answers[2], whole[2]);
  EXPECT_THAT(h.received(id).answers[3],
              std::vector<int32_t>(whole[3].begin() + 6, whole[3].end()));
  // The prompt is computed once, and every answer but for its last token.
  EXPECT_EQ(h.tokens(), 10 + 7 + 7 + 7);
}

INSTANTIATE_TEST_SUITE_P(CacheAndBypass, SequencesTest, ::testing::Bool());

}  // namespace
}  // namespace continuo::engine
