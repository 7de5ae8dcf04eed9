// SPDX-License-Identifier: Apache-2.0
#include "services/worker/profile/cost_fit.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

namespace continuo::profile {
namespace {

constexpr StepTime kTruth = {
    .fixed = 4e-3, .per_token = 3e-4, .per_attended_token = 2e-8, .per_sample = 5e-5};

// Decodes, prompts and both, of random sizes; times are off by `noise` at most.
CostFit FitOf(const StepTime& truth, int steps, double noise) {
  std::mt19937_64 random(1);
  const auto draw = [&](int most) { return static_cast<int64_t>(random() % most); };
  CostFit fit;
  for (int i = 0; i < steps; ++i) {
    engine::StepLoad load;
    if (i % 3 != 0) {
      for (int64_t n = 1 + draw(32); n > 0; --n) load = load.WithSequence(draw(4000), 1, 1);
    }
    if (i % 3 != 1) load = load.WithSequence(draw(4000), 1 + draw(500), 1);
    const double off = 1 + noise * (static_cast<double>(draw(2001)) / 1000 - 1);
    fit.Add(load, truth.Of(load) * off);
  }
  return fit;
}

TEST(CostFitTest, StepsWithoutNoiseGiveTheirCost) {
  const CostFit fit = FitOf(kTruth, 300, 0);
  const auto step = fit.Fit();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(step->fixed / kTruth.fixed, 1, 1e-3);
  EXPECT_NEAR(step->per_token / kTruth.per_token, 1, 1e-3);
  EXPECT_NEAR(step->per_attended_token / kTruth.per_attended_token, 1, 1e-3);
  EXPECT_NEAR(step->per_sample / kTruth.per_sample, 1, 1e-2);
  EXPECT_LT(fit.Error(*step), 1e-4);
}

TEST(CostFitTest, ABatchThatFillsTheProcessorCostsMoreForEachFurtherSample) {
  StepTime truth = kTruth;
  truth.per_sample_over = {1e-4, 3e-4, 0};
  const CostFit fit = FitOf(truth, 1000, 0);
  const auto step = fit.Fit();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(step->per_sample_over[0] / truth.per_sample_over[0], 1, 2e-2);
  EXPECT_NEAR(step->per_sample_over[1] / truth.per_sample_over[1], 1, 2e-2);
  EXPECT_LT(fit.Error(*step), 1e-3);
}

TEST(CostFitTest, TheAttentionOfADecodeHasACostOfItsOwn) {
  StepTime truth = kTruth;
  truth.per_decode_attended_token = 1e-7;
  const CostFit fit = FitOf(truth, 1000, 0);
  const auto step = fit.Fit();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(step->per_attended_token / truth.per_attended_token, 1, 2e-2);
  EXPECT_NEAR(step->per_decode_attended_token / truth.per_decode_attended_token, 1, 2e-2);
  EXPECT_LT(fit.Error(*step), 1e-3);
}

TEST(CostFitTest, NoiseIsAveragedAndTold) {
  const CostFit fit = FitOf(kTruth, 3000, 0.2);
  const auto step = fit.Fit();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(step->fixed / kTruth.fixed, 1, 0.1);
  EXPECT_NEAR(step->per_token / kTruth.per_token, 1, 0.1);
  // The deviation of a uniform distribution.
  EXPECT_NEAR(fit.Error(*step), 0.2 / std::sqrt(3), 0.02);
}

// A step in ten takes ten times as long, as on a machine with neighbours: throughput is by the
// mean.
TEST(CostFitTest, TheMeanCountsAndNotTheUsual) {
  CostFit fit;
  const engine::StepLoad load = engine::StepLoad().WithSequence(100, 1, 1);
  for (int i = 0; i < 1000; ++i) fit.Add(load, absl::Milliseconds(i % 10 == 0 ? 50 : 5));
  const auto step = fit.Fit();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(absl::ToDoubleSeconds(step->Of(load)), 9.5e-3, 1e-4);
}

TEST(CostFitTest, NoTermIsBelowZero) {
  const CostFit fit = FitOf({.fixed = 1e-2}, 300, 0.3);
  const auto step = fit.Fit();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_GE(step->per_token, 0);
  EXPECT_GE(step->per_attended_token, 0);
  EXPECT_GE(step->per_sample, 0);
  EXPECT_NEAR(step->fixed, 1e-2, 1e-3);
}

TEST(CostFitTest, StepsOfOneKindGiveACostThatFitsThem) {
  CostFit fit;
  const engine::StepLoad load = engine::StepLoad().WithSequence(100, 1, 1);
  for (int i = 0; i < 60; ++i) fit.Add(load, absl::Milliseconds(7));
  const auto step = fit.Fit();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(absl::ToDoubleSeconds(step->Of(load)), 7e-3, 1e-5);
}

TEST(CostFitTest, AFewStepsAreTooFew) {
  EXPECT_TRUE(absl::IsFailedPrecondition(FitOf(kTruth, 49, 0).Fit().status()));
  CostFit fit;
  for (int i = 0; i < 100; ++i) fit.Add({}, absl::Seconds(1));
  for (int i = 0; i < 100; ++i) fit.Add({.tokens = 1}, absl::ZeroDuration());
  EXPECT_EQ(fit.num_steps(), 0);
}

}  // namespace
}  // namespace continuo::profile
