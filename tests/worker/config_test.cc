// SPDX-License-Identifier: Apache-2.0
#include "services/worker/config.h"
#include "services/worker/draft_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "services/common/flags.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/tiny_model.h"

namespace continuo::server {
namespace {

using testing::TinyModel;

constexpr uint64_t kGiB = uint64_t{1} << 30;

int ExitCode(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "continuo-worker");
  return worker::ParseWorkerConfig(static_cast<int>(arguments.size()), arguments.data())
      .exit_code.value_or(-1);
}

TEST(WorkerConfigTest, NamesTheModelAfterItsFolder) {
  for (const char* folder : {"--model=/some/where/tiny", "--model=/some/where/tiny/"}) {
    const std::vector<const char*> arguments = {"continuo-worker", folder};
    EXPECT_EQ(worker::ParseWorkerConfig(2, arguments.data()).config.model_name, "tiny");
  }
}

TEST(WorkerConfigTest, ALinkToAFolderIsFollowedOnce) {
  const TinyModel model;
  const std::string link = model.dir() + ".link";
  std::filesystem::create_directory_symlink(model.dir(), link);
  const std::string flag = "--model=" + link;
  const std::vector<const char*> arguments = {"continuo-worker", flag.c_str()};
  const worker::WorkerConfig config = worker::ParseWorkerConfig(2, arguments.data()).config;
  std::filesystem::remove(link);
  EXPECT_EQ(config.model, std::filesystem::canonical(model.dir()));
  EXPECT_EQ(config.model_name, std::filesystem::path(link).filename());
}

TEST(WorkerConfigTest, BadCommandLinesEndWithTwo) {
  EXPECT_EQ(ExitCode({}), 2) << "no model";
  for (const char* flag :
       {"--threads=0", "--threads=x", "--tensor_parallel=3", "--isa=sse9", "--weights=int3",
        "--kv_dtype=int4", "--drain_grace=31s", "--listen=nowhere", "--block_size=-1",
        "--kv_cache_memory=much", "--nonsense=1"}) {
    EXPECT_EQ(ExitCode({"--model=m", flag}), 2) << flag;
  }
  EXPECT_EQ(ExitCode({"--model=m", "--drain_grace=30001ms"}), 2);
  EXPECT_EQ(ExitCode({"--model=m", "--max_buffer_bytes=16MiB"}), 2) << "less than one message";
  EXPECT_EQ(ExitCode({"--model=m", "--speculation=draft"}), 2) << "no draft model";
  EXPECT_EQ(ExitCode({"--model=m", "--draft_model=d"}), 2) << "it would not be used";
  EXPECT_EQ(ExitCode({"--model=m", "--draft_model=d", "--speculation=draft"}), -1);
  EXPECT_EQ(ExitCode({"--model=m", "--draft_model=d", "--speculation=draft", "--device=cuda:0"}),
            -1);
  EXPECT_EQ(ExitCode({"--model=m", "--kv_dtype=fp8", "--device=cuda:0"}), -1);
  EXPECT_EQ(ExitCode({"--model=m", "--weights=fp16", "--kv_dtype=fp16", "--device=cuda:0"}), -1);
  EXPECT_EQ(ExitCode({"--model=m", "--fp8_fast_accumulation"}), 2) << "no products of fp8";
  EXPECT_EQ(ExitCode({"--model=m", "--fp8_fast_accumulation", "--weights=fp8"}), -1);
  EXPECT_EQ(ExitCode({"--help"}), 0);
  EXPECT_EQ(ExitCode({"--version"}), 0);
  EXPECT_EQ(ExitCode({"--model=m", "--isa=scalar", "--drain_grace=30s"}), -1);
}

TEST(WorkerConfigTest, ABatchIsAsLargeAsTheLoaderTakesAndNoLarger) {
  const TinyModel model;
  const auto flag = [](int rows) { return "--max_batch_tokens=" + std::to_string(rows); };
  EXPECT_EQ(ExitCode({"--model=m", flag(model::kMaxBatchTokens).c_str()}), -1);
  EXPECT_EQ(ExitCode({"--model=m", flag(model::kMaxBatchTokens + 1).c_str()}), 2);
  EXPECT_TRUE(
      model::EstimateLoad({.dir = model.dir(), .max_batch_tokens = model::kMaxBatchTokens}).ok());
}

TEST(PlanLoadTest, OnOtherDevicesTheLoaderPlansTheKvCache) {
  worker::WorkerConfig config;
  config.model = "not looked at";
  config.device = "cuda:0,1";
  config.kv_cache_memory = 5;
  config.deterministic = true;
  const auto plan = worker::PlanLoad(config, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->device, "cuda:0,1");
  EXPECT_EQ(plan->num_blocks, 0);
  EXPECT_EQ(plan->kv_cache_memory, 5);
  EXPECT_TRUE(plan->deterministic);
  EXPECT_TRUE(plan->graphs);
  EXPECT_FALSE(plan->fp8_fast_accumulation);
  config.fp8_fast_accumulation = true;
  EXPECT_TRUE(worker::PlanLoad(config, 0)->fp8_fast_accumulation);
  config.cuda_graphs = false;
  EXPECT_FALSE(worker::PlanLoad(config, 0)->graphs);
  EXPECT_TRUE(plan->early_grids);
  config.cuda_early_grids = false;
  EXPECT_FALSE(worker::PlanLoad(config, 0)->early_grids);
  EXPECT_FALSE(plan->warpgroup_attention);
  config.cuda_warpgroup_attention = true;
  EXPECT_TRUE(worker::PlanLoad(config, 0)->warpgroup_attention);
}

TEST(PlanLoadTest, TheKvCacheTakesWhatTheContainerHasAndNeverMore) {
  const TinyModel model;
  worker::WorkerConfig config;
  config.model = model.dir();
  config.max_batch_tokens = 16;
  config.max_running = 1 << 16;
  const model::LoadOptions probe = {.dir = model.dir(), .max_batch_tokens = 16};
  const auto estimate = model::EstimateLoad(probe);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  const auto fixed = static_cast<uint64_t>(estimate->weight_bytes + estimate->scratch_bytes);
  const auto block = static_cast<uint64_t>(estimate->bytes_per_block);

  const auto plan = worker::PlanLoad(config, fixed + 1000 * block);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_blocks, 900);

  config.max_running = 2;
  EXPECT_EQ(worker::PlanLoad(config, kGiB)->num_blocks, 2 * estimate->min_blocks)
      << "more than the batch can fill is of no use";

  config.kv_blocks = 1000;
  EXPECT_EQ(worker::PlanLoad(config, fixed + 1000 * block)->num_blocks, 1000);
  const absl::Status refused = worker::PlanLoad(config, fixed + 999 * block).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(refused.message(), common::FormatBytes(1000 * block))) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), common::FormatBytes(999 * block))) << refused;
}

TEST(PlanLoadTest, ADraftModelsWeightsAndBlocksCount) {
  const TinyModel model, draft({.num_layers = 1});
  worker::WorkerConfig config;
  config.model = model.dir();
  config.max_batch_tokens = 16;
  config.max_running = 1 << 16;
  const auto target = model::EstimateLoad({.dir = model.dir(), .max_batch_tokens = 16});
  const auto small = model::EstimateLoad({.dir = draft.dir(), .max_batch_tokens = 16});
  config.speculation = "draft";
  config.draft_model = draft.dir();
  const auto plan = worker::PlanLoad(
      config, static_cast<uint64_t>(target->weight_bytes + target->scratch_bytes +
                                    small->weight_bytes + small->scratch_bytes +
                                    1000 * (target->bytes_per_block + small->bytes_per_block)));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_blocks, 900);
  EXPECT_EQ(plan->dir, model.dir());
}

TEST(PlanLoadTest, ADraftModelIsOnTheFirstDeviceAndGetsItsCacheLater) {
  const TinyModel draft;  // context 256
  worker::WorkerConfig config;
  config.draft_model = draft.dir();
  config.device = "cuda:2,3";
  config.max_running = 77;
  config.weights = "int8";
  auto plan = worker::PlanDraftLoad(config, 100);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->device, "cuda:2");
  EXPECT_EQ(plan->tensor_parallel, 1);
  EXPECT_EQ(plan->weights, "int8");
  EXPECT_EQ(plan->warm_up_sequences, 77);
  EXPECT_EQ(plan->max_context_tokens, 100);
  EXPECT_TRUE(plan->cache_later);
  config.device = "cpu";
  plan = worker::PlanDraftLoad(config, 1000);
  EXPECT_EQ(plan->device, "cpu");
  EXPECT_EQ(plan->warm_up_sequences, 0);
  EXPECT_EQ(plan->max_context_tokens, 256);
}

TEST(PlanLoadTest, APoolThatCannotHoldOneSequenceIsRefusedWithBothNumbers) {
  const TinyModel model;
  worker::WorkerConfig config;
  config.model = model.dir();
  config.kv_blocks = 3;
  const absl::Status refused = worker::PlanLoad(config, kGiB).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(absl::StrContains(refused.message(), "3 blocks")) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "256 tokens")) << refused;
}

TEST(PlanLoadTest, AMissingFolderIsNamed) {
  worker::WorkerConfig config;
  config.model = "/no-such-folder";
  EXPECT_TRUE(
      absl::StrContains(worker::PlanLoad(config, kGiB).status().message(), "no-such-folder"));
}

TEST(DescribeModelTest, WhatDependsOnTheLoadHasNoFingerprint) {
  const TinyModel tiny;
  const auto text = text::TextModel::Open(tiny.dir());
  ASSERT_TRUE(text.ok()) << text.status();
  worker::WorkerConfig config;
  config.model = tiny.dir();
  auto loaded = model::LoadExecutor(*worker::PlanLoad(config, kGiB));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE(worker::DescribeModel(config, *loaded, text->get()).fingerprint.empty());
  loaded->is_exact = false;
  const ServedModel served = worker::DescribeModel(config, *loaded, text->get());
  EXPECT_TRUE(served.fingerprint.empty());
  EXPECT_FALSE(served.tokenizer_fingerprint.empty());
}

TEST(DescribeModelTest, TheFingerprintDependsOnTextAndContextButNotOnBatchLimits) {
  const TinyModel tiny;
  const auto text = text::TextModel::Open(tiny.dir());
  ASSERT_TRUE(text.ok()) << text.status();
  const auto describe = [&](worker::WorkerConfig config) {
    config.model = tiny.dir();
    config.isa = "scalar";
    auto plan = worker::PlanLoad(config, kGiB);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const auto loaded = model::LoadExecutor(*plan);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return worker::DescribeModel(config, *loaded, text->get());
  };
  const ServedModel base = describe({});
  EXPECT_EQ(base.fingerprint.size(), 32u);
  EXPECT_EQ(base.tokenizer_fingerprint, (*text)->tokenizer_digest());
  EXPECT_EQ(base.eos_ids, std::vector<int32_t>{300});
  EXPECT_EQ(base.max_context_tokens, 256);
  EXPECT_EQ(describe({.block_size = 8, .max_batch_tokens = 64}).fingerprint, base.fingerprint);
  EXPECT_EQ(describe({.tensor_parallel = 2, .threads = 2}).fingerprint, base.fingerprint);
  EXPECT_NE(describe({.max_context_tokens = 128}).fingerprint, base.fingerprint);
  EXPECT_NE(describe({.kv_dtype = "bf16"}).fingerprint, base.fingerprint);
  EXPECT_NE(describe({.kv_dtype = "int8"}).fingerprint, base.fingerprint);
}

}  // namespace
}  // namespace continuo::server
