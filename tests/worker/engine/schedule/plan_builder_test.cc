// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/plan_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "services/worker/model/executor.h"
#include "tests/testing/next_token_mask.h"

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

  Request& request() { return live_.request; }
  Sequence& sequence() { return live_.sequences[0]; }

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

// Returns the first of `drafts`, as many as the constraint takes.
std::vector<int32_t> Walkable(TokenConstraint& constraint, std::vector<int32_t> drafts) {
  int accepted = 0;
  for (const int32_t draft : drafts) {
    if (!constraint.Accept(draft)) break;
    ++accepted;
  }
  constraint.Rollback(accepted);
  drafts.resize(static_cast<size_t>(accepted));
  return drafts;
}

// Compares masks of random requests, with drafts and constraints, with the definition.
TEST(PlanBuilderTest, MasksAreThoseOfTheTokensBefore) {
  std::mt19937 random(3);
  const auto pick = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  };
  int num_masked = 0, num_failed = 0;
  for (int round = 0; round < 3000; ++round) {
    const int vocab = 1 + pick(70);
    OneRequest one(0);
    Request& request = one.request();
    request.max_tokens = 20;
    const auto ids = [&](int n) {
      std::vector<int32_t> picked;
      for (int i = 0; i < n; ++i) picked.push_back(pick(std::min(vocab, 4)));
      return picked;
    };
    if (pick(2) == 0) {
      request.allowed_mask.assign(static_cast<size_t>(model::MaskWords(vocab)), 0);
      for (const int32_t id : ids(1 + pick(4))) {
        request.allowed_mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
      }
    }
    for (int n = pick(4); n > 0; --n) request.barred.push_back(ids(1 + pick(3)));
    if (pick(2) == 0) request.stop_ids = {0};
    request.min_tokens = pick(6);
    Sequence& s = one.sequence();
    s.answer = ids(1 + pick(4));
    std::vector<int32_t> drafts = ids(pick(4));
    if (pick(2) == 0) {
      // Nothing but stop ids may be left, so that min_tokens gives way.
      const bool has_thoughts = pick(3) == 0;
      request.constraints = {std::make_shared<ScriptedConstraint>(
          RandomAutomaton(static_cast<uint32_t>(pick(1000)), has_thoughts), s.answer)};
      s.constraint = request.constraints[0].get();
      drafts = Walkable(*s.constraint, drafts);
    }
    s.num_computed = static_cast<int>(request.prompt.size() + s.answer.size()) - 1;
    PlanBuilder builder(16, 8);
    builder.SetMaxBlocks(1);
    builder.Add(s, 1, drafts);

    bool failed = false;
    std::vector<bool> failures;  // of masked samples
    std::vector<uint32_t> expected;
    std::vector<int32_t> answer = s.answer;
    for (size_t k = 0; k <= drafts.size(); ++k) {
      if (k > 0) answer.push_back(drafts[k - 1]);
      std::vector<uint32_t> mask = NextTokenMask(request, answer, vocab);
      if (!builder.plan().sampling[k].masked) {
        EXPECT_TRUE(mask.empty());
        continue;
      }
      ++num_masked;
      // A sample that the constraint leaves nothing for does not count, nor do those behind it.
      const bool none = std::ranges::all_of(mask, [](uint32_t word) { return word == 0; });
      failed |= !mask.empty() && none && ConstraintAfter(request, answer).has_value();
      failures.push_back(failed);
      if (mask.empty() || failed) {  // all may follow
        mask.assign(static_cast<size_t>(model::MaskWords(vocab)), ~uint32_t{0});
        if (vocab % 32 != 0) mask.back() = (uint32_t{1} << (vocab % 32)) - 1;
      }
      expected.insert(expected.end(), mask.begin(), mask.end());
    }
    std::vector<uint32_t> filled(expected.size(), ~uint32_t{0});
    builder.FillMask(filled, vocab);
    ASSERT_EQ(filled, expected) << round;
    if (s.constraint != nullptr) {
      EXPECT_EQ(ConstraintOf(request).accepted(), s.answer);
    }
    size_t masked = 0;
    for (size_t k = 0; k <= drafts.size(); ++k) {
      if (!builder.plan().sampling[k].masked) continue;
      EXPECT_EQ(builder.samples()[k].failure.ok(), !failures[masked++]) << round;
    }
    num_failed += failed;
  }
  EXPECT_GT(num_masked, 1000);
  EXPECT_GT(num_failed, 20);
}

}  // namespace
}  // namespace continuo::engine
