// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/engine/simulation.h"

#include <gtest/gtest.h>

#include "tests/worker/engine/fake_model.h"

namespace continuo::engine {
namespace {

constexpr int kSeedsPerShard = 1000;
#ifdef __SANITIZE_ADDRESS__  // A shard takes minutes.
constexpr int kNumShards = 3;
#else
constexpr int kNumShards = 24;
#endif

class SimulationTest : public ::testing::TestWithParam<int> {};

TEST_P(SimulationTest, EveryAnswerEqualsTheUncachedOne) {
  SimulationTally tally;
  FakeModel model;
  const uint32_t first = GetParam() * kSeedsPerShard;
  for (uint32_t seed = first; seed < first + kSeedsPerShard; ++seed) {
    const std::string failure = Simulation(seed, &tally, &model).Run();
    ASSERT_EQ(failure, "") << "seed " << seed;
  }
  // The schedules must have met everything that they are to show.
  for (const int64_t count : {tally.preemptions,   tally.hit_tokens,
                              tally.copies,        tally.cancelled,
                              tally.edge_finished, tally.timed_out,
                              tally.time_limited,  tally.continued,
                              tally.forked,        tally.masked,
                              tally.prompt_scores, tally.overlapped,
                              tally.lost,          tally.late,
                              tally.widely_forked, tally.longest,
                              tally.right_drafts,  tally.drafts - tally.right_drafts,
                              tally.constrained,   tally.must_end,
                              tally.state_steps,   tally.state_hit_tokens,
                              tally.state_copies,  tally.states}) {
    EXPECT_GT(count, 20);
  }
  RecordProperty("requests", static_cast<int>(tally.requests));
  RecordProperty("steps", static_cast<int>(tally.steps));
  RecordProperty("preemptions", static_cast<int>(tally.preemptions));
}

INSTANTIATE_TEST_SUITE_P(Shard, SimulationTest, ::testing::Range(0, kNumShards));

}  // namespace
}  // namespace continuo::engine
