// SPDX-License-Identifier: Apache-2.0
// CudaBackend over the shim: the kernels thread by thread. Ops on rows and elements, draws,
// failures.
#include "kernels/backend.h"

#include <array>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/backend_fixture.h"
#include "tests/kernels/cuda/cases/backend_cases.h"
#include "tests/kernels/cuda/cases/kv_cases.h"
#include "tests/kernels/cuda/cases/sampling_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(CudaBackendTest, RowsAndElementsAreWhatTheReferenceSays) {
  CheckEmbed(b(), 5, {1, 7, 300}, 9);
  CheckF16(b());
  CheckRmsNorm(b(), 4, {1, 5, 64, 257, 1024});
  CheckAddSum(b(), 5, {1, 9, 64, 520, 1024, 2056});
  CheckRopes(b());
  CheckGates(b(), 2, {1, 255, 264, 3072});
  CheckSoftCap(b(), 3, 333);
  CheckGatherRows(b(), 6, 300, 4);
}

TEST_F(CudaBackendTest, QueriesAndKeysAreRotatedAndKeptAsTheReferenceSays) {
  CheckRotateAndWriteKvs(b());
  CheckWriteKv(b(), *cpu_, {.rows = 6, .kv_heads = 3, .head_dim = 40, .block_size = 5});
}

TEST_F(CudaBackendTest, Fp8WeightsAreForHopperKeysAndValuesForAll) {
  EXPECT_FALSE(cpu_->Keeps(kernels::DType::kF8, kernels::DType::kBF16));
  EXPECT_TRUE(b().Computes(kernels::WeightType::kFp8));
  EXPECT_FALSE(cpu_->Computes(kernels::WeightType::kFp8));
  backend_.reset();
  for (const auto& [major, minor] : {std::pair{8, 0}, std::pair{8, 9}, std::pair{10, 0}}) {
    CudaShim::Reset({.devices = {{.major = major, .minor = minor}}});
    Make(false);
    EXPECT_FALSE(b().Computes(kernels::WeightType::kFp8)) << major;
    EXPECT_TRUE(b().Computes(kernels::WeightType::kInt4)) << major;
    EXPECT_TRUE(b().Computes(kernels::WeightType::kF16)) << major;
    for (const kernels::DType activations : kActivations) {
      EXPECT_TRUE(b().Keeps(kernels::DType::kF8, activations)) << major;
    }
    backend_.reset();
  }
}

TEST_F(CudaBackendTest, Fp16IsForDevicesAndForItself) {
  EXPECT_TRUE(b().Computes(kernels::WeightType::kF16));
  EXPECT_FALSE(cpu_->Computes(kernels::WeightType::kF16));
  EXPECT_FALSE(cpu_->Keeps(kernels::DType::kF16, kernels::DType::kF32));
  for (const kernels::DType activations : kActivations) {
    for (const kernels::DType kept :
         {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kF16}) {
      EXPECT_EQ(b().Keeps(kept, activations),
                (kept == kernels::DType::kF16) == (activations == kernels::DType::kF16));
    }
  }
}

TEST_F(CudaBackendTest, DrawsAreThoseOfTheHostBitByBit) {
  // Of one part and of several, full and not.
  CheckRandomDraws(b(), {1, 33, 1000, 1024, 8192, 8195, 20011}, 4);
  CheckSums(b(), {1, 7, 50, 99, 333, 701, 1000, 1023, 1027, 3000, 8192, 20011, 151936});
  CheckPeakedDraws(b(), 20011);
  CheckManySamples(b());
  CheckStrangeDraws(b());
}

TEST_F(CudaBackendTest, AFailedCallIsToldByEverySynchronizeAndEndsTheWork) {
  const HostTensor x(kernels::DType::kF32, 4, 8);
  const DeviceTensor a(b(), x), c(b(), x), gain(b(), HostTensor(kernels::DType::kF32, 1, 8));
  CudaShim::Fail({0, "SiluMul", 1});
  b().SiluMul(a, a, c);
  const size_t calls = CudaShim::Calls().size();
  b().SiluMul(a, a, c);
  b().RmsNorm(a, a, gain, 1e-5f);
  EXPECT_EQ(CudaShim::Calls().size(), calls);
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = b().Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0: SiluMul"));
  }
}

TEST_F(CudaBackendTest, NothingHappensToNoRows) {
  const DeviceTensor none(b(), HostTensor(kernels::DType::kBF16, 0, 8));
  const DeviceTensor gain(b(), HostTensor(kernels::DType::kF32, 1, 8));
  const DeviceTensor ids(b(), HostTensor::OfInts({}));
  b().RmsNorm(none, none, gain, 1e-5f);
  b().SiluMul(none, none, none);
  const DeviceTensor no_sum(b(), HostTensor(kernels::DType::kF32, 0, 8));
  b().AddSum(none, no_sum, kernels::Tensor());
  b().AddSumNorm(none, none, no_sum, kernels::Tensor(), gain, 1e-5f);
  EXPECT_FALSE(b().DrawTokens({}, ids, no_sum, {}, {}));
  b().TakeTokens(ids, ids);
  b().GatherRows(none, none, ids);
  b().MatMul(none, none, DeviceTensor(b(), HostTensor(kernels::DType::kBF16, 8, 8)).weight(),
             kernels::Tensor());
  EXPECT_TRUE(b().Synchronize().ok());
}

// What a graph knows of scratch stays as it is when another op needs more, and goes with the graph.
TEST_F(CudaBackendTest, ScratchThatGrowsLeavesGraphsAsTheyAre) {
  backend_.reset();
  MakeWith({.scratch_bytes = 16});
  Random random(47);
  const DeviceTensor x(b(), HostTensor::Of(kernels::DType::kF32, 3, 32, random));
  struct Product {
    Product(kernels::Backend& b, int64_t columns, Random& random)
        : w(b, HostTensor::Of(kernels::DType::kF32, columns, 32, random)),
          bias(b, HostTensor::Of(kernels::DType::kF32, 1, columns, random)),
          out(b, HostTensor::Poisoned(kernels::DType::kF32, 3, columns)) {}
    // By way of sums in scratch.
    absl::Status Run(kernels::Backend& b, const kernels::Tensor& x) const {
      b.MatMul(out, x, w.weight(), bias);
      return absl::OkStatus();
    }
    DeviceTensor w, bias, out;
  };
  const Product repeated(b(), 48, random), larger(b(), 4000, random);
  const int64_t key[] = {0};
  const auto repeat = [&] {
    EXPECT_EQ(b().Repeat(key, [&] { return repeated.Run(b(), x); }), absl::OkStatus());
  };
  const auto count = [](const char* function) { return CudaShim::NumCalls(0, function); };
  for (int time = 0; time < 3; ++time) repeat();  // the last as a graph
  const HostTensor before = repeated.out.Get();
  const int frees = count("cudaFree"), launches = count("cudaGraphLaunch");
  EXPECT_EQ(larger.Run(b(), x), absl::OkStatus());
  EXPECT_TRUE(b().Synchronize().ok());
  repeat();
  EXPECT_TRUE(repeated.out.Get().SameBits(before));
  EXPECT_EQ(count("cudaGraphLaunch"), launches + 1);
  EXPECT_EQ(count("cudaFree"), frees);
  b().ForgetRepeated();
  EXPECT_EQ(count("cudaFree"), frees + 1);
}

}  // namespace
}  // namespace continuo::testing
