// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/plan_builder.h"

#include <gtest/gtest.h>

namespace continuo::engine {
namespace {

// A request with `num_biases` biases and one sample at the end of its prompt.
class OneRequest {
 public:
  explicit OneRequest(int num_biases) {
    live_.request.prompt = {1, 2, 3};
    live_.request.max_tokens = 4;
    for (int i = 0; i < num_biases; ++i) live_.request.biases.push_back({i, 1.0f});
    Sequence& s = live_.sequences.emplace_back();
    s.request = &live_;
    s.state = SequenceState::kRunning;
    s.blocks = {0};
  }

  void Step(PlanBuilder& builder) {
    builder.Clear();
    builder.SetMaxBlocks(1);
    builder.Add(live_.sequences[0], 3);
  }

 private:
  LiveRequest live_;
};

TEST(PlanBuilderTest, MemoryOfAnUnusualStepIsGivenBack) {
  PlanBuilder builder(16, 8);
  const size_t at_first = builder.plan().biases.capacity();
  OneRequest unusual(100'000), usual(300);
  unusual.Step(builder);
  EXPECT_GE(builder.plan().biases.capacity(), 100'000u);
  usual.Step(builder);
  usual.Step(builder);
  EXPECT_EQ(builder.plan().biases.capacity(), at_first);
  EXPECT_EQ(builder.plan().biases.size(), 300u);
}

TEST(PlanBuilderTest, StepsThatAreAlikeUseTheSameMemory) {
  for (const int num_biases : {0, 300, 100'000}) {
    PlanBuilder builder(16, 8);
    OneRequest request(num_biases);
    request.Step(builder);
    const kernels::LogitBias* const biases = builder.plan().biases.data();
    const int32_t* const rows = builder.plan().sample_rows.data();
    for (int i = 0; i < 3; ++i) request.Step(builder);
    EXPECT_EQ(builder.plan().biases.data(), biases) << num_biases;
    EXPECT_EQ(builder.plan().sample_rows.data(), rows) << num_biases;
  }
}

}  // namespace
}  // namespace continuo::engine
