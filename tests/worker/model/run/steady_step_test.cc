// SPDX-License-Identifier: Apache-2.0
// Counts what all threads of a replica allocate in steps that only decode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/model/load/model_loader.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/run/plan_builder.h"

namespace {

std::atomic<int64_t> num_allocations = 0;

void* Allocate(size_t size, size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size, 16); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, std::max<size_t>(16, static_cast<size_t>(alignment)));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace continuo::testing {
namespace {

constexpr int kBlockSize = 16, kSequences = 12;

// Returns a plan with one row of each sequence at `position`.
model::StepPlan DecodeAt(int position, const model::SamplingParams& sampling) {
  PlanBuilder builder(kBlockSize, 256 / kBlockSize);
  for (int id = 0; id < kSequences; ++id) {
    const std::vector<int32_t> token = {5 + id};
    builder.Add(id, position, token, LastOf(token), sampling);
  }
  return builder.plan();
}

// The fewest allocations of any ten steps in a row. Each thread's own memory grows when the thread
// first has something to do, which may be late.
int64_t AllocationsOfTenSteps(const model::LoadOptions& options,
                              const model::SamplingParams& sampling) {
  auto model = model::LoadModel(options);
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<model::StepPlan> plans;
  for (int i = 0; i < 10; ++i) plans.push_back(DecodeAt(140 + i, sampling));
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < 20 && fewest > 0; ++round) {
    const int64_t before = num_allocations;
    for (const model::StepPlan& plan : plans) {
      auto result = model->executor->Run(plan, [](std::span<uint32_t>) {});
      if (!result.ok()) return -1;
      model->executor->Recycle(*std::move(result));
    }
    fewest = std::min<int64_t>(fewest, num_allocations - before);
  }
  return fewest;
}

class SteadyStepTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SteadyStepTest, AStepThatOnlyDecodesAllocatesNothing) {
  for (const std::string family : {"qwen3", "qwen3_moe"}) {
    const TinyModel tiny({.family = family});
    for (const int ranks : {1, 2}) {
      const model::LoadOptions options = {.source = {.dir = tiny.dir()},
                                          .precision = {.weights = GetParam()},
                                          .kv = {.num_blocks = kSequences * 256 / kBlockSize},
                                          .device = {.num_threads = 3},
                                          .tensor_parallel = ranks,
                                          .max_batch_tokens = 64};
      for (const model::SamplingParams& sampling :
           {model::SamplingParams{.temperature = 0},
            model::SamplingParams{
                .temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .min_p = 0.01f}}) {
        EXPECT_EQ(AllocationsOfTenSteps(options, sampling), 0)
            << family << ", " << ranks << " ranks, temperature " << sampling.temperature;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, SteadyStepTest, ::testing::Values("fp32", "bf16", "int8", "int4"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace continuo::testing
