// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/load/warm_up.h"

#include <algorithm>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/worker/model/run/step_shape.h"

namespace continuo::model {
namespace {

using ::testing::ElementsAre;

// Checks the plans that it is given, and counts those of steps that decode.
class PlanCounter : public Executor {
 public:
  explicit PlanCounter(const WarmUpOptions& options) : options_(options) {}

  absl::Status Start(const StepPlan& plan, MaskFiller) override {
    const auto& p = plan;
    const int block_size = options_.block_size;
    EXPECT_GE(p.num_rows(), 1);
    EXPECT_LE(p.num_rows(), options_.max_rows);
    EXPECT_EQ(p.block_tables.size(), p.sequence_ids.size() * static_cast<size_t>(p.max_blocks));
    for (size_t r = 0; r < p.token_ids.size(); ++r) {
      EXPECT_EQ(p.kv_slots[r] / block_size, options_.spare_block);
      EXPECT_LT(p.positions[r], options_.context_length);
    }
    for (int s = 0; s < p.num_seqs(); ++s) {
      const int used = (p.kv_len[static_cast<size_t>(s)] + block_size - 1) / block_size;
      const auto row = p.block_tables.begin() + int64_t{s} * p.max_blocks;
      EXPECT_LE(used, p.max_blocks);
      EXPECT_TRUE(std::all_of(row, row + used, [&](int b) { return b == options_.spare_block; }));
      EXPECT_TRUE(std::all_of(row + used, row + p.max_blocks, [](int b) { return b == -1; }));
    }
    most_rows = std::max(most_rows, p.num_rows());
    most_sequences = std::max(most_sequences, p.num_seqs());
    most_samples = std::max(most_samples, p.num_samples());
    if (p.num_rows() == p.num_seqs()) ++decodes[{p.num_rows(), p.max_blocks}];
    if (p.num_seqs() == 1 && p.num_samples() == 1 && p.num_rows() > 1) {
      prompts.push_back(p.num_rows());
    }
    draws.insert(draws.end(), p.sampling.begin(), p.sampling.end());
    EXPECT_EQ(p.seen_begin.back(), static_cast<int>(p.seen.size()));
    EXPECT_EQ(p.bias_begin.back(), static_cast<int>(p.biases.size()));
    num_seen += static_cast<int>(p.seen.size());
    num_biases += static_cast<int>(p.biases.size());
    samples_ = static_cast<size_t>(p.num_samples());
    if (p.is_mtp()) {
      ++modules[last_rows_];
      EXPECT_EQ(p.hidden_rows.size(), p.token_ids.size());
      EXPECT_EQ(p.num_rows(), last_rows_);
      EXPECT_LT(*std::ranges::max_element(p.hidden_rows), last_rows_);
      EXPECT_TRUE(p.state_from.empty() && p.state_to.empty() && p.block_copies.empty());
      EXPECT_FALSE(last_was_module_);
    }
    last_was_module_ = p.is_mtp();
    last_rows_ = p.num_rows();
    return absl::OkStatus();
  }
  absl::StatusOr<StepResult> Finish() override {
    StepResult result;
    result.token_ids.resize(samples_);
    result.scores.resize(samples_);
    return result;
  }

  std::map<std::pair<int, int>, int> decodes;  // by rows and columns
  std::vector<int> prompts;                    // rows of steps with one prompt
  std::vector<SamplingParams> draws;           // of all samples
  std::map<int, int> modules;                  // steps of the module, by rows
  int most_rows = 0, most_sequences = 0, most_samples = 0, num_seen = 0, num_biases = 0;

 private:
  const WarmUpOptions options_;
  size_t samples_ = 0;
  int last_rows_ = 0;
  bool last_was_module_ = false;
};

// A module's plan follows the model's of the same rows, whose hidden states it reads.
TEST(WarmUpTest, TheModuleRunsBehindTheModel) {
  const WarmUpOptions options = {.max_rows = 300,
                                 .max_sequences = 20,
                                 .context_length = 2000,
                                 .block_size = 16,
                                 .has_mtp = true,
                                 .has_states = true};
  PlanCounter counter(options);
  ASSERT_TRUE(WarmUp(counter, options, [](int rows) { return rows != 8; }).ok());
  for (const int rows : {300, 256, 64, 24, 16, 8, 4, 2, 1})
    EXPECT_GE(counter.modules[rows], 1) << rows;
  PlanCounter without(options);
  WarmUpOptions plain = options;
  plain.has_mtp = false;
  ASSERT_TRUE(WarmUp(without, plain, [](int) { return true; }).ok());
  EXPECT_TRUE(without.modules.empty());
}

TEST(WarmUpTest, EveryShapeRunsTwiceAfterTheLargestSteps) {
  const WarmUpOptions options = {
      .max_rows = 300, .max_sequences = 20, .context_length = 2000, .block_size = 16};
  PlanCounter counter(options);
  ASSERT_TRUE(WarmUp(counter, options, [](int rows) { return rows != 8; }).ok());
  EXPECT_EQ(counter.most_rows, 300);
  EXPECT_EQ(counter.most_sequences, 24);
  EXPECT_EQ(counter.most_samples, 300);
  EXPECT_EQ(counter.decodes.size(), 11u);  // 1, 2, 4, 16 and 24 rows of 64 and 125 columns, and 8
  for (const auto& [shape, times] : counter.decodes) {
    EXPECT_EQ(times, shape.first == 8 ? 1 : 2) << shape.first << " " << shape.second;
  }
  EXPECT_THAT(counter.prompts, ElementsAre(256, 64));
}

TEST(WarmUpTest, DrawsOfEachKindAreMade) {
  for (const int max_rows : {1, 4, 300}) {
    const WarmUpOptions options = {
        .max_rows = max_rows, .max_sequences = 1, .context_length = 2000, .block_size = 16};
    PlanCounter counter(options);
    ASSERT_TRUE(WarmUp(counter, options, [](int) { return true; }).ok());
    const auto is_drawn = [&](auto is_so) { return std::ranges::any_of(counter.draws, is_so); };
    using P = SamplingParams;
    EXPECT_TRUE(is_drawn([](const P& p) { return p.temperature == 0; }));
    EXPECT_TRUE(is_drawn([](const P& p) { return p.temperature > 0 && p.top_p == 1; }));
    EXPECT_TRUE(is_drawn([](const P& p) { return p.top_k > 0; }));
    EXPECT_TRUE(is_drawn([](const P& p) { return p.top_p < 1; }));
    EXPECT_TRUE(is_drawn([](const P& p) { return p.min_p > 0; }));
    EXPECT_TRUE(is_drawn([](const P& p) { return p.num_logprobs == 0; }));
    EXPECT_TRUE(is_drawn([](const P& p) { return p.num_logprobs > 0; }));
    EXPECT_TRUE(is_drawn([](const P& p) { return HasPenalty(p); }));
    EXPECT_TRUE(is_drawn([](const P& p) { return p.masked; }));
    EXPECT_EQ(counter.num_seen, 1);
    EXPECT_EQ(counter.num_biases, 1);
  }
}

TEST(WarmUpTest, OddSizesAreNotExceeded) {
  for (const WarmUpOptions& options : std::initializer_list<WarmUpOptions>{
           {.max_rows = 1, .max_sequences = 1, .context_length = 1, .block_size = 16},
           {.max_rows = 7, .max_sequences = 256, .context_length = 5, .block_size = 1},
           {.max_rows = 40, .max_sequences = 1, .context_length = 3, .block_size = 64},
           {.max_rows = 64, .max_sequences = 65536, .context_length = 1 << 20, .block_size = 1},
       }) {
    PlanCounter counter(options);
    ASSERT_TRUE(WarmUp(counter, options, [](int) { return true; }).ok());
    EXPECT_EQ(counter.most_rows, options.max_rows);
    for (const auto& [shape, times] : counter.decodes) {
      EXPECT_LE(int64_t{shape.first} * shape.second, kMostPaddedEntries);
    }
  }
}

// Finish does not return until `ended` is set, as with a device that hangs.
class HangingExecutor : public Executor {
 public:
  absl::Status Start(const StepPlan&, MaskFiller) override { return absl::OkStatus(); }
  absl::StatusOr<StepResult> Finish() override {
    ended.get_future().wait();
    return absl::UnavailableError("ended");
  }

  std::promise<void> ended;
};

TEST(WarmUpTest, AStepThatHangsIsTold) {
  HangingExecutor executor;
  absl::Status told;
  const WarmUpOptions options = {.max_rows = 40,
                                 .max_sequences = 4,
                                 .context_length = 64,
                                 .on_stuck =
                                     [&](const absl::Status& why) {
                                       told = why;
                                       executor.ended.set_value();
                                     },
                                 .step_limit = absl::Milliseconds(1)};
  EXPECT_EQ(WarmUp(executor, options, [](int) { return true; }), absl::UnavailableError("ended"));
  EXPECT_EQ(told,
            absl::DeadlineExceededError("a step of 40 rows hangs before the first request: 1ms"));
}

}  // namespace
}  // namespace continuo::model
