// SPDX-License-Identifier: Apache-2.0
// Whole models on CudaDevice over the shim: loading, steps, failures.
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/math/bfloat16.h"
#include "kernels/replica.h"
#include "tests/kernels/cuda/cases/adapted_model_cases.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/kernels/cuda/cases/overlap_cases.h"
#include "tests/kernels/cuda/cases/router_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;
// This device has room for several models beside each one's margin.
const ShimDevice kRoomy = {.total_bytes = 4 * kGiB, .free_bytes = 4 * kGiB};

TEST(CudaModelTest, AdaptersScoreAsOnTheCpu) {
  CudaShim::Reset({.devices = {kRoomy, kRoomy}});
  CheckAdaptedModels("cuda:0");
  CheckAdaptedModels("cuda:0,1");
  CheckAdaptersOfRunTime("cuda:0");
  CheckAdaptersOfRunTime("cuda:0,1");
  CheckAdaptersOfStepsInFlight("cuda:0");
  CheckAdaptersOfStepsInFlight("cuda:0,1");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, LatentExpertsScoreAsOnTheCpu) {
  CudaShim::Reset({.devices = {kRoomy, kRoomy}});
  CheckLatentExperts("cuda:0");
  CheckLatentExperts("cuda:0,1");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, MtpModulesScoreAsOnTheCpu) {
  CudaShim::Reset({.devices = {kRoomy, kRoomy}});
  CheckMtp("cuda:0");
  CheckMtp("cuda:0,1");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, EveryFamilyScoresAsOnTheCpu) {
  CudaShim::Reset({});
  CheckModels("cuda:0");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, EveryRouterChoosesAsOnTheCpu) {
  CudaShim::Reset({});
  CheckRouters("cuda:0");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, QuantisedWeightsScoreAsOnTheCpu) {
  CudaShim::Reset({});
  CheckQuantisedModels("cuda:0");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, Fp16ScoresAsOnTheCpu) {
  CudaShim::Reset({});
  CheckFp16Models("cuda:0");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

// Returns where a tensor of a safetensors file ends.
size_t EndOf(const std::string& file, const std::string& name) {
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const size_t offsets = file.find("\"data_offsets\"", file.find('"' + name + '"'));
  const size_t end = file.find(',', offsets) + 1;
  return sizeof(header) + header + std::stoul(file.substr(end, 20));
}

// Weights that are stored in another type become fp16, unless one of them has no such number.
TEST(CudaModelTest, WeightsBecomeFp16OrAreRefused) {
  CudaShim::Reset({});
  for (const char* dtype : {"fp32", "bf16"}) {
    const TinyModel files({.dtype = dtype});
    {
      model::LoadedModel cpu = LoadOn(files, "cpu", false, "auto", "fp32");
      model::LoadedModel other = LoadOn(files, "cuda:0", false, "auto", "fp16");
      ExpectSameScores(Scores(other), Scores(cpu), 0.0125f);
    }
    // The last element of a tensor is changed.
    std::string bytes = files.Read("model.safetensors");
    const size_t end = EndOf(bytes, "model.layers.1.mlp.down_proj.weight");
    const float large = 65520;  // beyond the largest fp16
    const uint16_t narrow = kernels::ToBF16(large);
    if (std::string(dtype) == "fp32") {
      std::memcpy(&bytes[end - sizeof(large)], &large, sizeof(large));
    } else {
      std::memcpy(&bytes[end - sizeof(narrow)], &narrow, sizeof(narrow));
    }
    files.Write("model.safetensors", bytes);
    model::LoadOptions options;
    options.source.dir = files.dir();
    options.device.device = "cuda:0";
    options.kv.num_blocks = 64;
    EXPECT_TRUE(model::LoadModel(options).ok());
    options.precision.weights = "fp16";
    const absl::Status status = model::LoadModel(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("tensor model.layers.1.mlp.down_proj.weight"), HasSubstr("overflow fp16")));
  }
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
}

TEST(CudaModelTest, Fp8WeightsScoreNearly) {
  CudaShim::Reset({});
  CheckFp8Models("cuda:0");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, KeysAndValuesOf8BitsScoreAsOnTheCpu) {
  CudaShim::Reset({});
  CheckKvTypes("cuda:0");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, DecodingIsAGraphFromTheThirdStepOn) {
  CudaShim::Reset({.devices = {{}, {}}});
  struct Case {
    const char *family, *weights, *device;
    int num_ranks;
    float tolerance;
  };
  // Products are quantised in the CPU's way or in another.
  for (const auto& [family, weights, device, num_ranks, tolerance] :
       {Case{"llama", "auto", "cuda:0", 1, 1e-3f}, Case{"gemma2", "auto", "cuda:0", 1, 1e-3f},
        Case{"llama", "int8", "cuda:0", 1, 0.5f}, Case{"qwen3_moe", "int8", "cuda:0", 1, 0.5f},
        Case{"llama", "auto", "cuda:0,1", 2, 1e-3f}, Case{"qwen3_moe", "int8", "cuda:0,1", 2, 0.5f},
        Case{"llama", "fp16", "cuda:0,1", 2, 0.02f},
        Case{"qwen3_moe", "fp16", "cuda:0,1", 2, 0.02f}}) {
    SCOPED_TRACE(absl::StrCat(family, " ", weights, " ", device));
    const bool is_half = std::string(weights) == "fp16";
    const TinyModel files({.family = family, .dtype = is_half ? "fp16" : "fp32"});
    model::LoadedModel cpu = LoadOn(files, "cpu", false, "auto", is_half ? "auto" : weights);
    model::LoadedModel cuda = LoadOn(files, device, false, "auto", weights);
    constexpr int kSteps = 40;  // across blocks and windows
    const auto count = [](const std::string& function) {
      int n = 0;
      for (const ShimCall& call : CudaShim::Calls()) n += call.function == function ? 1 : 0;
      return n;
    };
    DecodeScores(cuda, 1);  // eager; the faster products are measured in others
    const int launches = count("cudaGraphLaunch"), captures = count("cudaStreamBeginCapture");
    ExpectSameScores(DecodeScores(cuda, kSteps), DecodeScores(cpu, kSteps), tolerance);
    EXPECT_EQ(count("cudaStreamBeginCapture"), captures + num_ranks);
    EXPECT_EQ(count("cudaGraphLaunch"), launches + num_ranks * (kSteps - 1));
  }
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, StepsAheadGiveWhatStepsInTurnGive) {
  for (const char* device : {"cuda:0", "cuda:0,1"}) {
    CudaShim::Reset({.devices = {kRoomy, kRoomy}});
    CheckOverlap(device);
    CheckAdaptedOverlap(device);
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }
}

TEST(CudaModelTest, ConstraintsAreObeyedWhetherOrNotStepsOverlap) {
  for (const char* device : {"cuda:0", "cuda:0,1"}) {
    CudaShim::Reset({.devices = {{}, {}}});
    CheckConstraints(device);
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }
}

TEST(CudaModelTest, ADraftModelChangesNoToken) {
  CudaShim::Reset({});
  CheckDraftModel("cuda:0");
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

// A step of 100 rows and samples, whose head takes two slices, is enqueued as a whole.
TEST(CudaModelTest, ManySamplesAreTakenWithoutAWaitBetween) {
  CudaShim::Reset({});
  const TinyModel files;
  model::LoadedModel model = LoadOn(files, "cuda:0");
  const std::vector<int32_t> tokens = Prompt(100, model.config.vocab_size, 3);
  PlanBuilder builder(model.block_size, 8);
  builder.Add(0, 0, tokens, continuo::testing::AllOf(tokens), {});
  const auto waits = [] {
    int n = 0;
    for (const ShimCall& call : CudaShim::Calls()) {
      n += call.function == "cudaStreamSynchronize" || call.function == "cudaEventSynchronize";
    }
    return n;
  };
  ASSERT_TRUE(model.executor->Run(builder.plan(), [](std::span<uint32_t>) {}).ok());
  const int before = waits();
  ASSERT_TRUE(model.executor->Start(builder.plan(), [](std::span<uint32_t>) {}).ok());
  EXPECT_EQ(waits(), before);
  EXPECT_TRUE(model.executor->Finish().ok());
}

TEST(CudaModelTest, EveryCallOfAGraphThatFailsEndsTheStep) {
  const TinyModel files({.num_layers = 1});
  for (const char* function :
       {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
        "cudaGraphDestroy", "cudaGraphUpload", "cudaGraphLaunch"}) {
    for (const auto& [devices, failing] :
         {std::pair("cuda:0", 0), std::pair("cuda:0,1", 0), std::pair("cuda:0,1", 1)}) {
      SCOPED_TRACE(absl::StrCat(function, " of cuda:", failing, " of ", devices));
      CudaShim::Reset({.devices = {{}, {}}});
      model::LoadedModel model = LoadOn(files, devices);
      const int before = std::string(function) == "cudaGraphLaunch" ? 2 : 1;  // steps
      EXPECT_EQ(DecodeScores(model, before).size(), 2u * before);
      CudaShim::Fail({failing, function, 1});
      const std::vector<int32_t> token = {5};
      PlanBuilder builder(model.block_size, 4);
      for (const int id : {0, 1}) builder.Add(id, 1, token, LastOf(token));
      const auto result = model.executor->Run(builder.plan(), [](std::span<uint32_t>) {});
      EXPECT_TRUE(CudaShim::Failed());
      EXPECT_THAT(std::string(result.status().message()), HasSubstr(function));
    }
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  }
}

TEST(CudaModelTest, RanksOnSeveralDevicesScoreAsOne) {
  for (const bool deterministic : {false, true}) {
    CudaShim::Reset({.devices = {kRoomy, kRoomy, kRoomy, kRoomy}});
    const TinyModel files({.dtype = "fp32"});
    {
      model::LoadedModel one = LoadOn(files, "cuda:3", deterministic);
      const std::vector<float> expected = Scores(one);
      model::LoadedModel two = LoadOn(files, "cuda:1,0", deterministic);
      EXPECT_EQ(two.ranks.size(), 2u);
      ExpectSameScores(Scores(two), expected, 1e-3f);
      model::LoadedModel four = LoadOn(files, "cuda:0,1,2,3", deterministic);
      ExpectSameScores(Scores(four), expected, 1e-3f);
      EXPECT_THAT(four.fingerprint.backend, HasSubstr("ranks=4"));
    }
    {
      // Quantised matrices are cut into the same K splits for any number of ranks, so they have the
      // same numbers.
      model::LoadedModel one = LoadOn(files, "cuda:3", deterministic, "auto", "int8");
      model::LoadedModel two = LoadOn(files, "cuda:1,0", deterministic, "auto", "int8");
      ExpectSameScores(Scores(two), Scores(one), 0.05f);
    }
    {
      const TinyModel half({.dtype = "fp16"});
      model::LoadedModel one = LoadOn(half, "cuda:3", deterministic, "auto", "fp16");
      model::LoadedModel four = LoadOn(half, "cuda:0,1,2,3", deterministic, "auto", "fp16");
      ExpectSameScores(Scores(four), Scores(one), 0.0125f);
    }
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }
}

TEST(CudaModelTest, TwoRanksScoreAsOneWithGraphsAndWithout) {
  CudaShim::Reset({.devices = {kRoomy, kRoomy}});
  for (const RankCase& c : std::span(kRankCases).first<3>()) CheckTwoRanks(c);
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(CudaModelTest, AResultIsExactWhereItIsDeterministic) {
  CudaShim::Reset({.devices = {{.name = "Shim 80"}}});
  const TinyModel files;
  EXPECT_FALSE(LoadOn(files, "cuda:0").is_exact);
  const model::LoadedModel exact = LoadOn(files, "cuda:0", /*deterministic=*/true);
  EXPECT_TRUE(exact.is_exact);
  EXPECT_THAT(exact.backend_name, AllOf(HasSubstr("cuda/sm_90"), HasSubstr("Shim 80")));
  EXPECT_TRUE(LoadOn(files, "cpu").is_exact);
}

// Rows that fill up a step change nothing of the others, and no other sequence's keys and values.
TEST(CudaModelTest, ThreeSequencesDecodeAsFour) {
  CudaShim::Reset({});
  for (const char* family : {"llama", "qwen3_moe"}) {
    const TinyModel files({.family = family});
    model::LoadedModel cpu = LoadOn(files, "cpu"), cuda = LoadOn(files, "cuda:0");
    const auto scores = [](model::LoadedModel& model) {
      std::vector<float> all;
      const std::vector<int32_t> tokens = Prompt(60, model.config.vocab_size, 1);
      for (int step = 0; step < 20; ++step) {
        PlanBuilder builder(model.block_size, 4);
        for (const int id : {0, 1, 2}) {
          const std::span<const int32_t> row(tokens.data() + step + 7 * id, 1);
          builder.Add(id, step, row, LastOf(row), {.num_logprobs = 0}, tokens[40]);
        }
        const auto result = model.executor->Run(builder.plan(), [](std::span<uint32_t>) {});
        EXPECT_TRUE(result.ok()) << result.status();
        if (!result.ok()) return all;
        EXPECT_EQ(result->scores.size(), 3u);
        for (const model::TokenScore& score : result->scores) all.push_back(score.logprob);
      }
      return all;
    };
    ExpectSameScores(scores(cuda), scores(cpu), 1e-3f);
  }
}

TEST(CudaModelTest, WhatADeviceDoesNotDoIsRefused) {
  CudaShim::Reset({.devices = {{}, {}}});
  const TinyModel files;
  const auto refused = [&](const model::LoadOptions& options, const std::string& why) {
    const absl::Status status = model::LoadModel(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  model::LoadOptions options;
  options.source.dir = files.dir();
  options.device.device = "cuda:2";
  refused(options, "the last of them cuda:1");
  options.device.device = "cuda:0,1";
  options.tensor_parallel = 4;
  refused(options, "tensor_parallel is 4, and device \"cuda:0,1\" names 2");
  options.tensor_parallel = 2;
  options.device.device = "tpu";
  refused(options, "this build has cpu and cuda:N");
  options.tensor_parallel = 1;
  options.precision.weights = "fp8";
  options.kv.num_blocks = 64;
  options.device.device = "cpu";
  refused(options, "weights is fp8, with which cpu");
  options.precision.weights = "fp16";
  refused(options, "weights is fp16, with which cpu");
  CudaShim::Reset({.devices = {{.major = 8}}});
  options.device.device = "cuda:0";
  options.precision.weights = "fp8";
  refused(options, "compute capability 9.0");
  options.precision.weights = "fp16";
  options.precision.kv_dtype = "bf16";
  refused(options,
          "kv_dtype is bf16, in which cuda/sm_80 keeps no keys and values beside "
          "activations in fp16; it takes auto, fp16, int8, fp8");
  options.precision.weights = "bf16";
  options.precision.kv_dtype = "fp16";
  refused(options,
          "kv_dtype is fp16, in which cuda/sm_80 keeps no keys and values beside "
          "activations in bf16");
}

// If a rank fails with two steps in flight, both end with its error, and no rank reads a plan after
// that.
TEST(CudaModelTest, ARankThatFailsEndsBothStepsUnderWay) {
  CudaShim::Reset({.devices = {{}, {}}});
  const TinyModel files({.num_layers = 1});
  const auto no_mask = [](std::span<uint32_t>) {};
  const std::vector<int32_t> tokens = {1, 2, 3}, drawn = {model::SampledBy(0)};
  const auto copies_of = [](int rank) { return CudaShim::NumCalls(rank, "cudaMemcpyAsync"); };
  {
    model::LoadedModel model = LoadOn(files, "cuda:0,1");
    // Rank 1 may be behind when rank 0 has given a result; both make the same copies.
    const auto copies = [&, more = copies_of(1) - copies_of(0)] {
      while (copies_of(1) < copies_of(0) + more) std::this_thread::yield();
      return copies_of(1);
    };
    PlanBuilder prompt(model.block_size, 4);
    prompt.Add(0, 0, tokens, LastOf(tokens));
    const int before = copies();
    ASSERT_TRUE(model.executor->Run(prompt.plan(), no_mask).ok());
    const int of_a_step = copies() - before;
    ASSERT_GE(of_a_step, 2);
    // The first copy of the second step fails.
    CudaShim::Fail({1, "cudaMemcpyAsync", copies() + of_a_step + 1});
    auto next = std::make_unique<PlanBuilder>(model.block_size, 4);
    next->Add(0, 3, drawn, LastOf(drawn));
    ASSERT_TRUE(model.executor->Start(prompt.plan(), no_mask).ok());
    (void)model.executor->Start(next->plan(), no_mask);  // ranks may hear of it later
    absl::Status status;
    for (int step = 0; step < 2 && status.ok(); ++step) {
      status = model.executor->Finish().status();
    }
    EXPECT_TRUE(CudaShim::Failed());
    EXPECT_THAT(std::string(status.message()), HasSubstr("cudaMemcpyAsync"));
    EXPECT_EQ(model.executor->Start(prompt.plan(), no_mask), status);
    next.reset();
  }
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
}

}  // namespace
}  // namespace continuo::testing
