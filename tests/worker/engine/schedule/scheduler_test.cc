// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/scheduler.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;

constexpr int kVocab = 50;

int TokensOf(const model::StepPlan& plan, int sequence) {
  return plan.query_begin[sequence + 1] - plan.query_begin[sequence];
}

// Returns the number of tokens of each sequence in prefill, in the order of the plan.
std::vector<int> Chunks(const model::StepPlan& plan) {
  std::vector<int> chunks;
  for (int i = 0; i < plan.num_seqs(); ++i) {
    if (TokensOf(plan, i) > 1) chunks.push_back(TokensOf(plan, i));
  }
  return chunks;
}

// Returns a request whose answer lasts for the whole test.
Request Endless(int salt, int prompt = 4) { return RequestOf(Tokens(prompt, salt), 200); }

// ---- Steps.

TEST(SchedulerTest, AnAnswerEqualsTheUncachedOne) {
  Harness h;
  const RequestId id = h.Add(RequestOf(Tokens(9), 12));
  h.RunToEnd();
  ASSERT_TRUE(h.status().ok()) << h.status();
  EXPECT_TRUE(h.received(id).ended->ok());
  EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
  EXPECT_EQ(h.received(id).finish[0], FinishReason::kLength);
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
}

TEST(SchedulerTest, AStepNeverHasMoreTokensOrSequencesThanAllowed) {
  EngineOptions options;
  options.max_batch_tokens = 10;
  options.max_running = 3;
  Harness h(options);
  for (int i = 0; i < 8; ++i) h.Add(RequestOf(Tokens(20, i), 5));
  while (!h.scheduler().idle()) {
    const model::StepPlan plan = h.Step();
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
    const size_t before = h.received(stream).answers[0].size();
    const model::StepPlan plan = h.Step();
    EXPECT_EQ(h.received(stream).answers[0].size(), before + 1);
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
  EXPECT_TRUE(h.received(small).ended.has_value());
}

TEST(SchedulerTest, TokensThatNobodyElseNeedsGoToTheFirstPrompt) {
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
  Harness h(options, [](const model::StepPlan& plan) {
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
  EXPECT_GE(longest, absl::Milliseconds(40));  // but not to much less
}

TEST(SchedulerTest, ATenTimesSlowerExecutorGetsSmallerChunks) {
  const auto largest_chunk = [](int slower) {
    EngineOptions options;
    options.num_blocks = 2000;
    Harness h(options, [slower](const model::StepPlan& plan) {
      return slower * (absl::Milliseconds(2) + plan.num_rows() * absl::Microseconds(400));
    });
    for (int i = 0; i < 4; ++i) h.Add(RequestOf(Tokens(1500, i), 2));
    int largest = 0;
    while (!h.scheduler().idle()) {
      const model::StepPlan plan = h.Step();
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
  Harness h(options, [&slower](const model::StepPlan& plan) {
    return slower * (absl::Milliseconds(2) + plan.num_rows() * absl::Microseconds(400));
  });
  for (int i = 0; i < 4; ++i) h.Add(RequestOf(Tokens(3000, i), 2));
  for (int i = 0; i < 10; ++i) h.Step();
  EXPECT_GT(h.Step().num_rows(), 300);
  slower = 10;
  for (int i = 0; i < 30; ++i) h.Step();
  EXPECT_LT(h.Step().num_rows(), 60);
}

// Returns the longest step from now until the request has a token, and how long that takes.
std::pair<absl::Duration, absl::Duration> Prefill(Harness& h, RequestId id) {
  const absl::Duration start = h.clock().Elapsed();
  absl::Duration longest;
  while (h.received(id).answers[0].empty()) {
    const absl::Duration begin = h.clock().Elapsed();
    h.Step();
    longest = std::max(longest, h.clock().Elapsed() - begin);
  }
  return {longest, h.clock().Elapsed() - start};
}

// Returns a cost that is linear in the number of tokens.
auto LineOf(absl::Duration fixed, absl::Duration token) {
  return [fixed, token](const model::StepPlan& plan) { return fixed + plan.num_rows() * token; };
}

// Starts twelve streams that only decode, with steps of 70 ms.
void LetTwelveDecode(Harness& h) {
  for (int i = 0; i < 12; ++i) h.Add(Endless(i, 2));
  while (h.scheduler().num_waiting() > 0) h.Step();
  for (int i = 0; i < 5; ++i) h.Step();
}

TEST(SchedulerTest, ShortPromptsMakeTheStepsOfOthersLittleLonger) {
  EngineOptions options;
  options.num_blocks = 4000;
  Harness h(options, LineOf(absl::Milliseconds(40), absl::Microseconds(2500)));
  for (int i = 0; i < 4; ++i) h.Add(RequestOf(Tokens(300, i), 2));
  h.RunToEnd();  // so that the cost of tokens is known
  // A prompt without decodes beside it may take whole steps.
  EXPECT_GT(Prefill(h, h.Add(RequestOf(Tokens(60, 5), 1))).first, absl::Milliseconds(180));
  LetTwelveDecode(h);
  const auto [short_longest, short_all] = Prefill(h, h.Add(RequestOf(Tokens(30, 6), 1)));
  EXPECT_LE(short_longest, absl::Milliseconds(106));
  EXPECT_LE(short_all, absl::Milliseconds(400));
  // A prompt that needs longer steps gets them to its end: 250 ms of prefill take 464 then.
  EXPECT_LE(Prefill(h, h.Add(RequestOf(Tokens(100, 8), 1))).second, absl::Milliseconds(590));
  // A prompt that would take too long that way gets steps as long as it needs.
  const auto [long_longest, long_all] = Prefill(h, h.Add(RequestOf(Tokens(300, 7), 1)));
  EXPECT_GT(long_longest, absl::Milliseconds(180));
  EXPECT_LE(long_all, absl::Milliseconds(1400));
  // So does a prompt behind which many wait.
  for (int i = 0; i < 20; ++i) h.Add(RequestOf(Tokens(30, 30 + i), 1));
  EXPECT_GT(Prefill(h, h.Add(RequestOf(Tokens(30, 60), 1))).first, absl::Milliseconds(180));
  EXPECT_TRUE(h.status().ok()) << h.status();
}

TEST(SchedulerTest, TheCachedPartOfAPromptMakesNoStepLonger) {
  EngineOptions options;
  options.num_blocks = 4000;
  Harness h(options, LineOf(absl::Milliseconds(40), absl::Microseconds(2500)));
  h.Add(RequestOf(Tokens(800, 1), 2));
  h.RunToEnd();
  LetTwelveDecode(h);
  std::vector<int32_t> prompt = Tokens(800, 1);
  for (const int32_t token : Tokens(30, 2)) prompt.push_back(token);
  // Without the cache it would be 2 s of prefill.
  const auto [longest, all] = Prefill(h, h.Add(RequestOf(prompt, 1)));
  EXPECT_LE(longest, absl::Milliseconds(106));
  EXPECT_LE(all, absl::Milliseconds(400));
}

TEST(SchedulerTest, ShortStepsMayBecomeAQuarterOfTheLongest) {
  EngineOptions options;
  options.num_blocks = 4000;
  Harness h(options, LineOf(absl::Milliseconds(1), absl::Microseconds(50)));
  for (int i = 0; i < 4; ++i) h.Add(RequestOf(Tokens(900, i), 2));
  h.RunToEnd();
  h.Add(Endless(1, 2));
  for (int i = 0; i < 5; ++i) h.Step();
  h.Add(RequestOf(Tokens(400, 6), 1));
  EXPECT_EQ(h.Step().num_rows(), 401);  // 21 ms
}

TEST(SchedulerTest, AStepHasOneTokenIfOneCostsMoreThanAStepMay) {
  EngineOptions options;
  Harness h(options,
            [](const model::StepPlan& plan) { return plan.num_rows() * absl::Seconds(1); });
  const RequestId a = h.Add(RequestOf(Tokens(5, 1), 3)), b = h.Add(RequestOf(Tokens(5, 2), 3));
  h.Step();  // nothing is known yet
  while (!h.scheduler().idle()) EXPECT_EQ(h.Step().num_rows(), 1);
  EXPECT_EQ(h.received(a).answers[0], h.Expected(a));
  EXPECT_EQ(h.received(b).answers[0], h.Expected(b));
}

TEST(SchedulerTest, NoMoreAreAdmittedThanAStepHasTokensFor) {
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

TEST(SchedulerTest, StreamsTakeTurnsIfAStepCannotHoldThemAll) {
  EngineOptions options;
  options.num_blocks = 1000;
  bool slow = false;
  Harness h(options, [&slow](const model::StepPlan& plan) {
    return plan.num_rows() * (slow ? absl::Milliseconds(50) : absl::Milliseconds(1));
  });
  for (int i = 0; i < 8; ++i) h.Add(Endless(i));
  for (int i = 0; i < 10; ++i) h.Step();
  ASSERT_EQ(h.scheduler().num_running(), 8);
  slow = true;  // four tokens fill a step
  for (int i = 0; i < 10; ++i) h.Step();
  std::vector<size_t> before;
  for (int id = 1; id <= 8; ++id) before.push_back(h.received(id).answers[0].size());
  for (int i = 0; i < 40; ++i) EXPECT_LT(h.Step().num_rows(), 8);
  std::vector<size_t> gained;
  for (int id = 1; id <= 8; ++id) {
    gained.push_back(h.received(id).answers[0].size() - before[id - 1]);
  }
  const auto [least, most] = std::ranges::minmax(gained);
  EXPECT_GE(least, 15u);
  EXPECT_LE(most - least, 1u);
}

// ---- The queue, priorities, preemption.

std::vector<RequestId> OrderOfStart(Harness& h, const std::vector<RequestId>& ids) {
  std::vector<RequestId> order;
  while (!h.scheduler().idle()) {
    h.Step();
    for (const RequestId id : ids) {
      if (h.received(id).started && std::ranges::count(order, id) == 0) order.push_back(id);
    }
  }
  return order;
}

TEST(SchedulerTest, HigherPriorityComesFirstThenMigrationsThenTheQueue) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  const auto request = [](int salt, int priority, bool is_migration) {
    Request r = RequestOf(Tokens(4, salt), 2);
    r.priority = priority;
    r.is_migration = is_migration;
    return r;
  };
  const RequestId a = h.Add(request(1, 0, false)), b = h.Add(request(2, 0, false)),
                  migration = h.Add(request(3, 0, true)), high = h.Add(request(4, 1, false)),
                  low_migration = h.Add(request(5, -1, true));
  EXPECT_THAT(OrderOfStart(h, {a, b, migration, high, low_migration}),
              ElementsAre(high, migration, a, b, low_migration));
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
  EXPECT_TRUE(h.received(urgent).started);
  ASSERT_EQ(h.metrics().preemptions, 1u);
  EXPECT_EQ(h.record().sequences.back().label, "3");
  EXPECT_TRUE(h.record().sequences.back().preempted);
  h.RunToEnd();
  for (int id = 1; id <= 4; ++id) {
    EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
    EXPECT_EQ(h.received(id).timings.num_preemptions, id == 3 ? 1 : 0);
  }
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

// By the time in steps a worker with one stream is as busy as one with many.
TEST(SchedulerTest, TokensTakeTheSameTimeHoweverTheyAreBatched) {
  double token_seconds[2], step_seconds[2];
  for (const bool at_once : {false, true}) {
    Harness h({.max_running = 8}, [](const model::StepPlan& plan) {
      return absl::Milliseconds(10) + plan.num_rows() * absl::Milliseconds(1);
    });
    // Steps of all sizes, as calibration runs them.
    for (int i = 0; i < 4; ++i) {
      for (const int64_t tokens : {1, 2, 4, 8, 16, 32}) {
        h.scheduler().cost().Observe({tokens, tokens, tokens},
                                     absl::Milliseconds(10) + tokens * absl::Milliseconds(1));
      }
    }
    for (int i = 0; i < 8; ++i) {
      h.Add(RequestOf(Tokens(8, i), 20));
      if (!at_once) h.RunToEnd();
    }
    h.RunToEnd();
    ASSERT_TRUE(h.status().ok()) << h.status();
    token_seconds[at_once] = h.metrics().token_seconds;
    step_seconds[at_once] = h.metrics().step_seconds.sum();
  }
  // 64 tokens of prompts and 152 that are fed back, a millisecond each.
  EXPECT_NEAR(token_seconds[false], 0.216, 0.02);
  EXPECT_NEAR(token_seconds[true], 0.216, 0.02);
  EXPECT_GT(step_seconds[false], 4 * step_seconds[true]);
}

TEST(SchedulerTest, TimingsAddUp) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);  // steps of 10 ms
  h.Add(RequestOf(Tokens(4, 1), 3));
  const RequestId id = h.Add(RequestOf(Tokens(4, 2), 3));
  h.RunToEnd();
  EXPECT_EQ(h.received(id).timings.queue, absl::Milliseconds(30));
  EXPECT_EQ(h.received(id).timings.prefill, absl::Milliseconds(10));
  EXPECT_EQ(h.received(id).timings.total, absl::Milliseconds(60));
  EXPECT_NEAR(h.metrics().time_to_first_token_seconds.sum(), 0.01 + 0.04, 1e-9);
  EXPECT_NEAR(h.metrics().inter_token_seconds.sum(), 4 * 0.01, 1e-9);
  EXPECT_NEAR(h.metrics().queue_seconds.sum(), 0.03, 1e-9);
}

TEST(SchedulerTest, AResultThatDoesNotFitThePlanIsAnError) {
  Harness h;
  h.Add(Endless(1));
  h.scheduler().Schedule(h.now());
  model::StepResult none;
  EXPECT_EQ(h.scheduler().Commit(model::StepResult(none), h.now(), absl::ZeroDuration()).code(),
            absl::StatusCode::kInternal);
  model::StepResult outside = {.token_ids = {kVocab}, .scores = {{}}};
  EXPECT_EQ(h.scheduler().Commit(model::StepResult(outside), h.now(), absl::ZeroDuration()).code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace continuo::engine
