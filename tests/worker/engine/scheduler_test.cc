// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/scheduler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/worker/engine/harness.h"

namespace continuo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kVocab = 50;

int RowsOf(const StepPlan& plan, int sequence) {
  return plan.query_begin[sequence + 1] - plan.query_begin[sequence];
}

// The plan's rows of prompts, per sequence, in the order of the plan.
std::vector<int> Chunks(const StepPlan& plan) {
  std::vector<int> chunks;
  for (int i = 0; i < plan.num_seqs(); ++i) {
    if (RowsOf(plan, i) > 1) chunks.push_back(RowsOf(plan, i));
  }
  return chunks;
}

// Its answers are long enough to be there for the whole test.
Request Endless(int salt, int prompt = 4) { return RequestOf(Tokens(prompt, salt), 200); }

// ---- Steps.

TEST(SchedulerTest, AnAnswerEqualsTheUncachedOne) {
  Harness h;
  const RequestId id = h.Add(RequestOf(Tokens(9), 12));
  h.RunToEnd();
  ASSERT_TRUE(h.status().ok()) << h.status();
  EXPECT_TRUE(h.heard(id).ended->ok());
  EXPECT_EQ(h.heard(id).answers[0], h.Expected(id));
  EXPECT_EQ(h.heard(id).finish[0], FinishReason::kLength);
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
}

TEST(SchedulerTest, AStepNeverHasMoreRowsOrSequencesThanAllowed) {
  EngineOptions options;
  options.max_batch_tokens = 10;
  options.max_running = 3;
  Harness h(options);
  for (int i = 0; i < 8; ++i) h.Add(RequestOf(Tokens(20, i), 5));
  while (!h.scheduler().idle()) {
    const StepPlan plan = h.Step();
    EXPECT_LE(plan.num_rows(), 10);
    EXPECT_LE(plan.num_seqs(), 3);
  }
}

TEST(SchedulerTest, RunningStreamsGetATokenInEveryStepBesideALongPrompt) {
  EngineOptions options;
  options.max_prefill_chunk = 16;
  options.max_batch_tokens = 64;
  Harness h(options);
  h.Add(RequestOf(Tokens(40, 3), 1));
  h.RunToEnd();  // so that the step cost knows steps of this size
  const RequestId stream = h.Add(Endless(1));
  h.Step();
  h.Add(RequestOf(Tokens(300, 2), 1));
  for (int i = 0; i < 10; ++i) {
    const size_t before = h.heard(stream).answers[0].size();
    const StepPlan plan = h.Step();
    EXPECT_EQ(h.heard(stream).answers[0].size(), before + 1);
    EXPECT_THAT(Chunks(plan), ElementsAre(16));  // the cap on one prompt
  }
}

TEST(SchedulerTest, AShortPromptIsNotHeldUpByALongOne) {
  EngineOptions options;
  options.max_batch_tokens = 64;
  Harness h(options);
  for (int i = 0; i < 3; ++i) h.Add(RequestOf(Tokens(20, i), 1));
  h.RunToEnd();  // so that the step cost knows steps of this size
  h.Add(RequestOf(Tokens(600, 4), 1));
  const RequestId small = h.Add(RequestOf(Tokens(20, 5), 1));
  h.Step();
  EXPECT_TRUE(h.heard(small).ended.has_value());
}

TEST(SchedulerTest, WhatNobodyElseNeedsGoesToTheFirstPrompt) {
  EngineOptions options;
  options.max_batch_tokens = 64;
  Harness h(options);
  h.Add(RequestOf(Tokens(64, 1), 1));
  h.RunToEnd();
  h.Add(RequestOf(Tokens(200, 4), 1));
  h.Add(RequestOf(Tokens(20, 5), 1));
  EXPECT_THAT(Chunks(h.Step()), ElementsAre(44, 20));
}

TEST(SchedulerTest, StepsAreCutToTheirPredictedCost) {
  EngineOptions options;
  options.target_step = absl::Milliseconds(50);
  Harness h(options, [](const StepPlan& plan) {
    return absl::Milliseconds(2) + plan.num_rows() * absl::Milliseconds(1);
  });
  for (int i = 0; i < 4; ++i) h.Add(RequestOf(Tokens(200, i), 2));
  absl::Duration longest;
  while (!h.scheduler().idle()) {
    const absl::Duration begin = h.clock().Elapsed();
    h.Step();
    if (h.steps() > 6) longest = std::max(longest, h.clock().Elapsed() - begin);
  }
  EXPECT_LE(longest, absl::Milliseconds(55));
  EXPECT_GE(longest, absl::Milliseconds(40));  // and not to less
}

TEST(SchedulerTest, ATenTimesSlowerExecutorGetsSmallerChunks) {
  const auto largest_chunk = [](int slower) {
    EngineOptions options;
    options.num_blocks = 2000;
    Harness h(options, [slower](const StepPlan& plan) {
      return slower * (absl::Milliseconds(2) + plan.num_rows() * absl::Microseconds(400));
    });
    for (int i = 0; i < 4; ++i) h.Add(RequestOf(Tokens(1500, i), 2));
    int largest = 0;
    while (!h.scheduler().idle()) {
      const StepPlan plan = h.Step();
      if (h.steps() > 8) largest = std::max(largest, plan.num_rows());
    }
    EXPECT_TRUE(h.status().ok()) << h.status();
    return largest;
  };
  const int fast = largest_chunk(1), slow = largest_chunk(10);
  EXPECT_NEAR(fast, (200 - 2) / 0.4, 60);
  EXPECT_NEAR(slow, (200 - 20) / 4.0, 8);
}

TEST(SchedulerTest, AnExecutorThatBecomesSlowerGetsSmallerChunks) {
  EngineOptions options;
  options.num_blocks = 4000;
  int slower = 1;
  Harness h(options, [&slower](const StepPlan& plan) {
    return slower * (absl::Milliseconds(2) + plan.num_rows() * absl::Microseconds(400));
  });
  for (int i = 0; i < 4; ++i) h.Add(RequestOf(Tokens(3000, i), 2));
  for (int i = 0; i < 10; ++i) h.Step();
  EXPECT_GT(h.Step().num_rows(), 300);
  slower = 10;
  for (int i = 0; i < 30; ++i) h.Step();
  EXPECT_LT(h.Step().num_rows(), 60);
}

TEST(SchedulerTest, WhereOneRowCostsMoreThanAStepMayAStepIsOneRow) {
  EngineOptions options;
  Harness h(options, [](const StepPlan& plan) { return plan.num_rows() * absl::Seconds(1); });
  const RequestId a = h.Add(RequestOf(Tokens(5, 1), 3)), b = h.Add(RequestOf(Tokens(5, 2), 3));
  h.Step();  // nothing is known yet
  while (!h.scheduler().idle()) EXPECT_EQ(h.Step().num_rows(), 1);
  EXPECT_EQ(h.heard(a).answers[0], h.Expected(a));
  EXPECT_EQ(h.heard(b).answers[0], h.Expected(b));
}

TEST(SchedulerTest, NoMoreAreAdmittedThanAStepHasRowsFor) {
  EngineOptions options;
  options.max_batch_tokens = 3;
  Harness h(options);
  for (int i = 0; i < 4; ++i) h.Add(Endless(i, 2));
  int most = 0;
  for (int i = 0; i < 100; ++i) {
    h.Step();
    most = std::max(most, h.scheduler().num_running());
  }
  EXPECT_EQ(most, 3);
}

TEST(SchedulerTest, StreamsTakeTurnsWhereAStepCannotHoldThemAll) {
  EngineOptions options;
  options.num_blocks = 1000;
  bool slow = false;
  Harness h(options, [&slow](const StepPlan& plan) {
    return plan.num_rows() * (slow ? absl::Milliseconds(50) : absl::Milliseconds(1));
  });
  for (int i = 0; i < 8; ++i) h.Add(Endless(i));
  for (int i = 0; i < 10; ++i) h.Step();
  ASSERT_EQ(h.scheduler().num_running(), 8);
  slow = true;  // four rows take all of a step
  for (int i = 0; i < 10; ++i) h.Step();
  std::vector<size_t> before;
  for (int id = 1; id <= 8; ++id) before.push_back(h.heard(id).answers[0].size());
  for (int i = 0; i < 40; ++i) EXPECT_LT(h.Step().num_rows(), 8);
  std::vector<size_t> gained;
  for (int id = 1; id <= 8; ++id) {
    gained.push_back(h.heard(id).answers[0].size() - before[id - 1]);
  }
  const auto [least, most] = std::ranges::minmax(gained);
  EXPECT_GE(least, 15u);
  EXPECT_LE(most - least, 1u);
}

// ---- The prefix cache.

TEST(SchedulerTest, ACachedPromptIsComputedOnlyFromWhereItDiffers) {
  Harness h;  // blocks of 4
  std::vector<int32_t> a = Tokens(16, 1), b = a;
  b.push_back(3);
  h.Add(RequestOf(a, 1));
  h.RunToEnd();
  const int64_t rows = h.rows();
  const RequestId id = h.Add(RequestOf(b, 1));
  h.RunToEnd();
  EXPECT_EQ(h.rows() - rows, 1);
  EXPECT_EQ(h.heard(id).cached_prompt_tokens, 16);
  EXPECT_EQ(h.metrics().prefix_cache_hit_tokens, 16u);
  EXPECT_EQ(h.metrics().prefix_cache_queried_tokens, 33u);
  EXPECT_EQ(h.heard(id).answers[0], h.Expected(id));
}

TEST(SchedulerTest, TheLastTokenOfAPromptIsAlwaysComputed) {
  Harness h;
  h.Add(RequestOf(Tokens(16, 1), 1));
  h.RunToEnd();
  const int64_t rows = h.rows();
  const RequestId id = h.Add(RequestOf(Tokens(16, 1), 1));
  h.RunToEnd();
  EXPECT_EQ(h.rows() - rows, 4);
  EXPECT_EQ(h.heard(id).cached_prompt_tokens, 12);
}

TEST(SchedulerTest, AnswersAreCachedForTheNextTurn) {
  Harness h;
  const RequestId first = h.Add(RequestOf(Tokens(8, 1), 9));
  h.RunToEnd();
  std::vector<int32_t> next = Tokens(8, 1);
  next.insert(next.end(), h.heard(first).answers[0].begin(), h.heard(first).answers[0].end());
  next.push_back(1);
  const RequestId second = h.Add(RequestOf(next, 1));
  h.RunToEnd();
  EXPECT_EQ(h.heard(second).cached_prompt_tokens, 16);
}

TEST(SchedulerTest, PrefixesAreNotSharedBetweenSalts) {
  Harness h;
  h.Add(RequestOf(Tokens(16, 1), 1));
  h.RunToEnd();
  Request other = RequestOf(Tokens(16, 1), 1);
  other.cache_salt = {0, 9};
  const RequestId id = h.Add(other);
  h.RunToEnd();
  EXPECT_EQ(h.heard(id).cached_prompt_tokens, 0);
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
  EXPECT_EQ(h.heard(id).cached_prompt_tokens, 0);
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
    // All but the last token of each answer is computed, the prompt once.
    EXPECT_EQ(h.rows(), prompt + 128 * 4);
    std::set<std::vector<int32_t>> distinct;
    for (int i = 0; i < 128; ++i) {
      EXPECT_EQ(h.heard(id).answers[i], h.Expected(id, i));
      distinct.insert(h.heard(id).answers[i]);
    }
    EXPECT_GT(distinct.size(), 100u);
  }
}

TEST_P(SequencesTest, TheLastRowOfThePromptIsSampledForEach) {
  Harness h;
  Request request = RequestOf(Tokens(6, 1), 3);
  request.num_sequences = 4;
  request.cache_bypass = GetParam();
  h.Add(request);
  const StepPlan plan = h.Step();
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
  const StepPlan plan = h.Step();
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

TEST_P(SequencesTest, ThePromptIsComputedOnceAlsoWhereOnlyOneCanRunAtATime) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  Request request = RequestOf(Tokens(13, 1), 5);
  request.num_sequences = 4;
  request.sampling.temperature = 1;
  request.cache_bypass = GetParam();
  const RequestId id = h.Add(request);
  h.RunToEnd();
  // Each hands the prompt's blocks on; the one that the prompt ends in may hold the answer of the
  // one before, then its row is computed again.
  EXPECT_LE(h.rows(), 13 + 4 * 4 + 3);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(h.heard(id).answers[i], h.Expected(id, i));
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
  EXPECT_EQ(h.heard(id).finish[0], FinishReason::kStop);
  EXPECT_THAT(h.heard(id).answers[0], SizeIs(1));
  EXPECT_LE(h.rows(), 13 + 2 * 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(h.heard(id).answers[i], h.Expected(id, i));
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
  ASSERT_TRUE(h.heard(id).ended->ok());
  EXPECT_THAT(h.heard(id).answers[0], std::vector<int32_t>(whole[0].begin() + 3, whole[0].end()));
  EXPECT_THAT(h.heard(id).answers[1], IsEmpty());
  EXPECT_EQ(h.heard(id).finish[1], FinishReason::kNone);
  EXPECT_THAT(h.heard(id).answers[2], whole[2]);
  EXPECT_THAT(h.heard(id).answers[3], std::vector<int32_t>(whole[3].begin() + 6, whole[3].end()));
  // The prompt once, and every token but the last of each.
  EXPECT_EQ(h.rows(), 10 + 7 + 7 + 7);
}

INSTANTIATE_TEST_SUITE_P(CacheAndBypass, SequencesTest, ::testing::Bool());

// ---- Ends.

TEST(SchedulerTest, AContinuationThatIsAllFinishedEndsAtOnce) {
  Harness h;
  Request request = RequestOf(Tokens(4), 8);
  request.received = {{{1, 2}, /*finished=*/true}};
  const RequestId id = h.Add(request);
  EXPECT_TRUE(h.heard(id).ended->ok());
  EXPECT_TRUE(h.scheduler().idle());
  EXPECT_THAT(h.heard(id).answers[0], IsEmpty());
}

TEST(SchedulerTest, ReceivedTokensThatAlreadyEndAreToldAndNotComputed) {
  Harness h;
  Request at_limit = RequestOf(Tokens(4), 2);
  at_limit.received = {{{1, 2}}};
  Request stopped = RequestOf(Tokens(4), 8);
  stopped.stop_ids = {2};
  stopped.received = {{{1, 2}}};
  const RequestId a = h.Add(at_limit), b = h.Add(stopped);
  EXPECT_TRUE(h.heard(a).ended->ok() && h.heard(b).ended->ok());
  EXPECT_EQ(h.heard(a).finish[0], FinishReason::kLength);
  EXPECT_EQ(h.heard(b).finish[0], FinishReason::kStop);
  EXPECT_THAT(h.heard(b).answers[0], IsEmpty());
}

TEST(SchedulerTest, WithMaxTokensZeroOnlyThePromptIsRead) {
  Harness h;
  Request request = RequestOf(Tokens(7), 0);
  request.num_sequences = 2;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.rows(), 7);
  EXPECT_TRUE(h.heard(id).ended->ok());
  EXPECT_THAT(h.heard(id).finish, ElementsAre(FinishReason::kLength, FinishReason::kLength));
  EXPECT_THAT(h.heard(id).answers[0], IsEmpty());
}

TEST(SchedulerTest, StopIdsAreDeliveredAndEndTheAnswer) {
  Harness h;
  Request request = RequestOf(Tokens(7), 20);
  const std::vector<int32_t> whole = FakeAnswer(request, 0, kVocab);
  request.stop_ids = {whole[4]};
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.heard(id).answers[0].back(), whole[4]);
  EXPECT_LE(h.heard(id).answers[0].size(), 5u);
  EXPECT_EQ(h.heard(id).finish[0], FinishReason::kStop);
}

TEST(SchedulerTest, StopIdsCannotBePickedBeforeMinTokens) {
  Harness h;
  Request request = RequestOf(Tokens(7), 20);
  for (int i = 0; i < 25; ++i) request.stop_ids.push_back(2 * i);
  request.min_tokens = 10;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  const std::vector<int32_t>& answer = h.heard(id).answers[0];
  EXPECT_GT(answer.size(), 10u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(answer[i] % 2, 1);
  EXPECT_EQ(answer, h.Expected(id));
}

TEST(SchedulerTest, APassedDeadlineEndsARequestWithinOneStep) {
  Harness h;
  Request request = Endless(1);
  request.deadline = h.clock().Now() + absl::Milliseconds(45);  // steps take 10 ms
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.heard(id).ended->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(h.heard(id).answers[0], SizeIs(5));
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
}

TEST(SchedulerTest, ADeadlineIsCheckedBeforeThePromptIsRead) {
  Harness h;
  Request request = Endless(1);
  request.deadline = h.clock().Now() + absl::Milliseconds(5);
  const RequestId id = h.Add(request);
  h.clock().Advance(absl::Milliseconds(5));
  h.Step();
  EXPECT_EQ(h.heard(id).ended->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(h.heard(id).started);
  EXPECT_EQ(h.rows(), 0);
}

TEST(SchedulerTest, ATimeLimitEndsAnAnswerInGoodOrder) {
  Harness h;
  Request request = Endless(1);
  request.num_sequences = 2;
  request.time_limit = h.clock().Now() + absl::Milliseconds(45);
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_TRUE(h.heard(id).ended->ok());
  EXPECT_THAT(h.heard(id).finish, ElementsAre(FinishReason::kTimeLimit, FinishReason::kTimeLimit));
  EXPECT_THAT(h.heard(id).answers[0], SizeIs(5));
}

TEST(SchedulerTest, ATimeLimitOfZeroEndsBeforeTheFirstToken) {
  Harness h;
  Request request = Endless(1);
  request.time_limit = h.clock().Now();
  const RequestId id = h.Add(request);
  h.Step();
  EXPECT_TRUE(h.heard(id).started);
  EXPECT_TRUE(h.heard(id).ended->ok());
  EXPECT_EQ(h.heard(id).finish[0], FinishReason::kTimeLimit);
  EXPECT_EQ(h.rows(), 0);
}

TEST(SchedulerTest, ACancelledRequestGivesItsBlocksBackAtOnce) {
  Harness h;
  const RequestId id = h.Add(Endless(1));
  h.Step();
  EXPECT_GT(h.scheduler().pool().num_used(), 0);
  h.scheduler().End(id, absl::CancelledError("gone"), h.now());
  h.scheduler().Deliver();
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
  EXPECT_EQ(h.heard(id).ended->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(h.metrics().running_requests, 0);
}

TEST(SchedulerTest, ASequenceThatTheEdgeFinishesGetsNoMoreTokens) {
  Harness h;
  Request request = Endless(1);
  request.num_sequences = 2;
  const RequestId id = h.Add(request);
  for (int i = 0; i < 3; ++i) h.Step();
  h.scheduler().FinishSequence(id, 0, h.now());
  for (int i = 0; i < 3; ++i) h.Step();
  EXPECT_THAT(h.heard(id).answers[0], SizeIs(3));
  EXPECT_THAT(h.heard(id).answers[1], SizeIs(6));
  EXPECT_FALSE(h.heard(id).ended.has_value());
  h.scheduler().FinishSequence(id, 1, h.now());
  h.scheduler().FinishSequence(id, 7, h.now());  // no such sequence
  h.scheduler().Deliver();
  EXPECT_TRUE(h.heard(id).ended->ok());
}

TEST(SchedulerTest, ALiveIdIsRefusedTwice) {
  Harness h;
  const RequestId id = h.Add(Endless(1));
  Request again = Endless(2);
  again.id = id;
  std::optional<absl::Status> ended;
  h.scheduler().Add(
      again, [&ended](RequestEvent event) { ended = std::move(event.ended); }, h.clock().Elapsed(),
      h.now());
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code(), absl::StatusCode::kAlreadyExists);
  h.RunToEnd();
  EXPECT_EQ(h.heard(id).answers[0], h.Expected(id));
}

// ---- Prompt log-probabilities, penalties, progress.

TEST(SchedulerTest, PromptScoresComeInOrderAndOnce) {
  EngineOptions options;
  options.max_prefill_chunk = 3;
  Harness h(options);
  h.Add(RequestOf(Tokens(11), 1));
  h.RunToEnd();
  Request request = RequestOf(Tokens(11), 3);
  request.num_prompt_logprobs = 2;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.heard(id).cached_prompt_tokens, 0);  // the look-up is skipped
  ASSERT_THAT(h.heard(id).prompt_scores, SizeIs(10));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(h.heard(id).prompt_scores[i].logprob, FakePromptScore(request, i, kVocab).logprob);
  }
}

TEST(SchedulerTest, PromptScoresThatTheClientHasAreNotReportedAgain) {
  Harness h;
  Request request = RequestOf(Tokens(11), 3);
  request.num_prompt_logprobs = 0;
  request.prompt_logprobs_received = 7;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  ASSERT_THAT(h.heard(id).prompt_scores, SizeIs(3));
  EXPECT_EQ(h.heard(id).prompt_scores[0].logprob, FakePromptScore(request, 7, kVocab).logprob);
}

TEST(SchedulerTest, SeenTokensArePlannedOnlyForPenalties) {
  Harness h;
  h.Add(Endless(1));
  Request frequency = Endless(2), repetition = Endless(3);
  frequency.sampling.frequency_penalty = 1;
  repetition.sampling.repetition_penalty = 2;
  h.Add(frequency);
  h.Add(repetition);
  h.Step();
  const StepPlan plan = h.Step();
  ASSERT_EQ(plan.num_samples(), 3);
  const auto seen = [&](int k) { return plan.seen_begin[k + 1] - plan.seen_begin[k]; };
  EXPECT_EQ(seen(0), 0);
  EXPECT_EQ(seen(1), 1);  // its one token
  EXPECT_EQ(seen(2), 5);  // and the prompt
}

TEST(SchedulerTest, ProgressTellsTheQueueAndThePrompt) {
  EngineOptions options;
  options.max_running = 1;
  options.max_prefill_chunk = 8;
  Harness h(options, [](const StepPlan&) { return absl::Milliseconds(150); });
  h.Add(RequestOf(Tokens(4, 1), 3));
  h.Add(RequestOf(Tokens(4, 2), 2));
  Request request = RequestOf(Tokens(20, 3), 2);
  request.want_progress = true;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  std::vector<int> queue, done;
  for (const PromptProgress& p : h.heard(id).progress) {
    EXPECT_EQ(p.prompt_tokens, 20);
    if (p.prompt_tokens_done == 0) {
      queue.push_back(p.queue_position);
    } else {
      EXPECT_EQ(p.queue_position, 0);
      done.push_back(p.prompt_tokens_done);
    }
  }
  EXPECT_THAT(queue, ElementsAre(2, 1, 0));
  EXPECT_THAT(done, ElementsAre(8, 16));
}

// ---- The queue, priorities, preemption.

std::vector<RequestId> OrderOfStart(Harness& h, const std::vector<RequestId>& ids) {
  std::vector<RequestId> order;
  while (!h.scheduler().idle()) {
    h.Step();
    for (const RequestId id : ids) {
      if (h.heard(id).started && std::ranges::count(order, id) == 0) order.push_back(id);
    }
  }
  return order;
}

TEST(SchedulerTest, HigherPriorityComesFirstThenMovesThenTheQueue) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  const auto request = [](int salt, int priority, bool is_move) {
    Request r = RequestOf(Tokens(4, salt), 2);
    r.priority = priority;
    r.is_move = is_move;
    return r;
  };
  const RequestId a = h.Add(request(1, 0, false)), b = h.Add(request(2, 0, false)),
                  move = h.Add(request(3, 0, true)), high = h.Add(request(4, 1, false)),
                  low_move = h.Add(request(5, -1, true));
  EXPECT_THAT(OrderOfStart(h, {a, b, move, high, low_move}),
              ElementsAre(high, move, a, b, low_move));
}

TEST(SchedulerTest, AHigherPriorityTakesThePlaceOfTheYoungestOfTheLowest) {
  EngineOptions options;
  options.max_running = 3;
  Harness h(options);
  const auto request = [](int salt, int priority) {
    Request r = Endless(salt);
    r.label = std::to_string(salt);
    r.priority = priority;
    return r;
  };
  h.Add(request(1, 0));
  h.Add(request(2, -1));
  h.Add(request(3, -1));
  h.Step();
  const RequestId urgent = h.Add(request(4, 5));
  h.Step();
  EXPECT_TRUE(h.heard(urgent).started);
  ASSERT_EQ(h.metrics().preemptions, 1u);
  EXPECT_EQ(h.record().sequences.back().label, "3");
  EXPECT_TRUE(h.record().sequences.back().preempted);
  h.RunToEnd();
  for (int id = 1; id <= 4; ++id) EXPECT_EQ(h.heard(id).answers[0], h.Expected(id));
}

TEST(SchedulerTest, NothingIsPreemptedForAnArrivalThatWouldNotFitAnyway) {
  EngineOptions options;
  options.num_blocks = 40;  // 160 tokens
  Harness h(options);
  Request big = RequestOf(Tokens(80, 1), 20), low = RequestOf(Tokens(8, 2), 20);
  big.priority = 1;
  low.priority = -1;
  h.Add(big);
  h.Add(low);
  for (int i = 0; i < 4; ++i) h.Step();
  ASSERT_EQ(h.scheduler().num_running(), 2);
  Request urgent = RequestOf(Tokens(80, 3), 8);
  urgent.priority = 1;
  h.Add(urgent);
  h.Step();
  EXPECT_EQ(h.metrics().preemptions, 0u);
  h.RunToEnd();
}

TEST(SchedulerTest, EqualPrioritiesDoNotPreemptEachOther) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  for (int i = 0; i < 3; ++i) h.Add(RequestOf(Tokens(4, i), 4));
  h.RunToEnd();
  EXPECT_EQ(h.metrics().preemptions, 0u);
}

// ---- Counts.

TEST(SchedulerTest, LoadAndMetricsCountEachSequence) {
  EngineOptions options;
  options.max_running = 2;
  Harness h(options);
  Request request = RequestOf(Tokens(8, 1), 6);
  request.num_sequences = 3;
  h.Add(request);
  h.Add(RequestOf(Tokens(5, 2), 6));
  EXPECT_EQ(h.metrics().waiting_requests, 4);
  EXPECT_EQ(h.metrics().waiting_prompt_tokens, 13);
  EXPECT_EQ(h.scheduler().pending_prompt_tokens(), 13);
  h.Step();
  EXPECT_EQ(h.metrics().running_requests, 2);
  EXPECT_EQ(h.metrics().waiting_requests, 2);
  h.RunToEnd();
  EXPECT_EQ(h.metrics().prompt_tokens, 13u);
  EXPECT_EQ(h.metrics().generated_tokens, 24u);
  EXPECT_EQ(h.metrics().kv_blocks_unaccounted, 0);
  EXPECT_EQ(h.metrics().running_requests + h.metrics().waiting_requests, 0);
  EXPECT_EQ(h.scheduler().pending_prompt_tokens(), 0);
}

TEST(SchedulerTest, TimingsAddUp) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);  // steps of 10 ms
  h.Add(RequestOf(Tokens(4, 1), 3));
  const RequestId id = h.Add(RequestOf(Tokens(4, 2), 3));
  h.RunToEnd();
  EXPECT_EQ(h.heard(id).timings.queue, absl::Milliseconds(30));
  EXPECT_EQ(h.heard(id).timings.prefill, absl::Milliseconds(10));
  EXPECT_EQ(h.heard(id).timings.total, absl::Milliseconds(60));
  EXPECT_NEAR(h.metrics().time_to_first_token_seconds.sum(), 0.01 + 0.04, 1e-9);
  EXPECT_NEAR(h.metrics().inter_token_seconds.sum(), 4 * 0.01, 1e-9);
  EXPECT_NEAR(h.metrics().queue_seconds.sum(), 0.03, 1e-9);
}

TEST(SchedulerTest, AResultThatDoesNotFitThePlanIsRefused) {
  Harness h;
  h.Add(Endless(1));
  h.scheduler().Schedule(h.now());
  StepResult none;
  EXPECT_EQ(h.scheduler().Commit(none, h.now(), absl::ZeroDuration()).code(),
            absl::StatusCode::kInternal);
  StepResult outside = {.token_ids = {kVocab}, .scores = {{}}};
  EXPECT_EQ(h.scheduler().Commit(outside, h.now(), absl::ZeroDuration()).code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace continuo
