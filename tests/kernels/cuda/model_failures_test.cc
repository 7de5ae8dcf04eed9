// SPDX-License-Identifier: Apache-2.0
// Every call of CUDA and NCCL that loading a model and its steps make fails once.
#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/status_macros.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Errors of destruction belong to earlier work, and whoever waits for that work gets them. What is
// destroyed has ended as far as it can.
bool IsEnd(const std::string& function) {
  constexpr std::array<std::string_view, 8> kEnds = {
      "cudaEventDestroy", "cudaFree",        "cudaFreeHost",  "cudaGraphExecDestroy",
      "cublasLtDestroy",  "ncclCommDestroy", "ncclCommAbort", "cudaStreamDestroy"};
  return std::ranges::find(kEnds, function) != kEnds.end();
}

// Returns the name in an error: the function's, or the op's where that is several kernels. A kernel
// that asks for more shared memory is named itself.
std::string NameOf(const ShimCall& call) {
  static const std::map<std::string, std::string> kOps = {
      {"Choose", "SampleTokens"},
      {"FindMax", "SampleTokens"},
      {"Gather", "SampleTokens"},
      {"OrderEntries", "RouteExperts"},
      {"PickExperts", "RouteExperts"},
      {"Weigh", "SampleTokens"},
      {"cudaFuncSetAttribute", "DecodeAttention"}};
  const auto op = kOps.find(call.function);
  return absl::StrCat("cuda:0: ", op == kOps.end() ? call.function : op->second);
}

struct FailureCase {
  std::string name;
  std::string kernel;  // the kernel that the case is about; it has to be among those that fail
  TinyModelOptions files;
  // Otherwise the faster products are measured, and the calls that follow vary.
  bool deterministic = true;
  bool graphs = true;
  bool warms_up = false;
  int prompt = 3;  // tokens
  std::string weights = "auto";
  std::string kv_dtype = "auto";
  model::SamplingParams sampling = {.temperature = 0};
};
void PrintTo(const FailureCase& c, std::ostream* out) { *out << c.name; }

// Loads a model, runs a prompt and decodes three tokens. With graphs, the first step is enqueued,
// and the second is captured as well. Sets *failed to whether a call has failed before the model
// ends.
absl::Status LoadAndDecode(const TinyModel& files, const FailureCase& c, bool* failed) {
  model::LoadOptions options;
  options.source.dir = files.dir();
  options.device.device = "cuda:0";
  options.device.deterministic = c.deterministic;
  options.precision.weights = c.weights;
  options.precision.kv_dtype = c.kv_dtype;
  options.device.graphs = c.graphs;
  options.kv.num_blocks = c.warms_up ? 0 : 4;  // or as many as measured
  options.kv.memory_bytes = 4096;
  options.max_batch_tokens = 4;
  options.source.max_context_tokens = 16;
  options.warm_up_sequences = c.warms_up ? 1 : 0;
  ASSIGN_OR_RETURN(model::LoadedModel loaded, model::LoadModel(options));
  const std::vector<int32_t> tokens(static_cast<size_t>(c.prompt), 5);
  const auto run = [&](int begin, std::span<const int32_t> rows) {
    PlanBuilder builder(loaded.block_size, 1);
    builder.Add(0, begin, rows, LastOf(rows), c.sampling);
    if (begin == 0) builder.plan().block_copies.push_back({.from = 2, .to = 3});
    return loaded.executor->Run(builder.plan(), [](std::span<uint32_t>) {}).status();
  };
  RETURN_IF_ERROR(run(0, tokens));
  for (int step = 0; step < 3; ++step) {
    RETURN_IF_ERROR(run(c.prompt + step, std::span(tokens).first(1)));
  }
  *failed = CudaShim::Failed();
  return absl::OkStatus();
}

class ModelFailuresTest : public ::testing::TestWithParam<FailureCase> {};

TEST_P(ModelFailuresTest, EveryCallThatFailsEndsTheRunAndIsNamed) {
  const FailureCase& c = GetParam();
  const TinyModel files(c.files);
  CudaShim::Reset({});
  bool failed = true;
  ASSERT_EQ(LoadAndDecode(files, c, &failed), absl::OkStatus());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  const std::vector<ShimCall> calls = CudaShim::Calls();
  EXPECT_GE(calls.size(), 200u);
  EXPECT_TRUE(
      std::ranges::any_of(calls, [&](const ShimCall& call) { return call.function == c.kernel; }));
  int num_missed = 0;
  for (const ShimCall& call : calls) {
    SCOPED_TRACE(ToString(call));
    CudaShim::Reset({});
    CudaShim::Fail(call);
    failed = true;
    const absl::Status status = LoadAndDecode(files, c, &failed);
    if (!CudaShim::Failed()) {
      ++num_missed;
    } else if (IsEnd(call.function) || !failed) {
      EXPECT_EQ(status, absl::OkStatus());
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr(NameOf(call)));
    }
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }
  EXPECT_LE(num_missed, c.deterministic ? 0 : static_cast<int>(calls.size()) / 10);
}

const TinyModelOptions kDense = {.hidden_size = 16,
                                 .intermediate_size = 16,
                                 .num_layers = 1,
                                 .num_heads = 2,
                                 .num_kv_heads = 1,
                                 .dtype = "bf16"};
TinyModelOptions With(TinyModelOptions options, const std::string& family,
                      const std::string& dtype) {
  options.family = family;
  options.dtype = dtype;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Models, ModelFailuresTest,
    ::testing::Values(
        FailureCase{.name = "Dense", .kernel = "TileAttention", .files = kDense},
        FailureCase{.name = "DenseWithoutGraphs",
                    .kernel = "TileAttention",
                    .files = kDense,
                    .graphs = false},
        FailureCase{
            .name = "DenseWarmedUp", .kernel = "TileAttention", .files = kDense, .warms_up = true},
        FailureCase{.name = "DenseBySmallM",
                    .kernel = "SmallMMatMul",
                    .files = kDense,
                    .deterministic = false,
                    .prompt = 1},
        FailureCase{
            .name = "Experts", .kernel = "ExpertMatMul", .files = With(kDense, "mixtral", "bf16")},
        FailureCase{
            .name = "Int8Kv", .kernel = "RotateAndWriteKv", .files = kDense, .kv_dtype = "int8"},
        FailureCase{
            .name = "Fp16", .kernel = "SimpleAttention", .files = With(kDense, "llama", "fp16")},
        FailureCase{.name = "Int8", .kernel = "SmallMMatMul", .files = kDense, .weights = "int8"},
        FailureCase{.name = "Int4", .kernel = "SmallMMatMul", .files = kDense, .weights = "int4"},
        FailureCase{.name = "Int4Experts",
                    .kernel = "ExpertMatMul",
                    .files = With(kDense, "mixtral", "bf16"),
                    .weights = "int4"},
        FailureCase{.name = "Fp8", .kernel = "QuantiseRows", .files = kDense, .weights = "fp8"},
        FailureCase{.name = "Filters",
                    .kernel = "Weigh",
                    .files = kDense,
                    .sampling = {.temperature = 0.9f,
                                 .top_k = 40,
                                 .top_p = 0.9f,
                                 .min_p = 0.01f,
                                 .repetition_penalty = 1.1f,
                                 .num_logprobs = 2}}),
    [](const auto& info) { return info.param.name; });

absl::Status LoadAndRun(const TinyModel& files, const std::string& weights) {
  model::LoadOptions options;
  options.source.dir = files.dir();
  options.device.device = "cuda:0,1";
  options.kv.num_blocks = 8;
  options.max_batch_tokens = 4;
  options.source.max_context_tokens = 16;
  options.precision.weights = weights;
  options.warm_up_sequences = weights == "bf16" ? 1 : 0;  // captures graphs, twice
  auto loaded = model::LoadModel(options);
  if (!loaded.ok()) return loaded.status();
  const std::vector<int32_t> tokens = {1, 2, 3};
  PlanBuilder builder(loaded->block_size, 4);
  builder.Add(0, 0, tokens, LastOf(tokens));
  builder.plan().block_copies.push_back({.from = 5, .to = 6});
  return loaded->executor->Run(builder.plan(), [](std::span<uint32_t>) {}).status();
}

// With two ranks, their threads and NCCL's poll and set their devices at random. So the first call
// and the last two of each function fail.
TEST(ModelFailuresOfTwoRanksTest, ACallThatFailsEndsTheStepAndNothingStays) {
  const TinyModel files({.num_layers = 1, .dtype = "bf16"});
  const ShimOptions shim = {.devices = {{}, {}}};
  for (const char* weights : {"bf16", "int4", "fp8"}) {
    CudaShim::Reset(shim);
    ASSERT_TRUE(LoadAndRun(files, weights).ok());
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
    const std::vector<ShimCall> calls = CudaShim::Calls();
    EXPECT_GE(calls.size(), 100u);
    std::map<std::pair<int, std::string>, int> last;
    for (const ShimCall& call : calls) last[{call.device, call.function}] = call.count;
    for (const ShimCall& call : calls) {
      if (call.count > 1 && call.count < last[{call.device, call.function}] - 1) continue;
      SCOPED_TRACE(weights + (" " + ToString(call)));
      CudaShim::Reset(shim);
      CudaShim::Fail(call);
      const absl::Status status = LoadAndRun(files, weights);
      const bool varies =
          call.function == "cudaSetDevice" || call.function == "cudaStreamSynchronize" ||
          call.function == "ncclCommGetAsyncError" || call.function.starts_with("cudaEvent");
      if (CudaShim::Failed() && !IsEnd(call.function) && !varies) {
        EXPECT_FALSE(status.ok());
      }
      EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace continuo::testing
