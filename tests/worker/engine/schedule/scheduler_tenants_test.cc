// SPDX-License-Identifier: Apache-2.0
// Tests that tenants share a worker equally, however many requests each of them sends.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "services/worker/engine/schedule/scheduler.h"
#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;

Request Of(const std::string& tenant, std::vector<int32_t> prompt, int max_tokens) {
  Request r = RequestOf(std::move(prompt), max_tokens);
  r.tenant = r.label = tenant;
  r.cache_bypass = true;
  return r;
}

// Returns ids in the order in which they start.
std::vector<RequestId> OrderOfStart(Harness& h, int num_requests) {
  std::vector<RequestId> order;
  while (!h.scheduler().idle()) {
    h.Step();
    for (int id = 1; id <= num_requests; ++id) {
      if (h.received(id).started && std::ranges::count(order, id) == 0) order.push_back(id);
    }
  }
  return order;
}

TEST(SchedulerTenantsTest, ALightTenantIsNextHoweverManyAnotherHasWaiting) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  for (int i = 0; i < 20; ++i) h.Add(Of("flood", Tokens(4, i), 3));
  h.Step();
  const RequestId light = h.Add(Of("light", Tokens(4, 50), 3));
  EXPECT_EQ(OrderOfStart(h, light)[1], light);
}

TEST(SchedulerTenantsTest, TenantsTakeTurnsByVirtualTokens) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  for (int i = 0; i < 4; ++i) h.Add(Of("small", Tokens(4, i), 5));   // 8 tokens each
  for (int i = 4; i < 6; ++i) h.Add(Of("large", Tokens(12, i), 5));  // 16 tokens each
  EXPECT_THAT(OrderOfStart(h, 6), ElementsAre(1, 5, 2, 3, 6, 4));
}

TEST(SchedulerTenantsTest, OneTenantAloneIsServedFirstComeFirstServed) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  for (int i = 0; i < 4; ++i) h.Add(Of("one", Tokens(4 + i, i), 2));
  EXPECT_THAT(OrderOfStart(h, 4), ElementsAre(1, 2, 3, 4));
}

TEST(SchedulerTenantsTest, APriorityComesBeforeAnyShare) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  const RequestId first = h.Add(Of("flood", Tokens(30, 1), 20));
  h.Step();
  const RequestId light = h.Add(Of("light", Tokens(4, 2), 2));
  Request r = Of("flood", Tokens(4, 3), 2);
  r.priority = 1;
  const RequestId urgent = h.Add(r);
  const std::vector<RequestId> order = OrderOfStart(h, 3);
  EXPECT_THAT(order, ElementsAre(first, urgent, light));
}

TEST(SchedulerTenantsTest, AMigrationComesBeforeNewWorkOfAnyTenant) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  const RequestId running = h.Add(Of("flood", Tokens(30, 1), 20));
  h.Step();
  const RequestId light = h.Add(Of("light", Tokens(4, 2), 2));
  Request r = Of("flood", Tokens(4, 3), 2);
  r.is_migration = true;
  const RequestId migration = h.Add(r);
  EXPECT_THAT(OrderOfStart(h, 3), ElementsAre(running, migration, light));
}

TEST(SchedulerTenantsTest, AContinuationComesBeforeItsOwnTenantsNewWorkOnly) {
  EngineOptions options;
  options.max_running = 1;
  Harness h(options);
  const RequestId running = h.Add(Of("flood", Tokens(30, 1), 20));
  h.Step();
  const RequestId flooding = h.Add(Of("flood", Tokens(4, 2), 3));
  const RequestId light = h.Add(Of("light", Tokens(4, 3), 3));
  Request r = Of("flood", Tokens(4, 4), 3);
  r.received.resize(1);
  const RequestId continued = h.Add(r);
  EXPECT_THAT(OrderOfStart(h, 4), ElementsAre(running, light, continued, flooding));
}

// ---- Under a flood.

EngineOptions SmallSteps() {
  EngineOptions options;
  options.num_blocks = 4000;
  options.max_batch_tokens = 64;
  options.max_running = 16;
  return options;
}

TEST(SchedulerTenantsTest, ALightTenantTakesThePlaceOfTheYoungestOfTheFlood) {
  Harness h(SmallSteps());
  for (int i = 0; i < 40; ++i) h.Add(Of("flood", Tokens(8, i), 180));
  for (int i = 0; i < 30; ++i) h.Step();
  ASSERT_EQ(h.scheduler().num_running(), 16);
  const RequestId light = h.Add(Of("light", Tokens(8, 60), 4));
  h.Step();
  EXPECT_TRUE(h.received(light).started);
  EXPECT_EQ(h.metrics().preemptions, 1u);
  EXPECT_TRUE(h.record().sequences.back().preempted);
  EXPECT_EQ(h.record().sequences.back().label, "flood");
  h.RunToEnd();
  ASSERT_TRUE(h.status().ok()) << h.status();
  EXPECT_EQ(h.metrics().preemptions, 1u);
  for (RequestId id = 1; id <= light; ++id) EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
}

// A sequence for which yielding did not help must not be confused with another in its memory.
TEST(SchedulerTenantsTest, ATenantIsHelpedThoughItWasNotWhileItWantedTooMuch) {
  EngineOptions options;
  options.num_blocks = 80;  // 320 tokens
  options.max_batch_tokens = 64;
  options.max_running = 2;
  Harness h(options);
  for (int i = 0; i < 2; ++i) h.Add(Of("flood", Tokens(8, i), 120));
  for (int i = 0; i < 30; ++i) h.Step();
  const RequestId large = h.Add(Of("light", Tokens(290, 60), 4));
  h.Step();
  ASSERT_FALSE(h.received(large).started);
  h.scheduler().End(large, absl::CancelledError("gone"), h.now());
  h.scheduler().Deliver();
  const RequestId small = h.Add(Of("light", Tokens(8, 61), 4));
  h.Step();
  EXPECT_TRUE(h.received(small).started);
  EXPECT_EQ(h.metrics().preemptions, 1u);
  EXPECT_TRUE(h.status().ok()) << h.status();
}

TEST(SchedulerTenantsTest, ATenantThatHoldsItsShareOnlyIsNotPreempted) {
  Harness h(SmallSteps());
  for (int i = 0; i < 8; ++i) h.Add(Of("a", Tokens(8, i), 180));
  for (int i = 0; i < 20; ++i) h.Step();
  for (int i = 0; i < 20; ++i) h.Add(Of("b", Tokens(8, i + 20), 20));
  for (int i = 0; i < 10; ++i) h.Step();
  EXPECT_EQ(h.metrics().preemptions, 0u);
}

TEST(SchedulerTenantsTest, AFloodGetsWhatTheLightTenantLeaves) {
  Harness h(SmallSteps());
  for (int i = 0; i < 40; ++i) h.Add(Of("flood", Tokens(8, i), 60));
  h.Add(Of("light", Tokens(8, 60), 100));
  for (int i = 0; i < 20; ++i) h.Step();
  EXPECT_EQ(h.scheduler().num_running(), 16);
}

TEST(SchedulerTenantsTest, StreamsOfTheFloodGoOnDuringALightPrefill) {
  EngineOptions options = SmallSteps();
  options.max_batch_tokens = 2048;
  Harness h(options,
            [](const model::StepPlan& plan) { return plan.num_rows() * absl::Milliseconds(10); });
  for (int i = 0; i < 15; ++i) h.Add(Of("flood", Tokens(8, i), 4000));
  while (h.metrics().generated_tokens < 5000) h.Step();
  h.Add(Of("light", Tokens(300, 60), 1));
  int64_t light_tokens = 0, other_tokens = 0;
  for (int i = 0; i < 10; ++i) {
    const model::StepPlan plan = h.Step();
    for (int k = 0; k < plan.num_seqs(); ++k) {
      const int count = plan.query_begin[k + 1] - plan.query_begin[k];
      (count > 1 ? light_tokens : other_tokens) += count;
    }
  }
  // Steps have 20 tokens, of which the flood keeps an eighth.
  EXPECT_NEAR(static_cast<double>(light_tokens), 180, 10);
  EXPECT_NEAR(static_cast<double>(other_tokens), 20, 10);
}

// Nobody has to yield a place to that prompt, and cutting the decodes would not help it.
TEST(SchedulerTenantsTest, StreamsOfTheFloodAreNotDelayedByAPromptThatFindsNoPlace) {
  EngineOptions options = SmallSteps();
  options.max_running = 2;
  Harness h(options,
            [](const model::StepPlan& plan) { return plan.num_rows() * absl::Milliseconds(30); });
  const RequestId flood = h.Add(Of("flood", Tokens(8), 4000));
  while (h.metrics().generated_tokens < 1000) h.Step();
  for (int i = 0; i < 2; ++i) h.Add(Of("light", Tokens(8, i + 1), 1000));
  h.Step();
  ASSERT_EQ(h.scheduler().num_running(), 2);
  const size_t before = h.received(flood).answers[0].size();
  for (int i = 0; i < 100; ++i) h.Step();
  EXPECT_GE(h.received(flood).answers[0].size() - before, 99u);
}

// Returns the 95th percentile of the light tenant's time to first token, with `flood` requests of
// another tenant for each of its own. `max_chunk` is EngineOptions::max_prefill_chunk.
absl::Duration TimeToFirstToken(int flood, int max_chunk = 512) {
  EngineOptions options;
  options.num_blocks = 2000;
  options.block_size = 8;
  options.max_batch_tokens = 512;
  options.max_prefill_chunk = max_chunk;
  options.max_running = 32;
  // A small machine: 50 tokens a step, a second or two for a prompt of the light tenant.
  Harness h(options, [](const model::StepPlan& plan) {
    return absl::Milliseconds(2) + plan.num_rows() * absl::Milliseconds(4);
  });
  std::mt19937 rng(1);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  struct Arrival {
    RequestId id;
    absl::Duration before_add;  // it arrived while a step ran
  };
  std::vector<Arrival> light;
  absl::Duration next = h.clock().Elapsed();
  int salt = 0;
  while (light.size() < 100) {
    if (h.scheduler().idle())
      h.clock().Advance(std::max(absl::ZeroDuration(), next - h.clock().Elapsed()));
    if (h.clock().Elapsed() >= next) {
      for (int i = 0; i < flood; ++i) h.Add(Of("flood", Tokens(pick(50, 400), ++salt), 60));
      const RequestId id = h.Add(Of("light", Tokens(pick(300, 500), ++salt), 20));
      light.push_back({id, h.clock().Elapsed() - next});
      next += absl::Milliseconds(pick(4000, 8000));
    }
    h.Step();
  }
  while (!h.received(light.back().id).ended) h.Step();
  EXPECT_TRUE(h.status().ok()) << h.status();
  std::vector<absl::Duration> waited;
  for (const Arrival& arrival : light) {
    const RequestTimings& timings = h.received(arrival.id).timings;
    waited.push_back(arrival.before_add + timings.queue + timings.prefill);
  }
  std::ranges::sort(waited);
  return waited[94];
}

TEST(SchedulerTenantsTest, AFloodDelaysTheFirstTokenOfALightTenantByHalfAtMost) {
  const absl::Duration alone = TimeToFirstToken(0), flooded = TimeToFirstToken(20);
  RecordProperty("alone_ms", static_cast<int>(absl::ToInt64Milliseconds(alone)));
  RecordProperty("flooded_ms", static_cast<int>(absl::ToInt64Milliseconds(flooded)));
  EXPECT_LE(flooded, 1.5 * alone) << alone << " alone";
}

// The rest of a step beside the light tenant's chunk is not filled with the flood's prompts: they
// would lengthen each of the steps until its first token.
TEST(SchedulerTenantsTest, NorWhereOnePromptCannotFillAStep) {
  const absl::Duration alone = TimeToFirstToken(0, 16), flooded = TimeToFirstToken(20, 16);
  EXPECT_LE(flooded, 1.5 * alone) << alone << " alone";
}

}  // namespace
}  // namespace continuo::engine
