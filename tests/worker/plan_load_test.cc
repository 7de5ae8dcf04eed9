// SPDX-License-Identifier: Apache-2.0
#include "services/worker/plan_load.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "services/common/flags.h"
#include "services/worker/model/load/load_plan.h"
#include "tests/testing/tiny_model.h"

namespace continuo::worker {
namespace {

using testing::TinyModel;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(PlanLoadTest, OnOtherDevicesTheLoaderPlansTheKvCache) {
  WorkerConfig config;
  config.load.source.dir = "not looked at";
  config.load.device.device = "cuda:0,1";
  config.load.kv.memory_bytes = 5;
  config.load.device.deterministic = true;
  const auto plan = PlanLoad(config, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->device.device, "cuda:0,1");
  EXPECT_EQ(plan->kv.num_blocks, 0);
  EXPECT_EQ(plan->kv.memory_bytes, 5u);
  EXPECT_TRUE(plan->device.deterministic);
  EXPECT_TRUE(plan->device.graphs);
  EXPECT_FALSE(plan->device.fp8_fast_accumulation);
  config.load.device.fp8_fast_accumulation = true;
  EXPECT_TRUE(PlanLoad(config, 0)->device.fp8_fast_accumulation);
  config.load.device.graphs = false;
  EXPECT_FALSE(PlanLoad(config, 0)->device.graphs);
  EXPECT_TRUE(plan->device.pdl);
  config.load.device.pdl = false;
  EXPECT_FALSE(PlanLoad(config, 0)->device.pdl);
  EXPECT_TRUE(plan->device.wgmma_prefill);
  config.load.device.wgmma_prefill = false;
  EXPECT_FALSE(PlanLoad(config, 0)->device.wgmma_prefill);
}

TEST(PlanLoadTest, TheKvCacheTakesWhatTheContainerHasAndNeverMore) {
  const TinyModel model;
  WorkerConfig config;
  config.load.source.dir = model.dir();
  config.load.max_batch_tokens = 16;
  config.max_running = 1 << 16;
  const model::LoadOptions probe = {.source = {.dir = model.dir()}, .max_batch_tokens = 16};
  const auto estimate = model::EstimateLoad(probe);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  const auto fixed = static_cast<uint64_t>(estimate->weight_bytes + estimate->scratch_bytes);
  const auto block = static_cast<uint64_t>(estimate->bytes_per_block);

  const auto plan = PlanLoad(config, fixed + 1000 * block);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kv.num_blocks, 900);

  config.max_running = 2;
  EXPECT_EQ(PlanLoad(config, kGiB)->kv.num_blocks, 2 * estimate->min_blocks)
      << "more than the batch can fill is of no use";

  config.load.kv.num_blocks = 1000;
  EXPECT_EQ(PlanLoad(config, fixed + 1000 * block)->kv.num_blocks, 1000);
  const absl::Status refused = PlanLoad(config, fixed + 999 * block).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(refused.message(), common::FormatBytes(1000 * block))) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), common::FormatBytes(999 * block))) << refused;
}

TEST(PlanLoadTest, ADraftModelsWeightsAndBlocksCount) {
  const TinyModel model, draft({.num_layers = 1});
  WorkerConfig config;
  config.load.source.dir = model.dir();
  config.load.max_batch_tokens = 16;
  config.max_running = 1 << 16;
  const auto target = model::EstimateLoad({.source = {.dir = model.dir()}, .max_batch_tokens = 16});
  const auto small = model::EstimateLoad({.source = {.dir = draft.dir()}, .max_batch_tokens = 16});
  config.speculation = "draft";
  config.draft_model = draft.dir();
  const auto plan = PlanLoad(
      config, static_cast<uint64_t>(target->weight_bytes + target->scratch_bytes +
                                    small->weight_bytes + small->scratch_bytes +
                                    1000 * (target->bytes_per_block + small->bytes_per_block)));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kv.num_blocks, 900);
  EXPECT_EQ(plan->source.dir, model.dir());
}

TEST(PlanLoadTest, ADraftModelIsOnTheFirstDeviceAndGetsItsCacheLater) {
  const TinyModel draft;  // context 256
  WorkerConfig config;
  config.draft_model = draft.dir();
  config.load.device.device = "cuda:2,3";
  config.max_running = 77;
  config.load.precision.weights = "int8";
  auto plan = PlanDraftLoad(config, 100);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->device.device, "cuda:2");
  EXPECT_EQ(plan->tensor_parallel, 1);
  EXPECT_EQ(plan->precision.weights, "int8");
  EXPECT_EQ(plan->warm_up_sequences, 77);
  EXPECT_EQ(plan->source.max_context_tokens, 100);
  EXPECT_TRUE(plan->kv.is_later);
  config.load.device.device = "cpu";
  plan = PlanDraftLoad(config, 1000);
  EXPECT_EQ(plan->device.device, "cpu");
  EXPECT_EQ(plan->warm_up_sequences, 0);
  EXPECT_EQ(plan->source.max_context_tokens, 256);
}

TEST(PlanLoadTest, StateSlotsFollowTheBatchAndTakeMemory) {
  const TinyModel model({.family = "lfm2"});
  WorkerConfig config;
  config.load.source.dir = model.dir();
  config.load.kv.num_blocks = 64;
  config.max_running = 5;
  EXPECT_EQ(PlanLoad(config, kGiB)->state_slots.most, 20);
  config.state_slots = 7;
  EXPECT_EQ(PlanLoad(config, kGiB)->state_slots.most, 7);
  config.state_slots = 1;
  EXPECT_TRUE(absl::StrContains(PlanLoad(config, kGiB).status().message(), "state_slots is 1"));
  // Three layers keep two rows of 48 channels in f32. Without the flag they take a quarter of what
  // is left, with it what it says.
  config.state_slots = 0;
  config.max_running = 1 << 16;
  const int fitting = PlanLoad(config, kGiB)->state_slots.most;
  EXPECT_LT(fitting, (kGiB >> 2) / (3 * 2 * 48 * 4));
  EXPECT_GT(fitting, (kGiB >> 2) / (3 * 2 * 48 * 4) - 5000);
  config.state_slots = 1 << 20;
  const absl::Status refused = PlanLoad(config, kGiB).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
}

TEST(PlanLoadTest, ADraftModelHasNoStates) {
  const TinyModel model({.family = "lfm2"});
  WorkerConfig config;
  config.draft_model = model.dir();
  const absl::Status refused = PlanDraftLoad(config, 100).status();
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "Lfm2ForCausalLM")) << refused;
}

TEST(PlanLoadTest, APoolThatCannotHoldOneSequenceIsRefusedWithBothNumbers) {
  const TinyModel model;
  WorkerConfig config;
  config.load.source.dir = model.dir();
  config.load.kv.num_blocks = 3;
  const absl::Status refused = PlanLoad(config, kGiB).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(absl::StrContains(refused.message(), "3 blocks")) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "256 tokens")) << refused;
}

TEST(PlanLoadTest, AMissingFolderIsNamed) {
  WorkerConfig config;
  config.load.source.dir = "/no-such-folder";
  EXPECT_TRUE(absl::StrContains(PlanLoad(config, kGiB).status().message(), "no-such-folder"));
}

}  // namespace
}  // namespace continuo::worker
