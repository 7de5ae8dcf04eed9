// SPDX-License-Identifier: Apache-2.0
// CudaBackend's products over the shim: the kernels thread by thread, cuBLASLt as a loop.
#include "kernels/backend.h"

#include <array>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/backend_fixture.h"
#include "tests/kernels/cuda/cases/fp8_cases.h"
#include "tests/kernels/cuda/cases/joined_cases.h"
#include "tests/kernels/cuda/cases/product_cases.h"
#include "tests/kernels/cuda/cases/quantised_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::IsEmpty;

TEST_F(CudaBackendTest, ProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckMatMul(b(), {1}, 7, 64);
    CheckMatMul(b(), {5}, 64, 33);
    CheckMatMul(b(), {130}, 24, 16);
    CheckMatMul(b(), {1, 20}, 50, 72, /*most_checked=*/6);
    CheckExactMatMul(b(), {1, 18}, 33, 200);
    CheckOnes(b(), 1, 8, 11528);
  }
}

TEST_F(CudaBackendTest, GatesAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckGatedMatMul(b(), {1, 3, 16, 17}, 40, 72);
    CheckGatedMatMul(b(), {5}, 33, 41);
  }
  for (const bool few_rows : {false, true}) {
    MakeWith({.few_rows = few_rows});
    CheckGatedMatMul(b(), {1, 16}, 40, 200);
  }
}

TEST_F(CudaBackendTest, ProductsOfFewRowsAreWhatTheReferenceSaysEitherWay) {
  for (const bool few_rows : {false, true}) {
    MakeWith({.few_rows = few_rows});
    const int before = CudaShim::NumCalls(0, "FewRowsMatMul");
    CheckMatMul(b(), {1}, 7, 64);
    CheckMatMul(b(), {16}, 64, 33);
    CheckMatMul(b(), {5}, 40, 200);
    CheckJoinedProducts(b(), {3}, {40, 8, 33}, 72);
    CheckJoinedProducts(b(), {16}, {64, 64}, 136);
    EXPECT_EQ(CudaShim::NumCalls(0, "FewRowsMatMul") > before, few_rows);
    const int between = CudaShim::NumCalls(0, "FewRowsMatMul");
    CheckMatMul(b(), {17}, 24, 16);  // not few
    EXPECT_EQ(CudaShim::NumCalls(0, "FewRowsMatMul"), between);
  }
}

TEST_F(CudaBackendTest, WhichWayProductsOfFewRowsGoIsMeasuredOnce) {
  const auto launches = [&](int64_t rows, int64_t k) {
    const int before = CudaShim::NumCalls(0, "FewRowsMatMul");
    CheckJoinedProducts(b(), {rows}, {8, 8}, k);
    return CudaShim::NumCalls(0, "FewRowsMatMul") - before;
  };
  EXPECT_GE(launches(3, 64), 4 * 4);
  EXPECT_LE(launches(4, 64), 4);  // rows up to 4 are alike; bf16 and f16, to f32 or not
  EXPECT_GE(launches(5, 64), 4 * 4);
  EXPECT_GE(launches(3, 72), 4 * 4);
  EXPECT_EQ(launches(17, 64), 0);
  Make(/*deterministic=*/true);
  EXPECT_EQ(launches(3, 64), 0);
}

TEST_F(CudaBackendTest, AProductThatEveryRankMakesGoesTheSameWayOnAll) {
  const int before = CudaShim::NumCalls(0, "FewRowsMatMul");
  const HostTensor x(kernels::DType::kBF16, 3, 64), w(kernels::DType::kBF16, 8, 64);
  const DeviceTensor in(b(), x), weights(b(), w), out(b(), HostTensor(kernels::DType::kF32, 3, 8));
  b().MatMul(out, in, weights.weight(), kernels::Tensor());
  EXPECT_EQ(CudaShim::NumCalls(0, "FewRowsMatMul"), before);
}

TEST_F(CudaBackendTest, QuantisedProductsOfOneXAreOneLaunch) {
  const int before = CudaShim::NumCalls(0, "FewRowsMatMul");
  CheckJoinedQuantised(b(), {3}, {40, 8, 33}, 144, kernels::WeightType::kInt8);
  CheckJoinedQuantised(b(), {20}, {16, 16}, 144, kernels::WeightType::kInt4);
  // And each alone, to compare with, for each type of out.
  EXPECT_EQ(CudaShim::NumCalls(0, "FewRowsMatMul") - before, 2 * (1 + 3) + 2 * (1 + 2));
}

TEST_F(CudaBackendTest, QuantisedProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckQuantised(b(), *cpu_, {1}, 40, {0, 320});
    CheckQuantised(b(), *cpu_, {5}, 7, {0, 33});
    CheckQuantised(b(), *cpu_, {19}, 33, {0, 48, 96, 144, 192, 240, 288, 336, 384});
    CheckQuantised(b(), *cpu_, {3}, 16, {0, 0, 130, 131, 131, 200});
    CheckQuantised(b(), *cpu_, {70}, 24, {0, 136, 136, 144},
                   /*wide_from=*/deterministic ? kAll : 0);
    CheckExactProducts(b(), {5}, 35, {0, 300, 300, 1304});
    CheckExactProducts(b(), {66}, 9, {0, 1111});
  }
}

// In slices of columns that scratch, or a slice's limit, holds: 16, 16 and 8.
TEST_F(CudaBackendTest, QuantisedProductsOfManyRowsAreOfBf16) {
  constexpr size_t kBytes = 72 * 2 * 20;
  const auto devices = kernels::cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  for (const kernels::cuda::CudaBackendOptions& options :
       {kernels::cuda::CudaBackendOptions{.device = devices->front(), .scratch_bytes = kBytes},
        kernels::cuda::CudaBackendOptions{.device = devices->front(), .slice_bytes = kBytes}}) {
    backend_.reset();
    CudaShim::Reset({});
    auto backend = kernels::cuda::CudaBackend::Make(options);
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    CheckQuantised(b(), *cpu_, {65}, 37, {0, 72}, /*wide_from=*/0);
    // Of int8 and int4: a product in pieces, and of each type of `out` one that has no bias.
    EXPECT_EQ(CudaShim::NumCalls(0, "Dequantise"), 2 * 3 * 3);
  }
}

TEST_F(CudaBackendTest, DeterministicQuantisedProductsDoNotDependOnTheRows) {
  Make(true);
  CheckQuantisedRows(b(), {kernels::WeightType::kInt8, kernels::WeightType::kInt4}, 40, 1200,
                     {1, 2, 16, 17, 33, 70});
}

TEST_F(CudaBackendTest, ProductsInFp8AreThoseOfTheirNumbers) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFp8(b(), {1}, 16, 64, 0x1p-24);
    CheckFp8(b(), {5}, 7, 33, 0x1p-24);    // nothing is aligned
    CheckFp8(b(), {20}, 36, 72, 0x1p-24);  // rows of f32 are, of bf16 not
    CheckFp8(b(), {3}, 48, 64, 0x1p-24, /*most_checked=*/8);
    CheckStrangeFp8Rows(b());
    if (deterministic) CheckQuantisedRows(b(), {kernels::WeightType::kFp8}, 24, 80, {1, 2, 17, 40});
  }
}

TEST_F(CudaBackendTest, ProductsInFp8TakeTheRowsThatTheOpBeforeMade) {
  for (const auto& [rows, k, inner] :
       std::vector<std::array<int64_t, 3>>{{1, 64, 48}, {5, 33, 21}, {3, 16, 5000}}) {
    Make(/*deterministic=*/false);
    const int before = CudaShim::NumCalls(0, "QuantiseRows");
    CheckFp8BehindOps(b(), rows, k, inner);
    // Of a copy behind each of 6, of 4 whose rows are others, of x once; and behind each of 2 gates
    // 3 of x and one of a copy.
    EXPECT_EQ(CudaShim::NumCalls(0, "QuantiseRows") - before, 6 + 4 + 1 + 2 * (3 + 1));
  }
}

// Scratch that holds fewer rows, or these without the product's sums.
TEST_F(CudaBackendTest, ProductsInFp8TakeNoRowsWhereScratchIsShort) {
  MakeWith({.scratch_bytes = 1000});
  CheckFp8BehindOps(b(), 37, 48, 24);
  EXPECT_EQ(CudaShim::NumCalls(0, "SiluMulInFp8"), 0);
  MakeWith({.scratch_bytes = 2000});
  CheckFp8BehindOps(b(), 37, 48, 24);
  EXPECT_GT(CudaShim::NumCalls(0, "SiluMulInFp8"), 0);
  MakeWith({.scratch_bytes = 600});
  CheckFp8BehindOps(b(), 1, 64, 100);
}

// In slices of rows that scratch holds.
TEST_F(CudaBackendTest, ProductsInFp8OfManyRowsAreThoseOfTheirNumbers) {
  MakeWith({.scratch_bytes = 2000});
  CheckFp8(b(), {37}, 24, 48, 0x1p-24);
  CheckFp8(b(), {37}, 23, 47, 0x1p-24);
}

// cuBLASLt has no algorithm that takes scales of rows for some shapes, on some numbers of rows:
// then they are multiplied by them later.
TEST_F(CudaBackendTest, ProductsInFp8WithoutAnAlgorithmOfScalesAreThoseOfTheirNumbers) {
  for (const bool finds_none : {false, true}) {
    for (const bool of_bf16_alone : {false, true}) {
      for (const bool deterministic : {false, true}) {
        backend_.reset();
        CudaShim::Reset({.workspace_of =
                             [=](const ShimProduct& product) {
                               const bool is_refused = product.has_scales && product.rows <= 20 &&
                                                       !(of_bf16_alone && product.is_f32);
                               return is_refused ? -1 : 0;
                             },
                         .finds_none = finds_none});
        Make(deterministic);
        for (const int64_t rows : {1, 20, 21}) CheckFp8(b(), {rows}, 16, 64, 4 * 0x1p-24);
        CheckFp8(b(), {5}, 7, 33, 4 * 0x1p-24);
        CheckStrangeFp8Rows(b());
        if (deterministic)
          CheckQuantisedRows(b(), {kernels::WeightType::kFp8}, 24, 80, {1, 2, 20, 21, 40});
        EXPECT_EQ(CudaShim::NumCalls(0, "ScaleRows") > 0, !of_bf16_alone);
        EXPECT_THAT(CudaShim::Violations(), IsEmpty());
      }
    }
  }
}

// In slices of rows, of which the last alone has no algorithm that takes scales.
TEST_F(CudaBackendTest, ProductsInFp8OfManyRowsMayHaveNoAlgorithmOfScales) {
  const auto devices = kernels::cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  backend_.reset();
  CudaShim::Reset({.workspace_of = [](const ShimProduct& product) {
    return product.has_scales && product.rows < 4 ? -1 : 0;
  }});
  auto backend =
      kernels::cuda::CudaBackend::Make({.device = devices->front(), .scratch_bytes = 1500});
  ASSERT_TRUE(backend.ok());
  backend_ = *std::move(backend);
  CheckFp8(b(), {37}, 24, 48, 4 * 0x1p-24);
  EXPECT_GT(CudaShim::NumCalls(0, "ScaleRows"), 0);
}

// Scratch for that is there before it is captured.
TEST_F(CudaBackendTest, ProductsInFp8WithoutAnAlgorithmOfScalesAreCaptured) {
  const auto devices = kernels::cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  backend_.reset();
  CudaShim::Reset(
      {.workspace_of = [](const ShimProduct& product) { return product.has_scales ? -1 : 0; }});
  auto backend =
      kernels::cuda::CudaBackend::Make({.device = devices->front(), .scratch_bytes = 16});
  ASSERT_TRUE(backend.ok());
  backend_ = *std::move(backend);
  Random random(43);
  const DeviceTensor x(b(), HostTensor::Of(kernels::DType::kBF16, 3, 32, random));
  const DeviceWeight w(b(), kernels::WeightType::kFp8,
                       HostTensor::Of(kernels::DType::kBF16, 48, 32, random), {0, 32});
  std::vector<HostTensor> results;
  for (int i = 0; i < 3; ++i) {
    const DeviceTensor out(b(), HostTensor::Poisoned(kernels::DType::kBF16, 3, 48));
    const int64_t key[] = {0};
    b().ForgetRepeated();
    for (int repeat = 0; repeat < 1 + i; ++repeat) {
      EXPECT_EQ(b().Repeat(key,
                           [&] {
                             b().MatMul(out, x, w.weight(), kernels::Tensor());
                             return absl::OkStatus();
                           }),
                absl::OkStatus());
    }
    results.push_back(out.Get());
    EXPECT_TRUE(results.back().SameBits(results.front()));
  }
  b().ForgetRepeated();
}

}  // namespace
}  // namespace continuo::testing
