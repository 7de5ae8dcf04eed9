// SPDX-License-Identifier: Apache-2.0
#include "services/worker/profile/measure_profile.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "services/worker/engine/kv/state_pool.h"
#include "tests/testing/manual_clock.h"

namespace continuo::profile {
namespace {

// A device whose steps cost what a StepTime says, and which checks the plans that it gets.
class ProfiledDevice : public model::Executor {
 public:
  ProfiledDevice(const StepTime& step, ManualClock* clock) : step_(step), clock_(*clock) {}

  absl::Status Start(const model::StepPlan& plan, model::MaskFiller) override {
    if (!failure.ok()) return failure;
    std::set<int32_t> slots;
    for (int s = 0; s < plan.num_seqs(); ++s) {
      const int begin = plan.query_begin[s], end = plan.query_begin[s + 1];
      EXPECT_LT(begin, end);
      EXPECT_EQ(plan.positions[end - 1] + 1, plan.kv_len[s]);
      for (int row = begin; row < end; ++row) {
        EXPECT_TRUE(slots.insert(plan.kv_slots[row]).second) << "two rows have one place";
        const int32_t block = plan.block_tables[s * plan.max_blocks + plan.positions[row] / 16];
        EXPECT_EQ(plan.kv_slots[row], block * 16 + plan.positions[row] % 16);
      }
      if (!plan.state_to.empty()) CheckState(plan, s);
      most_context = std::max(most_context, plan.kv_len[s]);
    }
    most_tokens = std::max(most_tokens, plan.num_rows());
    most_sequences = std::max(most_sequences, plan.num_seqs());
    ++num_steps;
    clock_.Advance(step_.Of(LoadOf(plan)));
    return absl::OkStatus();
  }
  absl::StatusOr<model::StepResult> Finish() override { return model::StepResult(); }

  absl::Status failure;
  int num_steps = 0, most_tokens = 0, most_sequences = 0, most_context = 0, most_state_slot = -1;

 private:
  // A sequence reads the slot that its last step has written, and writes the other one of its two.
  void CheckState(const model::StepPlan& plan, int s) {
    const int begin = plan.query_begin[s], end = plan.query_begin[s + 1];
    const int from = plan.state_from[s], to = plan.state_to[end - 1];
    for (int row = begin; row + 1 < end; ++row) EXPECT_EQ(plan.state_to[row], engine::kNoState);
    ASSERT_GE(to, 0);
    if (plan.positions[begin] == 0) {
      EXPECT_EQ(from, engine::kNoState);
    } else {
      EXPECT_EQ(from, newest_state_[to / 2]);
      EXPECT_EQ(to, from ^ 1);
    }
    newest_state_[to / 2] = to;
    most_state_slot = std::max(most_state_slot, to);
  }

  const StepTime step_;
  ManualClock& clock_;
  std::map<int, int> newest_state_;  // by the pair of slots
};

MeasureOptions Options(int num_blocks, int context) {
  MeasureOptions options = {.name = "m", .max_context_tokens = context};
  options.engine.num_blocks = num_blocks;
  options.engine.vocab_size = 1000;
  return options;
}

TEST(MeasureProfileTest, TheCostOfADeviceIsFound) {
  const StepTime step = {.fixed = 3e-3,
                         .per_token = 4e-5,
                         .per_attended_token = 2e-8,
                         .per_decode_attended_token = 1e-7,
                         .per_sample = 1e-4};
  ManualClock clock;
  ProfiledDevice device(step, &clock);
  MeasureOptions options = Options(4096, 8192);
  options.engine.max_running = 100;
  const absl::StatusOr<WorkerProfile> profile = MeasureProfile(options, device, clock);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_NEAR(profile->step.fixed, step.fixed, 0.02 * step.fixed);
  EXPECT_NEAR(profile->step.per_token, step.per_token, 0.02 * step.per_token);
  EXPECT_NEAR(profile->step.per_attended_token, step.per_attended_token,
              0.05 * step.per_attended_token);
  EXPECT_NEAR(profile->step.per_decode_attended_token, step.per_decode_attended_token,
              0.05 * step.per_decode_attended_token);
  EXPECT_NEAR(profile->step.per_sample, step.per_sample, 0.05 * step.per_sample);
  EXPECT_EQ(profile->engine.num_blocks, 4096);
  EXPECT_EQ(profile->engine.max_running, 100);
  EXPECT_EQ(device.most_sequences, 64);
  EXPECT_EQ(device.most_tokens, 2048);
  EXPECT_GT(device.most_context, 2048);
  // What is printed is what the simulator reads.
  const auto read = ParseProfile(FormatProfile(*profile));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step.per_token, profile->step.per_token);
  EXPECT_EQ(read->max_context_tokens, 8192);
}

TEST(MeasureProfileTest, ASlowDeviceIsMeasuredByFewerSteps) {
  ManualClock clock;
  ProfiledDevice device({.fixed = 0.5, .per_token = 0.05}, &clock);
  MeasureOptions options = Options(4096, 8192);
  options.budget = absl::Seconds(20);
  const absl::StatusOr<WorkerProfile> profile = MeasureProfile(options, device, clock);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_LT(device.num_steps, 80);
  EXPECT_NEAR(profile->step.per_token, 0.05, 0.005);
}

TEST(MeasureProfileTest, ASmallCacheIsUsedAgain) {
  ManualClock clock;
  ProfiledDevice device({.fixed = 1e-3, .per_token = 1e-3}, &clock);
  const absl::StatusOr<WorkerProfile> profile = MeasureProfile(Options(4, 64), device, clock);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_NEAR(profile->step.per_token, 1e-3, 1e-4);
  EXPECT_LE(device.most_context, 64);
}

TEST(MeasureProfileTest, ACacheWithoutBoundsIsMeasuredAndWritten) {
  ManualClock clock;
  ProfiledDevice device({.fixed = 1e-3, .per_token = 1e-3}, &clock);
  // This number of tokens does not fit an int, and this number of blocks not a file.
  for (const int context : {64, 1 << 30}) {
    const auto profile = MeasureProfile(Options(1 << 28, context), device, clock);
    ASSERT_TRUE(profile.ok()) << profile.status();
    const auto read = ParseProfile(FormatProfile(*profile));
    EXPECT_TRUE(read.ok()) << read.status();
  }
}

TEST(MeasureProfileTest, StatesTakeTurnsInTwoSlotsOfASequence) {
  ManualClock clock;
  ProfiledDevice device({.fixed = 1e-3, .per_token = 1e-3}, &clock);
  MeasureOptions options = Options(4096, 8192);
  options.engine.num_state_slots = 8;
  const absl::StatusOr<WorkerProfile> profile = MeasureProfile(options, device, clock);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(device.most_sequences, 4);
  EXPECT_EQ(device.most_state_slot, 7);
}

TEST(MeasureProfileTest, WhatCannotBeMeasuredIsAnError) {
  ManualClock clock;
  ProfiledDevice device({.fixed = 1e-3}, &clock);
  const absl::Status tiny = MeasureProfile(Options(1, 64), device, clock).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(tiny));
  EXPECT_THAT(std::string(tiny.message()), ::testing::HasSubstr("too small to measure"));
  device.failure = absl::InternalError("the device is lost");
  EXPECT_EQ(MeasureProfile(Options(4096, 8192), device, clock).status(), device.failure);
}

}  // namespace
}  // namespace continuo::profile
