// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/scheduler.h"

#include <gmock/gmock.h>

#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kVocab = 50;

// Returns a request whose answer lasts for the whole test.
Request Endless(int salt, int prompt = 4) { return RequestOf(Tokens(prompt, salt), 200); }

// ---- Ends.

TEST(SchedulerTest, AContinuationThatIsAllFinishedEndsAtOnce) {
  Harness h;
  Request request = RequestOf(Tokens(4), 8);
  request.received = {{{1, 2}, /*finished=*/true}};
  const RequestId id = h.Add(request);
  EXPECT_TRUE(h.received(id).ended->ok());
  EXPECT_TRUE(h.scheduler().idle());
  EXPECT_THAT(h.received(id).answers[0], IsEmpty());
}

TEST(SchedulerTest, ReceivedTokensThatAlreadyEndAreReportedAndNotComputed) {
  Harness h;
  Request at_limit = RequestOf(Tokens(4), 2);
  at_limit.received = {{{1, 2}}};
  Request stopped = RequestOf(Tokens(4), 8);
  stopped.stop_ids = {2};
  stopped.received = {{{1, 2}}};
  const RequestId a = h.Add(at_limit), b = h.Add(stopped);
  EXPECT_TRUE(h.received(a).ended->ok() && h.received(b).ended->ok());
  EXPECT_EQ(h.received(a).finish[0], FinishReason::kLength);
  EXPECT_EQ(h.received(b).finish[0], FinishReason::kStop);
  EXPECT_THAT(h.received(b).answers[0], IsEmpty());
}

TEST(SchedulerTest, WithMaxTokensZeroOnlyThePromptIsComputed) {
  Harness h;
  Request request = RequestOf(Tokens(7), 0);
  request.num_sequences = 2;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.tokens(), 7);
  EXPECT_TRUE(h.received(id).ended->ok());
  EXPECT_THAT(h.received(id).finish, ElementsAre(FinishReason::kLength, FinishReason::kLength));
  EXPECT_THAT(h.received(id).answers[0], IsEmpty());
}

TEST(SchedulerTest, StopIdsAreDeliveredAndEndTheAnswer) {
  Harness h;
  Request request = RequestOf(Tokens(7), 20);
  const std::vector<int32_t> whole = FakeAnswer(request, 0, kVocab);
  request.stop_ids = {whole[4]};
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.received(id).answers[0].back(), whole[4]);
  EXPECT_LE(h.received(id).answers[0].size(), 5u);
  EXPECT_EQ(h.received(id).finish[0], FinishReason::kStop);
}

TEST(SchedulerTest, StopIdsCannotBeSampledBeforeMinTokens) {
  Harness h;
  Request request = RequestOf(Tokens(7), 20);
  for (int i = 0; i < 25; ++i) request.stop_ids.push_back(2 * i);
  request.min_tokens = 10;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  const std::vector<int32_t>& answer = h.received(id).answers[0];
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
  EXPECT_EQ(h.received(id).ended->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(h.received(id).answers[0], SizeIs(5));
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
}

TEST(SchedulerTest, ADeadlineIsCheckedBeforeThePromptIsComputed) {
  Harness h;
  Request request = Endless(1);
  request.deadline = h.clock().Now() + absl::Milliseconds(5);
  const RequestId id = h.Add(request);
  h.clock().Advance(absl::Milliseconds(5));
  h.Step();
  EXPECT_EQ(h.received(id).ended->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(h.received(id).started);
  EXPECT_EQ(h.tokens(), 0);
}

TEST(SchedulerTest, ATimeLimitEndsAnAnswerInGoodOrder) {
  Harness h;
  Request request = Endless(1);
  request.num_sequences = 2;
  request.time_limit = h.clock().Now() + absl::Milliseconds(45);
  const RequestId id = h.Add(request);
  h.RunToEnd();
  EXPECT_TRUE(h.received(id).ended->ok());
  EXPECT_THAT(h.received(id).finish,
              ElementsAre(FinishReason::kTimeLimit, FinishReason::kTimeLimit));
  EXPECT_THAT(h.received(id).answers[0], SizeIs(5));
}

TEST(SchedulerTest, ATimeLimitOfZeroEndsBeforeTheFirstToken) {
  Harness h;
  Request request = Endless(1);
  request.time_limit = h.clock().Now();
  const RequestId id = h.Add(request);
  h.Step();
  EXPECT_TRUE(h.received(id).started);
  EXPECT_TRUE(h.received(id).ended->ok());
  EXPECT_EQ(h.received(id).finish[0], FinishReason::kTimeLimit);
  EXPECT_EQ(h.tokens(), 0);
}

TEST(SchedulerTest, ACancelledRequestGivesItsBlocksBackAtOnce) {
  Harness h;
  const RequestId id = h.Add(Endless(1));
  h.Step();
  EXPECT_GT(h.scheduler().pool().num_used(), 0);
  h.scheduler().End(id, absl::CancelledError("gone"), h.now());
  h.scheduler().Deliver();
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
  EXPECT_EQ(h.received(id).ended->code(), absl::StatusCode::kCancelled);
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
  EXPECT_THAT(h.received(id).answers[0], SizeIs(3));
  EXPECT_THAT(h.received(id).answers[1], SizeIs(6));
  EXPECT_FALSE(h.received(id).ended.has_value());
  h.scheduler().FinishSequence(id, 1, h.now());
  h.scheduler().FinishSequence(id, 7, h.now());  // no such sequence
  h.scheduler().Deliver();
  EXPECT_TRUE(h.received(id).ended->ok());
}

TEST(SchedulerTest, ALiveIdIsRejected) {
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
  EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
}

// A sequence that did not fit is tried again only after a release. Another sequence in the same
// memory must not be taken for it.
TEST(SchedulerTest, RequestsAfterACancelledHeadThatDidNotFitAreAdmitted) {
  EngineOptions options;
  options.num_blocks = 40;  // 160 tokens
  Harness h(options);
  h.Add(RequestOf(Tokens(8, 1), 60));
  h.Step();
  const RequestId large = h.Add(RequestOf(Tokens(120, 2), 20));
  h.Step();
  ASSERT_FALSE(h.received(large).started);
  h.scheduler().End(large, absl::CancelledError("gone"), h.now());
  h.scheduler().Deliver();
  std::vector<RequestId> small;
  for (int i = 0; i < 4; ++i) small.push_back(h.Add(RequestOf(Tokens(4, 10 + i), 1)));
  h.Step();
  for (const RequestId id : small) EXPECT_TRUE(h.received(id).started) << id;
  EXPECT_TRUE(h.status().ok()) << h.status();
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
  EXPECT_EQ(h.received(id).cached_prompt_tokens, 0);  // the look-up in the cache is skipped
  ASSERT_THAT(h.received(id).prompt_scores, SizeIs(10));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(h.received(id).prompt_scores[i].logprob, FakePromptScore(request, i, kVocab).logprob);
  }
}

TEST(SchedulerTest, PromptScoresThatTheClientHasAreNotReportedAgain) {
  Harness h;
  Request request = RequestOf(Tokens(11), 3);
  request.num_prompt_logprobs = 0;
  request.prompt_logprobs_received = 7;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  ASSERT_THAT(h.received(id).prompt_scores, SizeIs(3));
  EXPECT_EQ(h.received(id).prompt_scores[0].logprob, FakePromptScore(request, 7, kVocab).logprob);
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
  const model::StepPlan plan = h.Step();
  ASSERT_EQ(plan.num_samples(), 3);
  const auto seen = [&](int k) { return plan.seen_begin[k + 1] - plan.seen_begin[k]; };
  EXPECT_EQ(seen(0), 0);
  EXPECT_EQ(seen(1), 1);  // its one token
  EXPECT_EQ(seen(2), 5);  // and the prompt
}

TEST(SchedulerTest, ProgressReportsTheQueueAndThePrompt) {
  EngineOptions options;
  options.max_running = 1;
  options.max_prefill_chunk = 8;
  Harness h(options, [](const model::StepPlan&) { return absl::Milliseconds(150); });
  h.Add(RequestOf(Tokens(4, 1), 3));
  h.Add(RequestOf(Tokens(4, 2), 2));
  Request request = RequestOf(Tokens(20, 3), 2);
  request.want_progress = true;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  std::vector<int> queue, done;
  for (const PromptProgress& p : h.received(id).progress) {
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

TEST(SchedulerTest, ProgressOfManyIsNotReportedAtEveryArrival) {
  Harness h;
  for (int i = 0; i < 100; ++i) {
    Request request = RequestOf(Tokens(4, i), 2);
    request.want_progress = true;
    h.Add(request);
  }
  int reported = 0;
  for (RequestId id = 1; id <= 100; ++id)
    reported += static_cast<int>(h.received(id).progress.size());
  EXPECT_EQ(reported, 1);  // all arrived at the same moment
}

}  // namespace
}  // namespace continuo::engine
