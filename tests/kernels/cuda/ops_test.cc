// SPDX-License-Identifier: Apache-2.0
// CudaDevice over the shim, which runs the kernels thread by thread: ops on rows and elements,
// sampling, failures.
#include "kernels/device.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/cases/kv_cases.h"
#include "tests/kernels/cuda/cases/ops_cases.h"
#include "tests/kernels/cuda/cases/sampling_cases.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(CudaDeviceTest, RowsAndElementsAreWhatTheReferenceSays) {
  CheckEmbed(b(), 5, {1, 7, 300}, 9);
  CheckF16(b());
  CheckRmsNorm(b(), 4, {1, 5, 64, 257, 1024});
  CheckAddSum(b(), 5, {1, 9, 64, 520, 1024, 2056});
  CheckAddSum(b(), 1, {4104, 8192, 8200});
  CheckRopes(b());
  CheckGates(b(), 2, {1, 255, 264, 3072});
  CheckSoftCap(b(), 3, 333);
  CheckCopyHeads(b(), *cpu_, 9);
  CheckGatherRows(b(), 6, 300, 4);
  CheckLayerNorm(b(), 3, {2, 5, 64, 300});
  CheckRmsNormBySquares(b(), 3, 5, {1, 20, 64});
  CheckScale(b(), 3, 333);
  CheckScaleBy(b(), 3, 333);
  CheckGrowAngles(b());
  CheckPlainGates(b(), 2, {1, 264});
}

TEST_F(CudaDeviceTest, QueriesAndKeysAreRotatedAndKeptAsTheReferenceSays) {
  CheckRotateAndWriteKvs(b());
  CheckRoundingToE4M3(b());
  CheckWriteKv(b(), *cpu_, {.rows = 6, .kv_heads = 3, .head_dim = 40, .block_size = 5});
}

TEST_F(CudaDeviceTest, Fp8WeightsAreForHopperKeysAndValuesForAll) {
  EXPECT_FALSE(cpu_->ops().attention.SupportsKvType(kernels::DType::kF8, kernels::DType::kBF16));
  EXPECT_TRUE(b().ops().matmul.SupportsWeights(kernels::WeightType::kFp8));
  EXPECT_FALSE(cpu_->ops().matmul.SupportsWeights(kernels::WeightType::kFp8));
  device_.reset();
  for (const auto& [major, minor] : {std::pair{8, 0}, std::pair{8, 9}, std::pair{10, 0}}) {
    CudaShim::Reset({.devices = {{.major = major, .minor = minor}}});
    Make(false);
    EXPECT_FALSE(b().ops().matmul.SupportsWeights(kernels::WeightType::kFp8)) << major;
    EXPECT_TRUE(b().ops().matmul.SupportsWeights(kernels::WeightType::kInt4)) << major;
    EXPECT_TRUE(b().ops().matmul.SupportsWeights(kernels::WeightType::kF16)) << major;
    for (const kernels::DType activations : kActivations) {
      EXPECT_TRUE(b().ops().attention.SupportsKvType(kernels::DType::kF8, activations)) << major;
    }
    device_.reset();
  }
}

TEST_F(CudaDeviceTest, Fp16IsForDevicesAndForItself) {
  EXPECT_TRUE(b().ops().matmul.SupportsWeights(kernels::WeightType::kF16));
  EXPECT_FALSE(cpu_->ops().matmul.SupportsWeights(kernels::WeightType::kF16));
  EXPECT_FALSE(cpu_->ops().attention.SupportsKvType(kernels::DType::kF16, kernels::DType::kF32));
  for (const kernels::DType activations : kActivations) {
    for (const kernels::DType kept :
         {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kF16}) {
      EXPECT_EQ(b().ops().attention.SupportsKvType(kept, activations),
                (kept == kernels::DType::kF16) == (activations == kernels::DType::kF16));
    }
  }
}

TEST_F(CudaDeviceTest, SamplesAreThoseOfTheHostBitByBit) {
  // The vocabularies have one part and several, full and not.
  CheckRandomSamples(b(), {1, 33, 1000, 1024, 8192, 8195, 9004, 20011}, 4);
  CheckSums(b(), {1, 7, 50, 99, 333, 701, 1000, 1023, 1027, 3000, 8192, 20011, 151936});
  CheckPeakedSamples(b(), 20011);
  CheckManySamples(b());
  CheckStrangeSamples(b());
}

TEST_F(CudaDeviceTest, AFailedCallIsToldByEverySynchronizeAndEndsTheWork) {
  const HostTensor x(kernels::DType::kF32, 4, 8);
  const DeviceTensor a(b(), x), c(b(), x), gain(b(), HostTensor(kernels::DType::kF32, 1, 8));
  CudaShim::Fail({0, "SiluMul", 1});
  b().ops().rows.GateMul(kernels::GateFunction::kSilu, a, a, c);
  const size_t calls = CudaShim::Calls().size();
  b().ops().rows.GateMul(kernels::GateFunction::kSilu, a, a, c);
  b().ops().rows.RmsNorm(a, a, gain, 1e-5f);
  EXPECT_EQ(CudaShim::Calls().size(), calls);
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = b().Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0: SiluMul"));
  }
}

TEST_F(CudaDeviceTest, NothingHappensToNoRows) {
  const DeviceTensor none(b(), HostTensor(kernels::DType::kBF16, 0, 8));
  const DeviceTensor gain(b(), HostTensor(kernels::DType::kF32, 1, 8));
  const DeviceTensor ids(b(), HostTensor::OfInts({}));
  b().ops().rows.RmsNorm(none, none, gain, 1e-5f);
  b().ops().rows.GateMul(kernels::GateFunction::kSilu, none, none, none);
  const DeviceTensor no_sum(b(), HostTensor(kernels::DType::kF32, 0, 8));
  b().ops().rows.AddSum(none, no_sum, kernels::Tensor());
  b().ops().rows.AddSumNorm(none, none, no_sum, kernels::Tensor(), gain, 1e-5f);
  EXPECT_FALSE(b().ops().sampling.SampleTokens({}, ids, no_sum, {}, {}));
  b().ops().sampling.ResolveSampledIds(ids, ids);
  b().ops().rows.GatherRows(none, none, ids);
  b().ops().matmul.MatMul(none, none,
                          DeviceTensor(b(), HostTensor(kernels::DType::kBF16, 8, 8)).weight(),
                          kernels::Tensor());
  EXPECT_TRUE(b().Synchronize().ok());
}

TEST_F(CudaDeviceTest, ABatchOfSamplesWithAllListsIsOneCopyInAndOneOut) {
  const DeviceTensor logits(b(), HostTensor(kernels::DType::kF32, 1, 70));
  const DeviceTensor tokens(b(), HostTensor::OfInts({0, 0, 0}));
  const std::array<kernels::LogitBias, 1> biases = {{{.token_id = 3, .bias = 5}}};
  const std::array<kernels::SeenToken, 2> seen = {
      {{.token_id = 1}, {.token_id = 65, .answer_count = 1}}};
  const std::array<uint32_t, 3> masks = {0, 1u << 7, 0};
  const std::array<kernels::SampleRequest, 3> requests = {
      {{.temperature = 0, .bias_end = 1},
       {.temperature = 0, .presence_penalty = -9, .seen_end = 2},
       {.temperature = 0, .mask = 0}}};
  auto memory = b().AllocateHost(requests.size() * sizeof(kernels::SampledToken));
  ASSERT_TRUE(memory.ok());
  const std::span sampled(static_cast<kernels::SampledToken*>(*memory), requests.size());
  const auto num_copies = [] { return CudaShim::NumCalls(0, "cudaMemcpyAsync"); };
  const int copies = num_copies();
  ASSERT_TRUE(b().ops().sampling.SampleTokens(
      sampled, tokens, logits, {},
      {.requests = requests, .biases = biases, .seen = seen, .masks = masks}));
  EXPECT_EQ(num_copies(), copies + 2);
  ASSERT_TRUE(b().Synchronize().ok());
  EXPECT_EQ(sampled[0].token_id, 3);
  EXPECT_EQ(sampled[1].token_id, 65);
  EXPECT_EQ(sampled[2].token_id, 39);
  b().FreeHost(*memory);
}

// Scratch that a graph uses stays allocated when another op needs more, and is freed with the
// graph.
TEST_F(CudaDeviceTest, ScratchThatGrowsLeavesGraphsAsTheyAre) {
  device_.reset();
  MakeWith({.scratch_bytes = 16});
  Random random(47);
  const DeviceTensor x(b(), HostTensor::Of(kernels::DType::kF32, 3, 32, random));
  struct Product {
    Product(kernels::Device& b, int64_t columns, Random& random)
        : w(b, HostTensor::Of(kernels::DType::kF32, columns, 32, random)),
          bias(b, HostTensor::Of(kernels::DType::kF32, 1, columns, random)),
          out(b, HostTensor::Poisoned(kernels::DType::kF32, 3, columns)) {}
    // This goes by way of sums in scratch.
    absl::Status Run(kernels::Device& b, const kernels::Tensor& x) const {
      b.ops().matmul.MatMul(out, x, w.weight(), bias);
      return absl::OkStatus();
    }
    DeviceTensor w, bias, out;
  };
  const Product repeated(b(), 48, random), larger(b(), 4000, random);
  const int64_t key[] = {0};
  const auto repeat = [&] {
    EXPECT_EQ(b().RunGraph(key, [&] { return repeated.Run(b(), x); }), absl::OkStatus());
  };
  const auto count = [](const char* function) { return CudaShim::NumCalls(0, function); };
  for (int time = 0; time < 3; ++time) repeat();  // the last one replays a graph
  const HostTensor before = repeated.out.Get();
  const int frees = count("cudaFree"), launches = count("cudaGraphLaunch");
  EXPECT_EQ(larger.Run(b(), x), absl::OkStatus());
  EXPECT_TRUE(b().Synchronize().ok());
  repeat();
  EXPECT_TRUE(repeated.out.Get().SameBits(before));
  EXPECT_EQ(count("cudaGraphLaunch"), launches + 1);
  EXPECT_EQ(count("cudaFree"), frees);
  b().DropGraphs();
  EXPECT_EQ(count("cudaFree"), frees + 1);
}

}  // namespace
}  // namespace continuo::testing
