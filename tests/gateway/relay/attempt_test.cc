// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/attempt.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

namespace continuo::gateway {
namespace {

class CountingCall : public WorkerCall {
 public:
  void StartRead() override { ++num_reads; }
  void Abandon() override { ++num_abandoned; }
  int num_reads = 0, num_abandoned = 0;
};

v1::Timings Timings(int64_t queue, int64_t prefill, int64_t total) {
  v1::Timings timings;
  timings.mutable_queue_duration()->set_seconds(queue);
  timings.mutable_prefill_duration()->set_seconds(prefill);
  timings.mutable_total_duration()->set_seconds(total);
  return timings;
}

TEST(AttemptTest, KnowsWhatItsWorkerHasBrought) {
  struct Row {
    bool has_accepted, has_delta, has_prompt_logprobs, has_summary;
    bool is_progress;
  };
  constexpr Row kRows[] = {{false, false, false, false, false},
                           {true, false, false, false, false},
                           {false, true, false, false, true},
                           {false, false, true, false, true},
                           {false, false, false, true, true}};
  for (const Row& row : kRows) {
    const auto call = std::make_shared<CountingCall>();
    Attempt attempt(1, Lease(), absl::ZeroDuration());
    attempt.Begin(call);
    EXPECT_EQ(call->num_reads, 1);
    EXPECT_TRUE(attempt.is_reading());
    v1::GenerateResponse response;
    if (row.has_accepted) response.mutable_accepted();
    if (row.has_delta) response.add_deltas();
    if (row.has_prompt_logprobs) response.add_prompt_logprobs();
    if (row.has_summary) response.mutable_summary();
    EXPECT_EQ(attempt.OnResponse(response), row.is_progress);
    EXPECT_FALSE(attempt.is_reading());
    EXPECT_EQ(attempt.was_accepted(), row.has_accepted);
    EXPECT_EQ(attempt.made_progress(), row.is_progress);
    EXPECT_EQ(call->num_abandoned, 0);
  }
}

TEST(AttemptTest, DurationsThatCannotBeAreNotBelieved) {
  const Attempt attempt(1, Lease(), /*start_time=*/absl::Seconds(100));
  const auto durations = [&](const v1::Timings& timings) {
    return attempt.DurationsOf(timings, /*now=*/absl::Seconds(110));
  };
  const std::optional<AnswerDurations> took = durations(Timings(1, 2, 9));
  ASSERT_TRUE(took.has_value());
  EXPECT_EQ(took->first, absl::Seconds(2));
  EXPECT_EQ(took->rest, absl::Seconds(6));
  EXPECT_FALSE(durations(Timings(0, 1, 11)).has_value());  // longer than the call
  EXPECT_FALSE(durations(Timings(0, -1, 5)).has_value());  // negative
  EXPECT_FALSE(durations(Timings(5, 1, 2)).has_value());   // the rest is negative
}

}  // namespace
}  // namespace continuo::gateway
