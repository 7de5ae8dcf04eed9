// SPDX-License-Identifier: Apache-2.0
// The device memory of whole models over the shim, and of warming up.
#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/memory_plan.h"
#include "kernels/cuda/runtime/device_info.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

// Free memory beside weights, activations, workspaces and the margin becomes KV blocks; the device
// with the least room decides.
TEST(CudaModelMemoryTest, TheDevicesMemoryDecidesTheKvBlocks) {
  CudaShim::Reset({.devices = {{.total_bytes = 5 * kGiB / 4, .free_bytes = 5 * kGiB / 4},
                               {.total_bytes = kGiB, .free_bytes = kGiB}}});
  const TinyModel files;
  model::LoadOptions options;
  options.source.dir = files.dir();
  const auto blocks = [&](const std::string& device) {
    options.device.device = device;
    const auto loaded = model::LoadModel(options);
    CONTINUO_CHECK(loaded.ok());
    EXPECT_LE(loaded->ranks[0].kv_bytes, 5 * kGiB / 4 - (int64_t{768} << 20));
    return loaded->num_blocks;
  };
  // The divisor is 2 layers of 16 positions of 2 heads of 8 floats, keys and values.
  EXPECT_GT(blocks("cuda:0"), (kGiB / 4) / (2 * 16 * 2 * 8 * 4 * 2));
  const int of_small = blocks("cuda:1");
  EXPECT_LT(of_small, blocks("cuda:0") / 2);
  EXPECT_LE(blocks("cuda:0,1"), 2 * of_small + 1);
  options.kv.num_blocks = 20;
  EXPECT_EQ(blocks("cuda:0"), 20);
}

// Steps of every shape run before the KV cache takes what their graphs leave. None of those that
// follow is enqueued op by op, and none lacks memory.
class CudaWarmUpTest : public ::testing::TestWithParam<const char*> {
 protected:
  CudaWarmUpTest() : files_({.num_layers = 1}) {
    options_.source.dir = files_.dir();
    options_.device.device = GetParam();
    options_.max_batch_tokens = 64;
    options_.warm_up_sequences = 17;
  }

  model::LoadedModel Load(int64_t graph_bytes) {
    const ShimDevice device = {.free_bytes = kGiB, .graph_bytes = graph_bytes};
    CudaShim::Reset({.devices = {device, device}});
    auto loaded = model::LoadModel(options_);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    CONTINUO_CHECK(loaded.ok());
    return *std::move(loaded);
  }
  // Counts calls of one rank.
  int Count(const std::string& function) const {
    int n = 0;
    for (const ShimCall& call : CudaShim::Calls()) {
      n += call.function == function && call.device == 0 ? 1 : 0;
    }
    return n;
  }
  static void RunStepsOf1To17(model::LoadedModel& model) {
    for (int rows = 1; rows <= 17; ++rows) {
      PlanBuilder builder(model.block_size, 4);
      const std::vector<int32_t> token = {5};
      for (int id = 0; id < rows; ++id) builder.Add(id, 0, token, LastOf(token));
      EXPECT_TRUE(model.executor->Run(builder.plan(), [](std::span<uint32_t>) {}).ok());
    }
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }

  const TinyModel files_;
  model::LoadOptions options_;
};

TEST_P(CudaWarmUpTest, AWarmDeviceHasItsGraphsAndTheRoomForThem) {
  constexpr int64_t kGraph = int64_t{20} << 20;
  const std::vector<model::RankMemory> without = Load(0).ranks;
  // Without a measurement the margin is larger.
  options_.warm_up_sequences = 0;
  EXPECT_LT(Load(0).ranks[0].kv_bytes, without[0].kv_bytes - (int64_t{500} << 20));
  options_.warm_up_sequences = 17;
  model::LoadedModel model = Load(kGraph);
  // The shapes are 1, 2, 4, 8, 16 and 24 rows, and a context that fits one table.
  for (size_t rank = 0; rank < without.size(); ++rank) {
    EXPECT_EQ(without[rank].graph_bytes, 0);
    EXPECT_EQ(model.ranks[rank].graph_bytes, 6 * kGraph);
    EXPECT_NEAR(static_cast<double>(model.ranks[rank].kv_bytes),
                static_cast<double>(without[rank].kv_bytes - 6 * kGraph), 1 << 20);
  }
  EXPECT_EQ(Count("cudaGraphInstantiate"), 12);
  const int launches = Count("cudaGraphLaunch"), mallocs = Count("cudaMalloc");
  RunStepsOf1To17(model);
  EXPECT_EQ(Count("cudaGraphLaunch"), launches + 17);
  EXPECT_EQ(Count("cudaGraphInstantiate"), 12);
  EXPECT_EQ(Count("cudaMalloc"), mallocs);
}

// The same holds for a number of KV blocks that was asked for: the memory of graphs is known before
// the cache is made.
TEST_P(CudaWarmUpTest, KvBlocksThatAreAskedForLeaveRoomForGraphs) {
  constexpr int64_t kGraph = int64_t{20} << 20;
  options_.kv.num_blocks = 20;
  const model::LoadedModel model = Load(kGraph);
  EXPECT_EQ(model.num_blocks, 20);
  for (const model::RankMemory& rank : model.ranks) EXPECT_EQ(rank.graph_bytes, 6 * kGraph);
}

TEST_P(CudaWarmUpTest, AsManyKvBlocksAsThereIsRoomForMayBeAskedForAndNoMore) {
  constexpr int64_t kGraph = int64_t{20} << 20;
  const int most = Load(kGraph).num_blocks;
  options_.kv.num_blocks = most;
  EXPECT_EQ(Load(kGraph).num_blocks, most);
  options_.kv.num_blocks = most + 100;
  const absl::Status refused = model::LoadModel(options_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("out of memory: cuda:"), HasSubstr(" were asked for")));
}

TEST_P(CudaWarmUpTest, WithoutGraphsEveryStepIsEnqueued) {
  options_.device.graphs = false;
  model::LoadedModel model = Load(int64_t{20} << 20);
  EXPECT_EQ(model.ranks[0].graph_bytes, 0);
  const int mallocs = Count("cudaMalloc");
  RunStepsOf1To17(model);
  EXPECT_EQ(Count("cudaMalloc"), mallocs);
  EXPECT_EQ(Count("cudaStreamBeginCapture"), 0);
}

// A device loads a kernel when it is launched first, which takes milliseconds and waits for all
// that runs.
TEST_P(CudaWarmUpTest, RequestsLaunchNoKernelForTheFirstTime) {
  for (const bool graphs : {true, false}) {
    options_.device.graphs = graphs;
    model::LoadedModel model = Load(0);
    const auto names = [] {
      std::set<std::string> names;
      for (const ShimCall& call : CudaShim::Calls()) names.insert(call.function);
      return names;
    };
    const std::set<std::string> warm = names();
    RunStepsOf1To17(model);
    const auto fill = [](std::span<uint32_t> mask) { std::ranges::fill(mask, 5u); };
    const std::vector<int32_t> token = {5};
    for (const int rows : {1, 2, 3, 15, 16, 17, 33, 48, 64}) {
      PlanBuilder builder(model.block_size, 8);
      const std::vector<int32_t> prompt(static_cast<size_t>(rows), 7);
      builder.Add(0, 0, prompt, LastOf(prompt));
      ASSERT_TRUE(model.executor->Run(builder.plan(), fill).ok());
    }
    for (const model::SamplingParams& draw :
         std::vector<model::SamplingParams>{{.temperature = 0},
                                            {.temperature = 0.7f},
                                            {.top_k = 3},
                                            {.top_p = 0.5f},
                                            {.top_k = 4, .top_p = 0.5f, .min_p = 0.1f},
                                            {.min_p = 0.2f, .num_logprobs = 3},
                                            {.temperature = 0, .num_logprobs = 0},
                                            {.top_p = 0.5f, .repetition_penalty = 2},
                                            {.frequency_penalty = 1, .masked = true}}) {
      PlanBuilder builder(model.block_size, 8);
      builder.Add(0, 0, token, LastOf(token), draw);
      PlanBuilder next(model.block_size, 8);
      const std::vector<int32_t> unknown = {model::SampledBy(0)};
      next.Add(0, 1, unknown, LastOf(unknown), draw);
      next.plan().block_copies.push_back({0, 1});
      ASSERT_TRUE(model.executor->Start(builder.plan(), fill).ok());
      ASSERT_TRUE(model.executor->Start(next.plan(), fill).ok());
      ASSERT_TRUE(model.executor->Finish().ok());
      ASSERT_TRUE(model.executor->Finish().ok());
    }
    EXPECT_TRUE(warm.contains("FindMax") && warm.contains("ResolveSampledIds"));
    std::vector<std::string> first;
    std::ranges::set_difference(names(), warm, std::back_inserter(first));
    EXPECT_THAT(first, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaWarmUpTest, ::testing::Values("cuda:0", "cuda:0,1"),
                         [](const auto& info) {
                           return info.param[6] == '\0' ? "one_rank" : "two_ranks";
                         });

TEST(CudaModelMemoryTest, WhatDoesNotFitIsOneLineWithTheNumbers) {
  CudaShim::Reset(
      {.devices = {{.total_bytes = 1 << 30, .free_bytes = (int64_t{768} << 20) + (98 << 20)}}});
  const TinyModel files;
  model::LoadOptions options;
  options.source.dir = files.dir();
  options.device.device = "cuda:0";
  const absl::Status status = model::LoadModel(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("out of memory: cuda:0 (Shim) has"), HasSubstr("free of 1.00 GiB")));
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
}

// The first device's memory holds both models' KV blocks. With the draft model's graphs, everything
// but the margin is used.
TEST(CudaModelMemoryTest, ADraftModelsKvBlocksAreCounted) {
  for (const char* device : {"cuda:0", "cuda:0,1"}) {
    const ShimDevice shim = {.free_bytes = kGiB, .graph_bytes = int64_t{1} << 20};
    CudaShim::Reset({.devices = {shim, {.graph_bytes = int64_t{1} << 20}}});
    const TinyModel files({.num_layers = 3}), other({.seed = 2});
    model::LoadOptions options;
    options.max_batch_tokens = 64;
    options.warm_up_sequences = 9;
    options.source.dir = other.dir();
    options.device.device = "cuda:0";
    options.kv.is_later = true;
    auto loader = model::ModelLoader::Open(options);
    ASSERT_TRUE(loader.ok()) << loader.status();
    const int64_t draft_block_bytes = loader->model().bytes_per_block;
    options.source.dir = files.dir();
    options.device.device = device;
    options.kv.is_later = false;
    const auto target = [&](int64_t other_block_bytes) {
      options.kv.other_block_bytes = other_block_bytes;
      auto loaded = model::LoadModel(options);
      CONTINUO_CHECK(loaded.ok());
      return *std::move(loaded);
    };
    const int alone = target(0).num_blocks;
    const model::LoadedModel model = target(draft_block_bytes);
    EXPECT_LT(model.num_blocks, alone);
    const auto draft = (*std::move(loader)).MakeKvCache(model.num_blocks);
    ASSERT_TRUE(draft.ok()) << draft.status();
    const auto devices = kernels::cuda::FindDevices(std::array{0});
    ASSERT_TRUE(devices.ok());
    const int64_t free = devices->front().free_bytes;
    EXPECT_GE(free, kernels::cuda::kMeasuredMargin);
    EXPECT_LT(free, kernels::cuda::kMeasuredMargin + (64 << 20));

    options.warm_up_sequences = 0;
    options.device.device = "cpu";
    options.kv.memory_bytes = 1000 * (model.bytes_per_block + draft_block_bytes) - 1;
    EXPECT_EQ(target(draft_block_bytes).num_blocks, 999);
  }
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
}

// The other devices hold blocks of the model alone, so the draft model costs nothing there.
TEST(CudaModelMemoryTest, ADraftModelCostsNothingWhereAnotherDeviceDecides) {
  CudaShim::Reset({.devices = {{.total_bytes = 4 * kGiB, .free_bytes = 4 * kGiB}, {}}});
  const TinyModel files;
  model::LoadOptions options;
  options.source.dir = files.dir();
  options.device.device = "cuda:0,1";
  for (const int warm_up : {0, 3}) {
    options.warm_up_sequences = warm_up;
    options.max_batch_tokens = 16;
    const auto blocks = [&](int64_t other_block_bytes) {
      options.kv.other_block_bytes = other_block_bytes;
      const auto loaded = model::LoadModel(options);
      CONTINUO_CHECK(loaded.ok());
      return loaded->num_blocks;
    };
    EXPECT_EQ(blocks(2048), blocks(0));
  }
}

}  // namespace
}  // namespace continuo::testing
