// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "services/base/check.h"
#include "services/base/confined_folder.h"
#include "services/worker/model/load/model_loader.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_adapter.h"
#include "tests/testing/tiny_model.h"

// Models with adapters on a device beside the same on the CPU. The cases run on whatever is linked:
// the shim or a device.
namespace continuo::testing {

// Adapters of a tiny model in a folder, by their numbers: of rank 3 + 5 i, each third one of fewer
// modules, each second one in bf16.
class AdapterFolder {
 public:
  AdapterFolder(const TinyModel& model, int number) {
    for (int i = 0; i < number; ++i) {
      TinyAdapterOptions options = {.rank = 3 + 5 * i, .seed = static_cast<uint64_t>(50 + i)};
      if (i % 2 == 1) options.dtype = "BF16";
      if (i % 3 == 2) options.targets = {"v_proj", "o_proj", "down_proj"};
      WriteTinyAdapter(model.dir(), folder_.path() / std::to_string(i), options);
    }
  }
  std::string path() const { return folder_.path().string(); }
  std::string path(int i) const { return (folder_.path() / std::to_string(i)).string(); }

 private:
  TempFolder folder_;
};

inline model::LoadedModel LoadAdapted(const TinyModel& files, const std::string& device,
                                      const AdapterFolder& folder, const std::vector<int>& adapters,
                                      const model::RunTimeAdapters& later = {},
                                      bool deterministic = false) {
  model::LoadOptions options;
  options.source.dir = files.dir();
  options.device.device = device;
  options.device.deterministic = deterministic;
  // The scalar loops have the same bits on every machine.
  if (device == "cpu") options.device.isa = "scalar";
  options.kv.num_blocks = 64;
  options.max_batch_tokens = 256;
  for (const int i : adapters) options.adapters.push_back({std::to_string(i), folder.path(i)});
  options.run_time_adapters = later;
  auto loaded = model::LoadModel(options);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  CONTINUO_CHECK(loaded.ok());
  return *std::move(loaded);
}

// The log-probabilities of ScoredSteps, whose sequences have these adapters.
inline std::vector<float> AdaptedScores(model::LoadedModel& model,
                                        const std::vector<int32_t>& adapters) {
  std::vector<float> scores;
  for (model::StepPlan& step : ScoredSteps(model.config.vocab_size, model.block_size)) {
    for (const model::SequenceId id : step.sequence_ids) {
      step.adapters.push_back(adapters[static_cast<size_t>(id)]);
    }
    const auto result = model.executor->Run(step, [](std::span<uint32_t>) {});
    EXPECT_TRUE(result.ok()) << result.status();
    CONTINUO_CHECK(result.ok());
    for (const model::TokenScore& score : result->scores) scores.push_back(score.logprob);
  }
  return scores;
}

// Two sequences with every pair of adapters, and without one.
inline void CheckAdaptedModels(const std::string& device) {
  for (const char* dtype : {"fp32", "bf16"}) {
    SCOPED_TRACE(dtype);
    // In bf16 a product is rounded once more behind what an adapter adds, which is as large.
    const float tolerance = std::string(dtype) == "bf16" ? 0.25f : 1e-3f;
    const TinyModel files({.family = "llama", .dtype = dtype});
    const AdapterFolder folder(files, 3);
    model::LoadedModel cpu = LoadAdapted(files, "cpu", folder, {0, 1, 2});
    model::LoadedModel other = LoadAdapted(files, device, folder, {0, 1, 2});
    const auto id_of = [](const model::LoadedModel& model, int i) {
      return i < 0 ? model::kNoAdapter : model.adapters[static_cast<size_t>(i)].lease->id;
    };
    const std::vector<float> plain = Scores(cpu);
    for (const auto& [a, b] : {std::pair{0, 1}, {1, 1}, {2, -1}, {-1, 0}}) {
      SCOPED_TRACE(::testing::Message() << a << " and " << b);
      const std::vector<float> want = AdaptedScores(cpu, {id_of(cpu, a), id_of(cpu, b)});
      EXPECT_NE(want, plain);
      ExpectSameScores(AdaptedScores(other, {id_of(other, a), id_of(other, b)}), want, tolerance);
    }
    ExpectSameScores(Scores(other), plain, tolerance);
    if (::testing::Test::HasFailure()) return;
  }
}

// Adapters that come and go, more than a device has room for at a time, beside one of the load.
inline void CheckAdaptersOfRunTime(const std::string& device) {
  constexpr int kAdapters = 6;
  const TinyModel files({.family = "llama", .dtype = "fp32"});
  const AdapterFolder folder(files, kAdapters);
  const model::RunTimeAdapters later = {
      .root = folder.path(), .most = 3, .max_rank = 3 + 5 * kAdapters};
  model::LoadedModel cpu = LoadAdapted(files, "cpu", folder, {0}, later);
  model::LoadedModel other = LoadAdapted(files, device, folder, {0}, later);
  const auto root = ConfinedFolder::Open(folder.path());
  ASSERT_TRUE(root.ok()) << root.status();
  const auto read = [&](model::LoadedModel& model, int i) {
    auto lease = model.adapter_pool->ReadInto(*root, std::to_string(i));
    EXPECT_TRUE(lease.ok()) << lease.status();
    return *std::move(lease);
  };
  std::vector<float> last;
  for (int round = 0; round < 2; ++round) {
    for (int i = 1; i + 1 < kAdapters; i += 2) {
      SCOPED_TRACE(::testing::Message() << "adapters " << i << " and " << i + 1);
      const auto a = read(cpu, i), b = read(cpu, i + 1);
      const auto other_a = read(other, i), other_b = read(other, i + 1);
      EXPECT_FALSE(other.adapter_pool->HasRoom());
      const std::vector<float> want = AdaptedScores(cpu, {a->id, b->id});
      EXPECT_NE(want, last);
      last = want;
      ExpectSameScores(AdaptedScores(other, {other_a->id, other_b->id}), want, 1e-3f);
    }
  }
  const int32_t first = cpu.adapters[0].lease->id, other_first = other.adapters[0].lease->id;
  ExpectSameScores(AdaptedScores(other, {other_first, model::kNoAdapter}),
                   AdaptedScores(cpu, {first, model::kNoAdapter}), 1e-3f);
}

// Steps that overlap: each holds its adapters for as long as it is in flight, and no longer,
// whatever the other one reads.
inline void CheckAdaptersOfStepsInFlight(const std::string& device) {
  const TinyModel files({.family = "llama", .dtype = "fp32"});
  const AdapterFolder folder(files, 2);
  model::LoadedModel model =
      LoadAdapted(files, device, folder, {}, {.root = folder.path(), .most = 1, .max_rank = 8});
  ASSERT_TRUE(model.executor->IsAsynchronous());
  const auto root = ConfinedFolder::Open(folder.path());
  ASSERT_TRUE(root.ok()) << root.status();
  const auto read = [&](int i) {
    auto lease = model.adapter_pool->ReadInto(*root, std::to_string(i));
    EXPECT_TRUE(lease.ok()) << lease.status();
    CONTINUO_CHECK(lease.ok());
    return *std::move(lease);
  };
  std::vector<model::StepPlan> steps = ScoredSteps(model.config.vocab_size, model.block_size);
  const auto start = [&](size_t step, int32_t adapter) {
    model::StepPlan& plan = steps[step];
    if (adapter != model::kNoAdapter) plan.adapters.assign(plan.sequence_ids.size(), adapter);
    const absl::Status status = model.executor->Start(plan, [](std::span<uint32_t>) {});
    EXPECT_TRUE(status.ok()) << status;
  };
  const auto finish = [&] { EXPECT_TRUE(model.executor->Finish().ok()); };
  auto lease = read(0);
  // A step has begun on all ranks when the one before it is over.
  start(0, lease->id);
  start(1, model::kNoAdapter);
  finish();
  lease.reset();
  EXPECT_TRUE(model.adapter_pool->HasRoom()) << "the second step does not read it";
  lease = read(1);
  start(2, lease->id);
  finish();
  lease.reset();
  EXPECT_FALSE(model.adapter_pool->HasRoom()) << "the third step reads it";
  start(3, model::kNoAdapter);
  EXPECT_FALSE(model.adapter_pool->HasRoom());
  finish();
  EXPECT_TRUE(model.adapter_pool->HasRoom());
  finish();
}

}  // namespace continuo::testing
