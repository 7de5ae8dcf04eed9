// SPDX-License-Identifier: Apache-2.0
// CudaBackend's ops on a device, at the shapes of Qwen3-0.6B, Llama-3.1-8B and a rank of eight of a
// 70B.
#include "kernels/backend.h"

#include <array>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/backend_cases.h"
#include "tests/kernels/cuda/expert_cases.h"
#include "tests/kernels/cuda/fp8_cases.h"
#include "tests/kernels/cuda/joined_cases.h"
#include "tests/kernels/cuda/matmul_cases.h"
#include "tests/kernels/cuda/quantised_cases.h"
#include "tests/kernels/cuda/sampling_cases.h"

namespace continuo::testing {
namespace {

class GpuBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Make(false);
    if (backend_ == nullptr) GTEST_SKIP() << "skipped: no device: " << why_;
  }
  void Make(bool deterministic) {
    auto backend = MakeBackend({.device = "cuda:0", .deterministic = deterministic});
    why_ = backend.status();
    backend_ = backend.ok() ? *std::move(backend) : nullptr;
  }
  Backend& b() { return *backend_; }

  absl::Status why_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> cpu_ = MakeCpu("auto");
};

TEST_F(GpuBackendTest, RowsAndElementsAreWhatTheReferenceSays) {
  CheckEmbed(b());
  CheckF16(b());
  CheckRmsNorm(b(), {1, 5, 64, 128, 257, 1024, 4096, 8192});
  CheckAddSum(b());
  CheckRope(b());
  CheckElements(b());
  CheckGatherRows(b());
}

TEST_F(GpuBackendTest, JoinedOpsHaveTheBitsOfTheSingleOnes) {
  CheckAddSumNorm(b(), {1, 9, 64, 520, 1024, 4096, 8192});
  CheckRotateAndWriteKv(b());
}

TEST_F(GpuBackendTest, ProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckMatMul(b(), 1, 7, 64);
    CheckMatMul(b(), 5, 64, 40);
    for (const int64_t rows : {1, 16, 70}) {
      CheckMatMul(b(), rows, 1024, 2048);  // Qwen3-0.6B's output
      CheckMatMul(b(), rows, 512, 4096);   // Llama-3.1-8B's keys, in part
      CheckMatMul(b(), rows, 1280, 8192);  // a 70B's keys and queries of a rank
    }
    // Where K is split into parts that are no multiples of 64 elements, cuBLASLt may lose the last.
    for (const int64_t columns : {8, 128}) {
      for (const int64_t rows : {1, 128}) CheckOnes(b(), rows, columns, 11528);
    }
  }
}

TEST_F(GpuBackendTest, ProductsOfFewRowsAreWhatTheReferenceSaysEitherWay) {
  const auto devices = cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  for (const bool few_rows : {false, true}) {
    auto backend = cuda::CudaBackend::Make({.device = devices->front(), .few_rows = few_rows});
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    for (const int64_t rows : {1, 7, 16}) {
      CheckJoinedProducts(b(), rows, {2048, 1024, 1024}, 1024);
      CheckJoinedProducts(b(), rows, {3584, 3584}, 4096);
      CheckJoinedProducts(b(), rows, {33, 8}, 200);
    }
  }
  for (const WeightType type : {WeightType::kInt8, WeightType::kInt4}) {
    for (const int64_t rows : {1, 40}) {
      CheckJoinedQuantised(b(), rows, {2048, 1024, 1024}, 1024, type);
    }
  }
}

// --deterministic: a row's bits do not depend on the others.
TEST_F(GpuBackendTest, DeterministicProductsDoNotDependOnTheRows) {
  Make(true);
  ASSERT_TRUE(why_.ok());
  Random random(30);
  for (const auto& [type, columns, k] :
       std::vector<std::tuple<DType, int64_t, int64_t>>{{DType::kBF16, 1024, 1024},
                                                        {DType::kBF16, 4096, 4096},
                                                        {DType::kBF16, 3584, 8192},
                                                        {DType::kF16, 4096, 4096}}) {
    const HostTensor x = HostTensor::Of(type, 300, k, random);
    const DeviceTensor w(b(), HostTensor::Of(type, columns, k, random));
    const DeviceTensor in(b(), x), out(b(), HostTensor::Poisoned(DType::kF32, 300, columns));
    b().MatMul(out, in, w.weight(), Tensor());
    const HostTensor expected = out.Get();
    for (const int64_t rows : {1, 2, 16, 64, 65, 129}) {
      const DeviceTensor part(b(), x.Rows(0, rows));
      const DeviceTensor got(b(), HostTensor::Poisoned(DType::kF32, rows, columns));
      b().MatMul(got, part, w.weight(), Tensor());
      EXPECT_EQ(std::memcmp(got.Get().bytes().data(), expected.bytes().data(),
                            static_cast<size_t>(rows * columns) * sizeof(float)),
                0)
          << rows << " rows of " << NameOf(type) << " [" << columns << ", " << k << "]";
    }
  }
}

TEST_F(GpuBackendTest, QuantisedProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckQuantised(b(), *cpu_, 5, 7, {0, 33});
    CheckQuantised(b(), *cpu_, 3, 16, {0, 0, 130, 131, 131, 200});
    for (const int64_t rows : {1, 16, 17, 64, 70, 200}) {
      const bool wide = rows > 64 && !deterministic;
      CheckQuantised(b(), *cpu_, rows, 1024, {0, 256, 512, 768, 1024, 1280, 1536, 1792, 2048},
                     wide);
      CheckQuantised(b(), *cpu_, rows, 520, {0, 4096}, wide);
      CheckExactProducts(b(), rows, 1024, {0, 1024, 1025, 3072});
      CheckExactProducts(b(), rows, 520, {0, 4096});
    }
  }
}

TEST_F(GpuBackendTest, QuantisedProductsOfManyRowsAreMultipliedInSlices) {
  const auto devices = cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  auto backend =
      cuda::CudaBackend::Make({.device = devices->front(), .scratch_bytes = 1024 * 2 * 400});
  ASSERT_TRUE(backend.ok());
  backend_ = *std::move(backend);
  CheckQuantised(b(), *cpu_, 130, 1000, {0, 512, 1024}, /*wide=*/true);
}

TEST_F(GpuBackendTest, DeterministicQuantisedProductsDoNotDependOnTheRows) {
  Make(true);
  CheckQuantisedRows(b(), {WeightType::kInt8, WeightType::kInt4}, 1024, 1024,
                     {1, 2, 16, 17, 64, 65, 300});
  CheckQuantisedRows(b(), {WeightType::kInt8, WeightType::kInt4}, 4096, 4096, {1, 33, 300});
}

TEST_F(GpuBackendTest, KeysAndValuesAreWrittenAsTheCpuDoes) { CheckWriteKv(b(), *cpu_); }

// Sums in e4m3 keep fewer bits than f32 has, on Hopper about 14 of a product's.
TEST_F(GpuBackendTest, ProductsInFp8AreThoseOfTheirNumbers) {
  if (!b().Computes(WeightType::kFp8)) GTEST_SKIP() << "skipped: the device has no such products";
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const int64_t rows : {1, 16, 64, 300}) {
      CheckFp8(b(), rows, 1024, 1024, 0x1p-11);
      CheckFp8(b(), rows, 3072, 2048, 0x1p-11);
      CheckFp8(b(), rows, 23, 47, 0x1p-11);
    }
    for (const int64_t rows : {1, 127, 256}) {
      CheckFp8(b(), rows, 4096, 14336, 0x1p-11, /*most_checked=*/64);
      CheckFp8(b(), rows, 3072, 9216, 0x1p-11, /*most_checked=*/64);
    }
    for (const int64_t rows : {1, 17, 300}) CheckFp8BehindOps(b(), rows, 1024, 3072);
    CheckFp8BehindOps(b(), 5, 4096, 14336);
    CheckFp8BehindOps(b(), 3, 33, 21);
    CheckStrangeFp8Rows(b());
    if (deterministic) CheckQuantisedRows(b(), {WeightType::kFp8}, 1024, 1024, {1, 2, 16, 65, 300});
  }
  auto fast = MakeBackend({.device = "cuda:0", .fp8_fast_accumulation = true});
  ASSERT_TRUE(fast.ok()) << fast.status();
  for (const int64_t rows : {1, 64, 300}) {
    CheckFp8(**fast, rows, 4096, 14336, 0x1p-9, /*most_checked=*/64);
  }
}

// All that is refused at once, also where a worker would do without.
TEST_F(GpuBackendTest, ThereAreAlgorithmsForTheShapesOfModels) {
  for (const cuda::MatMulOptions& options :
       {cuda::MatMulOptions{}, cuda::MatMulOptions{.deterministic = true},
        cuda::MatMulOptions{.fp8_fast_accumulation = true}}) {
    const std::string how = absl::StrCat("deterministic ", options.deterministic, ", fast ",
                                         options.fp8_fast_accumulation);
    auto matmul = cuda::MatMul::Make(0, options);
    ASSERT_TRUE(matmul.ok()) << matmul.status();
    std::vector<std::string> without_scales;
    const std::vector<std::string> missing =
        MissingAlgorithms(**matmul, b().Computes(WeightType::kFp8), &without_scales);
    EXPECT_EQ(absl::StrJoin(missing, "\n"), "") << how;
    if (without_scales.empty()) continue;
    std::cout << "without scales of rows, " << how << ":\n"
              << absl::StrJoin(without_scales, "\n") << '\n';
  }
}

TEST_F(GpuBackendTest, ExpertsAreThoseOfTheCpu) {
  CheckRoutes(b(), *cpu_, 2000, 128, 8);
  CheckRoutes(b(), *cpu_, 9, 1024, 32);
  CheckLayersOfExperts(
      b(), *cpu_, [] {}, [] {});
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const WeightType type : kExpertTypes) {
      CheckExperts(b(), *cpu_, 1, 128, 8, type, {0, 512, 1024, 1536, 2048});
      CheckExperts(b(), *cpu_, 37, 40, 8, type, {0, 640, 1300});
      CheckExperts(b(), *cpu_, 300, 128, 8, type, {0, 128, 128, 384, 768});
    }
    CheckExpertsOfNoColumns(b(), *cpu_);
  }
  for (const WeightType type : kExpertTypes) {
    CheckExpertRows(b(), type, 2048, {1, 3, 16, 17, 33, 200});
  }
}

TEST_F(GpuBackendTest, DrawsAreThoseOfTheHostBitByBit) {
  CheckRandomDraws(b(), {1, 33, 1024, 8195, 20011, 128256, 151936}, 10);
  CheckSums(b(), {1, 7, 50, 99, 333, 701, 1000, 1023, 1027, 3000, 8192, 20011, 151936});
  CheckPeakedDraws(b(), 151936);
  CheckManySamples(b());
  CheckStrangeDraws(b());
}

TEST_F(GpuBackendTest, AttentionIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    // Qwen3-0.6B, Llama-3.1-8B, a rank of a 70B, and sizes of head in use.
    for (const auto& [heads, kv_heads, dim] : std::vector<std::array<int, 3>>{{16, 8, 128},
                                                                              {32, 8, 128},
                                                                              {8, 1, 128},
                                                                              {32, 8, 64},
                                                                              {8, 4, 256},
                                                                              {6, 2, 96},
                                                                              {4, 2, 40},
                                                                              {70, 1, 16}}) {
      for (const int window : {0, 70}) {
        for (const int64_t block_size : {7, 16}) {
          const AttentionParams params = Heads(heads, kv_heads, dim, window);
          for (const DType type : kNumbers) {
            CheckAttention(b(), {{1, 1}, {5, 5}, {129, 3}, {700, 137}}, params, type, block_size);
            CheckAttention(b(), {{1500, 1}, {7, 1}, {64, 1}}, params, type, block_size);
          }
          CheckAttention(b(), {{200, 7}, {1, 1}}, params, DType::kF32, block_size);
          CheckAttentionOverBytes(b(), {{1, 1}, {5, 5}, {129, 3}, {700, 137}}, params,
                                  {block_size});
          CheckAttentionOverBytes(b(), {{1500, 1}, {7, 1}, {64, 1}}, params, {block_size});
          CheckAttention(b(), {{200, 7}, {1, 1}}, params, DType::kF32, block_size, DType::kF8);
          if (HasFatalFailure()) return;
        }
      }
    }
    AttentionParams capped = Heads(8, 4, 256, 70);
    capped.softcap = 5;
    for (const DType type : kNumbers) {
      CheckAttention(b(), {{130, 40}, {1090, 1}}, capped, type, 16);
    }
    CheckAttentionOverBytes(b(), {{130, 40}, {1090, 1}}, capped, {16, 5});
  }
}

TEST_F(GpuBackendTest, AttentionOfAFewShapesIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFewShapes(b());
  }
}

TEST_F(GpuBackendTest, AttentionOfPromptsByWarpgroupsIsWhatTheReferenceSays) {
  const auto devices = cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  auto backend = cuda::CudaBackend::Make({.device = devices->front(), .warpgroup_attention = true});
  ASSERT_TRUE(backend.ok());
  backend_ = *std::move(backend);
  CheckPromptAttention(b());
  for (const DType type : kNumbers) {
    CheckAttention(b(), {{700, 700}, {2000, 130}}, Heads(32, 8, 128), type, 16);
    CheckAttention(b(), {{9000, 300}}, Heads(16, 8, 128), type, 16);
  }
}

TEST_F(GpuBackendTest, StrangeKeysAndValuesReachTheRowsThatSeeThemAlone) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const DType type : kNumbers) CheckStrangeKeysAndValues(b(), type);
  }
}

TEST_F(GpuBackendTest, EveryByteOfTheCacheStandsForItsNumber) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const DType type : kNumbers) {
      for (const float scale : {1.0f, 0x1.02p-20f}) CheckEveryByte(b(), type, scale);
    }
  }
}

TEST_F(GpuBackendTest, DeterministicAttentionDoesNotDependOnTheStep) {
  Make(true);
  ASSERT_TRUE(why_.ok());
  CheckDeterministicAttention(b());
}

}  // namespace
}  // namespace continuo::testing
