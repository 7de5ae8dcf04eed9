// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/model_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "services/worker/model/load/model_loader.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::testing {
namespace {

constexpr int kBlockSize = 16;
constexpr int kMaxBlocks = 16;
constexpr int kVocab = 301;

void NoMask(std::span<uint32_t>) { FAIL() << "no sample is masked"; }

std::vector<int32_t> RandomTokens(uint32_t seed, size_t length) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(length);
  for (int32_t& id : tokens) id = static_cast<int32_t>(random() % kVocab);
  return tokens;
}

// Parameterised by the number of ranks: everything holds for ModelRunner and RankGroup alike.
class ExecutorTest : public ::testing::TestWithParam<int> {
 protected:
  ExecutorTest() : model_({.family = "qwen3"}) {
    model::LoadOptions options;
    options.source.dir = model_.dir();
    options.tensor_parallel = GetParam();
    options.device.num_threads = 2;
    options.kv.num_blocks = 64 * kMaxBlocks;
    options.reads_states = true;
    auto loaded = model::LoadModel(options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    executor_ = std::move(loaded->executor);
  }

  model::StepResult Run(const model::StepPlan& plan, model::MaskFiller fill_mask = NoMask) {
    auto result = executor_->Run(plan, fill_mask);
    EXPECT_TRUE(result.ok()) << result.status();
    return *std::move(result);
  }

  TinyModel model_;
  std::unique_ptr<model::Executor> executor_;
};

TEST_P(ExecutorTest, SamplesWhatTheSamplerDrawsFromTheModelsLogits) {
  auto harness = ModelHarness::Make(model_.dir(), {.num_blocks = 8 * kMaxBlocks});
  ASSERT_TRUE(harness.ok());
  std::vector<model::SamplingParams> settings = {
      {.temperature = 0, .num_logprobs = 3},
      {.temperature = 1, .seed = 5},
      {.temperature = 2, .top_k = 10, .top_p = 0.9f, .seed = 6, .num_logprobs = 0},
      {.repetition_penalty = 1.7f, .presence_penalty = 1, .frequency_penalty = 0.5f, .seed = 7}};
  PlanBuilder builder(kBlockSize, kMaxBlocks);
  for (size_t i = 0; i < settings.size(); ++i) {
    const auto tokens = RandomTokens(static_cast<uint32_t>(i), 20 + 7 * i);
    builder.Add(static_cast<int>(i), 0, tokens, LastOf(tokens), settings[i]);
  }
  model::StepPlan plan = builder.plan();
  plan.biases = {{4, 3.5f}, {9, -2.0f}};
  plan.bias_begin = {0, 0, 2, 2, 2};
  plan.seen = {{0, 0}, {5, 2}, {300, 1}};
  plan.seen_begin = {0, 0, 0, 0, 3};
  const model::StepResult result = Run(plan);
  const std::vector<float> logits = (*harness)->Run(plan);
  model::SamplerScratch scratch;
  for (size_t i = 0; i < settings.size(); ++i) {
    model::SampleInput input;
    input.logits = std::span(logits).subspan(i * kVocab, kVocab);
    input.params = settings[i];
    input.position = static_cast<int32_t>(20 + 7 * i);
    if (i == 1) input.biases = plan.biases;
    if (i == 3) input.seen = plan.seen;
    const model::SampleOutput expected = model::SampleToken(input, scratch);
    EXPECT_EQ(result.token_ids[i], expected.token_id) << i;
    EXPECT_EQ(result.scores[i].logprob, expected.score.logprob) << i;
    ASSERT_EQ(result.scores[i].alternatives.size(), expected.score.alternatives.size());
  }
}

TEST_P(ExecutorTest, AStateIsTheSameAloneInABatchAndInChunks) {
  const auto add = [](PlanBuilder& builder, int id, int begin, std::span<const int32_t> tokens,
                      bool reads) {
    builder.Add(id, begin, tokens, reads ? LastOf(tokens) : std::vector<int32_t>(), {},
                model::kReadState);
  };
  PlanBuilder batch(kBlockSize, kMaxBlocks);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 64; ++i) {
    prompts.push_back(RandomTokens(static_cast<uint32_t>(i), static_cast<size_t>(1 + i % 29)));
    add(batch, i, 0, prompts.back(), true);
  }
  const model::StepResult all = Run(batch.plan());
  ASSERT_EQ(all.states.size(), 64u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_EQ(all.states[i].size(), 48u);
    PlanBuilder one(kBlockSize, kMaxBlocks);
    add(one, 0, 0, prompts[i], true);
    EXPECT_EQ(Run(one.plan()).states[0], all.states[i]) << i;
    if (prompts[i].size() < 2) continue;
    const size_t half = prompts[i].size() / 2;
    PlanBuilder first(kBlockSize, kMaxBlocks), second(kBlockSize, kMaxBlocks);
    add(first, 1, 0, std::span(prompts[i]).first(half), false);
    add(second, 1, static_cast<int>(half), std::span(prompts[i]).subspan(half), true);
    EXPECT_TRUE(Run(first.plan()).states.empty());
    EXPECT_EQ(Run(second.plan()).states[0], all.states[i]) << i;
  }
}

TEST_P(ExecutorTest, AStateIsThatOfOneRank) {
  model::LoadOptions options;
  options.source.dir = model_.dir();
  options.kv.num_blocks = kMaxBlocks;
  options.reads_states = true;
  auto loaded = model::LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto tokens = RandomTokens(7, 77);
  PlanBuilder builder(kBlockSize, kMaxBlocks);
  builder.Add(0, 0, tokens, LastOf(tokens), {}, model::kReadState);
  const auto alone = loaded->executor->Run(builder.plan(), NoMask);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(Run(builder.plan()).states, alone->states);
}

TEST_P(ExecutorTest, ManySamplesAreTakenSliceBySlice) {
  const auto tokens = RandomTokens(1, 200);
  const model::SamplingParams score = {.num_logprobs = 1};
  PlanBuilder builder(kBlockSize, kMaxBlocks);
  builder.Add(0, 0, tokens, AllOf(tokens), score);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) builder.plan().sample_targets[i] = tokens[i + 1];
  const model::StepResult all = Run(builder.plan());
  ASSERT_EQ(all.token_ids.size(), 200u);
  for (const size_t row : {0u, 63u, 64u, 127u, 130u, 198u}) {
    EXPECT_EQ(all.token_ids[row], tokens[row + 1]);
    const auto prefix = std::span(tokens).first(row + 1);
    PlanBuilder one(kBlockSize, kMaxBlocks);
    one.Add(1, 0, prefix, LastOf(prefix), score, tokens[row + 1]);
    const model::StepResult alone = Run(one.plan());
    EXPECT_EQ(all.scores[row].logprob, alone.scores[0].logprob) << row;
    EXPECT_EQ(all.scores[row].alternatives[0].token_id, alone.scores[0].alternatives[0].token_id);
  }
}

TEST_P(ExecutorTest, SeveralSamplesOfOneRowDifferByTheirIndex) {
  const auto tokens = RandomTokens(2, 30);
  PlanBuilder builder(kBlockSize, kMaxBlocks);
  builder.Add(0, 0, tokens, std::vector<int32_t>(128, 29), {.temperature = 3, .seed = 1});
  for (size_t i = 0; i < 128; ++i) {
    builder.plan().sampling[i].sequence_index = static_cast<int32_t>(i);
  }
  const model::StepResult result = Run(builder.plan());
  std::vector<int32_t> distinct = result.token_ids;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_GT(distinct.size(), 20u);
  // Alone, sequence 77 samples the same tokens.
  PlanBuilder alone(kBlockSize, kMaxBlocks);
  alone.Add(1, 0, tokens, LastOf(tokens), {.temperature = 3, .seed = 1, .sequence_index = 77});
  EXPECT_EQ(Run(alone.plan()).token_ids[0], result.token_ids[77]);
}

TEST_P(ExecutorTest, MasksAreAskedForOnceInTheOrderOfTheMaskedSamples) {
  PlanBuilder builder(kBlockSize, kMaxBlocks);
  for (int i = 0; i < 3; ++i) {
    const auto tokens = RandomTokens(static_cast<uint32_t>(i), 5);
    builder.Add(i, 0, tokens, LastOf(tokens), {.temperature = 0, .masked = i != 1});
  }
  int calls = 0;
  const model::StepResult result = Run(builder.plan(), [&calls](std::span<uint32_t> mask) {
    ++calls;
    constexpr size_t kWords = (kVocab + 31) / 32;
    ASSERT_EQ(mask.size(), 2 * kWords);
    EXPECT_TRUE(std::all_of(mask.begin(), mask.end(), [](uint32_t w) { return w == ~0u; }));
    std::fill(mask.begin(), mask.end(), 0);
    mask[1] = 1u << 3;            // 35 for the first
    mask[kWords + 9] = 1u << 12;  // 300 for the second
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(result.token_ids[0], 35);
  EXPECT_EQ(result.token_ids[2], 300);
}

TEST_P(ExecutorTest, BlocksAreCopiedBeforeTheRowsRun) {
  const auto tokens = RandomTokens(4, 21);
  const model::SamplingParams score = {.temperature = 0, .num_logprobs = 2};
  PlanBuilder first(kBlockSize, kMaxBlocks);
  first.Add(0, 0, std::span(tokens).first(20), {}, score);
  Run(first.plan());
  // Sequence 1 goes on from copies of sequence 0's two blocks, in the step that overwrites them.
  PlanBuilder fork(kBlockSize, kMaxBlocks);
  const auto other = RandomTokens(5, 20);
  fork.Add(0, 0, other, {}, score);
  const auto last = std::span(tokens).last(1);
  fork.Add(1, 20, last, LastOf(last), score);
  fork.plan().block_copies = {{0, kMaxBlocks}, {1, kMaxBlocks + 1}};
  const model::StepResult forked = Run(fork.plan());
  PlanBuilder whole(kBlockSize, kMaxBlocks);
  whole.Add(2, 0, tokens, LastOf(tokens), score);
  const model::StepResult expected = Run(whole.plan());
  EXPECT_EQ(forked.token_ids, expected.token_ids);
  EXPECT_EQ(forked.scores[0].logprob, expected.scores[0].logprob);
}

TEST_P(ExecutorTest, PlansWithoutSamplesOrRowsRun) {
  const auto tokens = RandomTokens(6, 3);
  PlanBuilder rows(kBlockSize, kMaxBlocks);
  rows.Add(0, 0, tokens, {});
  EXPECT_TRUE(Run(rows.plan()).token_ids.empty());
  model::StepPlan copies;
  copies.block_copies = {{0, 1}};
  EXPECT_TRUE(Run(copies).token_ids.empty());
  EXPECT_TRUE(Run(model::StepPlan{}).token_ids.empty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExecutorTest, ::testing::Values(1, 2, 4, 8),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace continuo::testing
