// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/step_sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/worker/model/run/plan_builder.h"

namespace continuo::model {
namespace {

constexpr int kVocabSize = 1000;

// Samples behind a row at `position`, where every token is as likely as another.
int32_t SampleBehind(int position, bool is_mtp, uint64_t seed) {
  const std::array<int32_t, 1> token = {3}, row = {0};
  testing::PlanBuilder builder(16, 1);
  builder.Add(0, position, token, row, {.temperature = 1, .seed = seed});
  StepPlan& plan = builder.plan();
  if (is_mtp) plan.hidden_rows = {0};
  const auto device = *kernels::MakeDevice({});
  StepSampler sampler(*device, kVocabSize, 1);
  EXPECT_TRUE(sampler.Reserve(1).ok());
  sampler.FillMasks(0, plan, [](std::span<uint32_t>) {});
  std::vector<float> logits(kVocabSize);
  StepResult result;
  result.token_ids.resize(1);
  result.scores.resize(1);
  const absl::Status status =
      sampler.SampleOnHost(0, plan, {.begin = 0, .end = 1, .first_row = 0, .row_of_sample = row},
                           {logits.data(), kernels::DType::kF32, {1, kVocabSize, 1}},
                           {plan.token_ids.data(), kernels::DType::kI32, {1, 1, 1}}, row, result);
  EXPECT_TRUE(status.ok()) << status;
  return result.token_ids[0];
}

// The module's row at position p guesses the token of p + 2, which the model samples behind p + 1.
TEST(StepSamplerTest, ADraftHasTheRandomNumberOfTheTokenThatItGuesses) {
  int others = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int32_t token = SampleBehind(6, false, seed);
    EXPECT_EQ(SampleBehind(5, true, seed), token) << seed;
    others += SampleBehind(5, false, seed) != token;
  }
  EXPECT_GT(others, 15);
}

}  // namespace
}  // namespace continuo::model
