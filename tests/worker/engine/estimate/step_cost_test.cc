// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/estimate/step_cost.h"

#include <gmock/gmock.h>

#include <random>

namespace continuo::engine {
namespace {

// Returns the true duration of a step in these tests, in seconds.
double Truth(const StepLoad& load, double slower = 1) {
  return slower *
         (5e-3 + 2e-4 * static_cast<double>(load.tokens) +
          3e-8 * static_cast<double>(load.attention) + 1e-4 * static_cast<double>(load.samples));
}

StepLoad RandomLoad(std::mt19937& rng) {
  StepLoad load;
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  for (int i = pick(0, 32); i > 0; --i) load = load.WithTokens(pick(10, 2000), 1, 1);
  for (int i = pick(0, 2); i > 0; --i) load = load.WithTokens(pick(0, 2000), pick(16, 512), 0);
  return load.tokens == 0 ? load.WithTokens(10, 1, 1) : load;
}

double RelativeError(const StepCost& cost, const StepLoad& load, double slower = 1) {
  const double truth = Truth(load, slower);
  return std::abs(absl::ToDoubleSeconds(cost.Predict(load)) - truth) / truth;
}

TEST(StepCostTest, TokensAttendToEverythingBeforeThem) {
  const StepLoad load = StepLoad{}.WithTokens(/*context=*/10, /*count=*/3, /*num_samples=*/1);
  EXPECT_EQ(load.tokens, 3);
  EXPECT_EQ(load.attention, 11 + 12 + 13);
  EXPECT_EQ(load.samples, 1);
}

TEST(StepCostTest, TheAttentionOfAWholeSequenceOfOneTokenIsADecodes) {
  const StepLoad decode = StepLoad{}.WithSequence(/*context=*/10, /*count=*/1, /*num_samples=*/1);
  EXPECT_EQ(decode.attention, 11);
  EXPECT_EQ(decode.decode_attention, 11);
  // A prompt's, or a token that is added to others of its sequence, is not.
  EXPECT_EQ(decode.WithSequence(10, 3, 1).decode_attention, 11);
  EXPECT_EQ(decode.WithTokens(10, 1, 1).decode_attention, 11);
}

TEST(StepCostTest, NothingIsPredictedBeforeAnythingIsMeasured) {
  EXPECT_EQ(StepCost().Predict({100, 1000, 1}), absl::ZeroDuration());
  EXPECT_EQ(StepCost().TokenTime({100, 1000, 1}, 0, absl::Seconds(1)), absl::ZeroDuration());
}

TEST(StepCostTest, TokensTakeWhatAStepTakesBeyondAnyStep) {
  std::mt19937 rng(7);
  StepCost cost;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = RandomLoad(rng);
    cost.Observe(load, absl::Seconds(Truth(load)));
  }
  // Of eight tokens that decode, seven are drafts.
  StepLoad decode = StepLoad{}.WithTokens(500, 8, 8);
  const auto token_ms = [&](int64_t wasted, double slower) {
    return absl::ToDoubleMilliseconds(
        cost.TokenTime(decode, wasted, absl::Seconds(Truth(decode, slower))));
  };
  const double all = 1e3 * (Truth(decode) - Truth({}));
  EXPECT_NEAR(token_ms(0, 1), all, 0.1 * all);
  EXPECT_NEAR(token_ms(7, 1), all / 8, 0.02 * all);
  EXPECT_NEAR(token_ms(0, 3), 3 * all, 0.3 * all);
  EXPECT_EQ(token_ms(100, 1), 0);
  EXPECT_EQ(cost.TokenTime(decode, 0, -absl::Seconds(1)), absl::ZeroDuration());
  EXPECT_EQ(cost.TokenTime({}, 0, absl::Seconds(1)), absl::ZeroDuration());
}

TEST(StepCostTest, MeasuredStepsArePredictedWithinFivePercent) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<double> noise(0.98, 1.02);
  StepCost cost;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = RandomLoad(rng);
    cost.Observe(load, absl::Seconds(Truth(load) * noise(rng)));
  }
  for (int i = 0; i < 200; ++i) EXPECT_LT(RelativeError(cost, RandomLoad(rng)), 0.05);
}

TEST(StepCostTest, AMachineThatBecomesSlowerIsBelieved) {
  std::mt19937 rng(2);
  StepCost cost;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = RandomLoad(rng);
    cost.Observe(load, absl::Seconds(Truth(load)));
  }
  for (int i = 0; i < 600; ++i) {
    const StepLoad load = RandomLoad(rng);
    cost.Observe(load, absl::Seconds(Truth(load, 10)));
  }
  for (int i = 0; i < 100; ++i) EXPECT_LT(RelativeError(cost, RandomLoad(rng), 10), 0.1);
}

TEST(StepCostTest, OneHiccupChangesLittle) {
  std::mt19937 rng(3);
  StepCost cost;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = RandomLoad(rng);
    cost.Observe(load, absl::Seconds(Truth(load)));
  }
  cost.Observe(RandomLoad(rng), absl::Seconds(30));
  for (int i = 0; i < 100; ++i) EXPECT_LT(RelativeError(cost, RandomLoad(rng)), 0.25);
}

TEST(StepCostTest, ADayOfDecodingDoesNotForgetWhatAPromptCosts) {
  std::mt19937 rng(4);
  StepCost cost;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = RandomLoad(rng);
    cost.Observe(load, absl::Seconds(Truth(load)));
  }
  StepLoad decode;
  for (int i = 0; i < 8; ++i) decode = decode.WithTokens(500, 1, 1);
  for (int i = 0; i < 100000; ++i) cost.Observe(decode, absl::Seconds(Truth(decode)));
  EXPECT_LT(RelativeError(cost, StepLoad{}.WithTokens(0, 512, 1)), 0.15);
}

TEST(StepCostTest, NoPredictionIsNegative) {
  std::mt19937 rng(5);
  std::uniform_real_distribution<double> noise(0.1, 3);
  StepCost cost;
  for (int i = 0; i < 1000; ++i) {
    const StepLoad load = RandomLoad(rng);
    cost.Observe(load, absl::Seconds(Truth(load) * noise(rng)));
    EXPECT_GE(cost.Predict(RandomLoad(rng)), absl::ZeroDuration());
  }
}

TEST(StepCostTest, StepsGrowAtMostFourfoldOverTheLargestMeasured) {
  StepCost cost;
  EXPECT_EQ(cost.max_tokens(), 16);
  cost.Observe({16, 100, 1}, absl::Milliseconds(1));
  EXPECT_EQ(cost.max_tokens(), 64);
  cost.Observe({4, 100, 1}, absl::Milliseconds(1));
  EXPECT_EQ(cost.max_tokens(), 64);
}

TEST(StepCostTest, AStepThatTakesNoTimeIsNoHarm) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.Observe({4, 100, 1}, absl::ZeroDuration());
  cost.Observe({4, 100, 1}, -absl::Seconds(1));
  cost.Observe({4, 100, 1}, absl::InfiniteDuration());
  EXPECT_LT(cost.Predict({4, 100, 1}), absl::Seconds(1));
}

}  // namespace
}  // namespace continuo::engine
