// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/estimate/calibration.h"

#include <gtest/gtest.h>

#include "tests/testing/fake_executor.h"
#include "tests/testing/manual_clock.h"

namespace continuo::engine {
namespace {

constexpr int kVocab = 50;

EngineOptions SmallOptions() {
  EngineOptions options;
  options.num_blocks = 64;
  options.block_size = 4;
  options.vocab_size = kVocab;
  options.max_batch_tokens = 32;
  options.max_running = 8;
  return options;
}

TEST(CalibrationTest, AFewSmallStepsTeachTheCostOfTheFirstOnes) {
  ManualClock clock;
  FakeExecutor fake({.num_blocks = 64,
                     .block_size = 4,
                     .vocab_size = kVocab,
                     .clock = &clock,
                     .cost = [](const model::StepPlan& plan) {
                       return absl::Milliseconds(5) + plan.num_rows() * absl::Milliseconds(1);
                     }});
  EngineOptions options = SmallOptions();
  options.max_batch_tokens = 512;
  StepCost cost;
  ASSERT_TRUE(Calibrate(options, fake, clock, cost).ok());
  EXPECT_EQ(fake.num_steps(), 6);
  EXPECT_GE(cost.max_tokens(), 256);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(cost.Predict(StepLoad{}.WithTokens(0, 100, 1))), 105, 30);
}

TEST(CalibrationTest, OnASlowMachineItIsTwoSteps) {
  ManualClock clock;
  FakeExecutor fake({.num_blocks = 64,
                     .block_size = 4,
                     .vocab_size = kVocab,
                     .clock = &clock,
                     .cost = [](const model::StepPlan&) { return absl::Seconds(1); }});
  StepCost cost;
  ASSERT_TRUE(Calibrate(SmallOptions(), fake, clock, cost).ok());
  EXPECT_EQ(fake.num_steps(), 2);
}

}  // namespace
}  // namespace continuo::engine
