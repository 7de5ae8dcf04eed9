// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/kv_admission.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

TEST(PeakTokensTest, OneSequenceHoldsMostAtItsEnd) {
  std::vector<Footprint> one = {{.tokens = 10, .remaining = 5}};
  EXPECT_EQ(PeakTokens(0, one), 15);
  EXPECT_EQ(PeakTokens(100, one), 115);
}

TEST(PeakTokensTest, ASequenceThatHasEndedGivesItsTokensBack) {
  // After 2 steps both hold 12 + 22; after 10 the second alone holds 30.
  std::vector<Footprint> two = {{.tokens = 10, .remaining = 2}, {.tokens = 20, .remaining = 10}};
  EXPECT_EQ(PeakTokens(0, two), 34);
}

TEST(PeakTokensTest, ThePeakEqualsThatOfASimulation) {
  std::mt19937 rng(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Footprint> footprints(rng() % 8 + 1);
    for (Footprint& f : footprints) {
      f = {static_cast<int64_t>(rng() % 50), static_cast<int64_t>(rng() % 30)};
    }
    int64_t peak = 0;
    for (int64_t t = 0; t < 40; ++t) {
      int64_t held = 7;
      for (const Footprint& f : footprints) held += t <= f.remaining ? f.tokens + t : 0;
      peak = std::max(peak, held);
    }
    EXPECT_EQ(PeakTokens(7, footprints), peak);
  }
}

// A crowd of 64 requests that together need four times the pool.
struct Crowd {
  int prompt, max_tokens;
  bool stops;  // by themselves, at unknown lengths
};

class CrowdTest : public ::testing::TestWithParam<Crowd> {};

TEST_P(CrowdTest, SixtyFourRequestsForFourTimesThePoolArePreemptedAtMostOnceEach) {
  const Crowd crowd = GetParam();
  EngineOptions options;
  options.num_blocks = 16 * (crowd.prompt + crowd.max_tokens) / 4;
  options.expected_answer_tokens = 8;  // far too few, so that it does preempt
  options.max_running = 64;
  Harness harness(options);
  for (int i = 0; i < 64; ++i) {
    Request request = RequestOf(Tokens(crowd.prompt, i), crowd.max_tokens);
    request.label = std::to_string(i);
    request.sampling.seed = i;
    request.sampling.temperature = 1;
    if (crowd.stops) request.stop_ids = {7};
    harness.Add(std::move(request));
  }
  std::map<std::string, int> preemptions;
  double used = 0;
  int crowded = 0;
  while (!harness.scheduler().idle() && harness.status().ok()) {
    harness.Step();
    const StepRecord& record = harness.record();
    for (const auto& row : record.sequences) preemptions[row.label] += row.preempted;
    if (record.waiting == 0 || harness.steps() < 10) continue;
    ++crowded;
    used += static_cast<double>(record.used_blocks) / options.num_blocks;
  }
  ASSERT_TRUE(harness.status().ok()) << harness.status();
  for (const auto& [label, count] : preemptions) EXPECT_LE(count, 1) << label;
  EXPECT_GT(harness.metrics().preemptions, 0u);  // otherwise this would show nothing
  for (int i = 1; i <= 64; ++i) {
    EXPECT_TRUE(harness.received(i).ended->ok());
    EXPECT_EQ(harness.received(i).answers[0], harness.Expected(i));
  }
  EXPECT_GT(used / crowded, 0.6);  // while requests wait, the pool is well used
}

INSTANTIATE_TEST_SUITE_P(All, CrowdTest,
                         ::testing::Values(Crowd{16, 48, false}, Crowd{16, 48, true},
                                           Crowd{4, 124, false}, Crowd{4, 60, false},
                                           Crowd{100, 28, false}, Crowd{100, 28, true}));

TEST(KvAdmissionTest, AWholePromptMustFitBeforeItsFirstChunkRuns) {
  EngineOptions options;
  options.num_blocks = 20;  // 80 tokens
  options.max_prefill_chunk = 8;
  Harness harness(options);
  harness.Add(RequestOf(Tokens(40, 1), 8));
  harness.Add(RequestOf(Tokens(40, 2), 8));  // 8 tokens of it would fit
  for (int i = 0; i < 4; ++i) harness.Step();
  EXPECT_EQ(harness.scheduler().num_running(), 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.metrics().preemptions, 0u);
  EXPECT_EQ(harness.received(2).answers[0], harness.Expected(2));
}

TEST(KvAdmissionTest, KnownShortAnswersLetMoreRunAtOnce) {
  EngineOptions options;
  options.num_blocks = 64;  // 256 tokens
  options.max_running = 64;
  options.expected_answer_tokens = 200;
  Harness harness(options);
  const auto add = [&](int i) {
    Request request = RequestOf(Tokens(8, i), 200);
    request.sampling.temperature = 1;
    request.sampling.seed = i;
    request.stop_ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    harness.Add(std::move(request));
  };
  for (int i = 0; i < 8; ++i) add(i);
  harness.Step();
  EXPECT_EQ(harness.scheduler().num_running(), 1);
  for (int i = 8; i < 200; ++i) add(i);
  int most = 0;
  while (!harness.scheduler().idle()) {
    harness.Step();
    most = std::max(most, harness.scheduler().num_running());
  }
  EXPECT_GT(most, 8);
}

}  // namespace
}  // namespace continuo::engine
