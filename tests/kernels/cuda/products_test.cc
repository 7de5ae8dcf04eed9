// SPDX-License-Identifier: Apache-2.0
// CudaMatMul over the shim, which runs the kernels thread by thread and cuBLASLt as a loop.
#include "kernels/device.h"

#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/formats/e4m3_pairs.h"
#include "kernels/cuda/formats/fp8.h"
#include "tests/kernels/cuda/cases/fp8_cases.h"
#include "tests/kernels/cuda/cases/joined_cases.h"
#include "tests/kernels/cuda/cases/product_cases.h"
#include "tests/kernels/cuda/cases/quantised_cases.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::IsEmpty;

TEST_F(CudaDeviceTest, ProductsAreWhatTheReferenceSays) {
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

TEST_F(CudaDeviceTest, GatesAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckGatedMatMul(b(), {1, 3, 16, 17}, 40, 72);
    CheckGatedMatMul(b(), {5}, 33, 41);
  }
  for (const bool small_m : {false, true}) {
    MakeWith({.small_m = small_m});
    CheckGatedMatMul(b(), {1, 16}, 40, 200);
  }
}

TEST_F(CudaDeviceTest, SmallMProductsAreWhatTheReferenceSaysEitherWay) {
  for (const bool small_m : {false, true}) {
    MakeWith({.small_m = small_m});
    const int before = CudaShim::NumCalls(0, "SmallMMatMul");
    CheckMatMul(b(), {1}, 7, 64);
    CheckMatMul(b(), {16}, 64, 33);
    CheckMatMul(b(), {5}, 40, 200);
    CheckJoinedProducts(b(), {3}, {40, 8, 33}, 72);
    CheckJoinedProducts(b(), {16}, {64, 64}, 136);
    EXPECT_EQ(CudaShim::NumCalls(0, "SmallMMatMul") > before, small_m);
    const int between = CudaShim::NumCalls(0, "SmallMMatMul");
    CheckMatMul(b(), {17}, 24, 16);  // more than small M
    EXPECT_EQ(CudaShim::NumCalls(0, "SmallMMatMul"), between);
  }
}

TEST_F(CudaDeviceTest, SmallMProductsAreOneLaunchUnlessDeterministic) {
  const auto launches = [&](int64_t rows, int64_t columns) {
    const int before = CudaShim::NumCalls(0, "SmallMMatMul");
    CheckJoinedProducts(b(), {rows}, {8, columns}, 24, /*most_checked=*/8);
    return CudaShim::NumCalls(0, "SmallMMatMul") - before;
  };
  // By default up to 2 rows, and 256 columns for each of 8 multiprocessors.
  EXPECT_EQ(launches(1, 8), 4);  // bf16 and f16, to f32 or not
  EXPECT_EQ(launches(2, 2040), 4);
  EXPECT_EQ(launches(2, 2041), 8);  // each by itself
  EXPECT_EQ(launches(2, 2049), 4);  // the first one
  EXPECT_EQ(launches(3, 8), 0);
  MakeWith({.small_m = true});
  EXPECT_EQ(launches(2, 2041), 4);
  EXPECT_EQ(launches(16, 8), 4);
  EXPECT_EQ(launches(17, 8), 0);
  MakeWith({.small_m = false});
  EXPECT_EQ(launches(1, 8), 0);
  MakeWith({.options = {.deterministic = true}, .small_m = true});
  EXPECT_EQ(launches(1, 8), 0);
}

// The blocks' shares of the columns depend on the number of multiprocessors, bits do not.
TEST_F(CudaDeviceTest, BitsOfSmallMDoNotDependOnTheDevice) {
  constexpr int64_t kRows = 3, kK = 648;
  constexpr std::array<int64_t, 3> kColumns = {300, 68, 41};
  std::vector<HostTensor> first;
  for (const int num_multiprocessors : {1, 2, 3, 7, 200}) {
    SCOPED_TRACE(num_multiprocessors);
    device_.reset();
    CudaShim::Reset({.devices = {{.num_multiprocessors = num_multiprocessors}}});
    MakeWith({.small_m = true});
    Random random(50);
    std::vector<HostTensor> results;
    for (const std::optional<kernels::WeightType> type :
         {std::optional<kernels::WeightType>(), std::optional(kernels::WeightType::kInt8),
          std::optional(kernels::WeightType::kInt4), std::optional(kernels::WeightType::kFp8)}) {
      for (const int64_t rows : {kRows, type.has_value() ? int64_t{40} : kRows}) {
        const HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, kK, random);
        const DeviceTensor in(b(), x);
        std::vector<std::unique_ptr<DeviceTensor>> outs, dense;
        std::vector<std::unique_ptr<DeviceWeight>> packed;
        std::vector<kernels::Product> products;
        for (const int64_t columns : kColumns) {
          const HostTensor w = HostTensor::Of(kernels::DType::kBF16, columns, kK, random);
          outs.push_back(std::make_unique<DeviceTensor>(
              b(), HostTensor::Poisoned(kernels::DType::kF32, rows, columns)));
          if (type.has_value()) {
            packed.push_back(
                std::make_unique<DeviceWeight>(b(), *type, w, std::vector<int64_t>{0, kK}));
            products.push_back({*outs.back(), packed.back()->weight(), kernels::Tensor()});
          } else {
            dense.push_back(std::make_unique<DeviceTensor>(b(), w));
            products.push_back({*outs.back(), dense.back()->weight(), kernels::Tensor()});
          }
        }
        const int before = CudaShim::NumCalls(0, "SmallMMatMul");
        b().ops().matmul.MatMuls(in, products);
        EXPECT_EQ(CudaShim::NumCalls(0, "SmallMMatMul"), before + 1);
        for (const auto& out : outs) results.push_back(out->Get());
      }
    }
    if (first.empty()) first = results;
    ASSERT_EQ(results.size(), first.size());
    for (size_t i = 0; i < results.size(); ++i) {
      ExpectWritten(results[i]);
      EXPECT_TRUE(results[i].SameBits(first[i])) << i;
    }
  }
}

TEST_F(CudaDeviceTest, QuantisedProductsOfOneXAreOneLaunch) {
  const int before = CudaShim::NumCalls(0, "SmallMMatMul");
  CheckJoinedQuantised(b(), {3}, {40, 8, 33}, 144, kernels::WeightType::kInt8);
  CheckJoinedQuantised(b(), {20}, {16, 16}, 144, kernels::WeightType::kInt4);
  // Each product is also computed by itself, to compare with, for each type of out.
  EXPECT_EQ(CudaShim::NumCalls(0, "SmallMMatMul") - before, 2 * (1 + 3) + 2 * (1 + 2));
}

TEST_F(CudaDeviceTest, QuantisedProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckQuantised(b(), {1}, 40, {0, 320});
    CheckQuantised(b(), {5}, 7, {0, 33});
    CheckQuantised(b(), {19}, 33, {0, 48, 96, 144, 192, 240, 288, 336, 384});
    CheckQuantised(b(), {3}, 16, {0, 0, 130, 131, 131, 200, 200, 200, 200});
    CheckQuantised(b(), {70}, 24, {0, 136, 136, 144, 144},
                   /*wide_from=*/deterministic ? kAll : 0);
    CheckExactProducts(b(), {5}, 35, {0, 300, 300, 1304, 1304});
    CheckExactProducts(b(), {66}, 9, {0, 1111});
  }
}

// Slices of columns are as large as scratch, or the limit, allows: 16, 16 and 8.
TEST_F(CudaDeviceTest, QuantisedProductsOfManyRowsAreOfBf16) {
  constexpr size_t kBytes = 72 * 2 * 20;
  const auto devices = kernels::cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  for (const kernels::cuda::CudaDeviceOptions& options :
       {kernels::cuda::CudaDeviceOptions{.device = devices->front(), .scratch_bytes = kBytes},
        kernels::cuda::CudaDeviceOptions{.device = devices->front(), .slice_bytes = kBytes}}) {
    device_.reset();
    CudaShim::Reset({});
    auto device = kernels::cuda::CudaDevice::Make(options);
    ASSERT_TRUE(device.ok());
    device_ = *std::move(device);
    CheckQuantised(b(), {65}, 37, {0, 72}, /*wide_from=*/0);
    // int8 and int4 each have a product in splits, and one without a bias for each type of `out`.
    EXPECT_EQ(CudaShim::NumCalls(0, "Dequantise"), 2 * 3 * 3);
  }
}

TEST_F(CudaDeviceTest, DeterministicQuantisedProductsDoNotDependOnTheRows) {
  Make(true);
  CheckQuantisedRows(b(), {kernels::WeightType::kInt8, kernels::WeightType::kInt4}, 40, 1200,
                     {1, 2, 16, 17, 33, 70});
}

TEST_F(CudaDeviceTest, ProductsInFp8AreThoseOfTheirNumbers) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    // SmallMMatMul rounds its sums some dozen times.
    const double error = deterministic ? 0x1p-24 : 16 * 0x1p-24;
    CheckFp8(b(), {1}, 16, 64, error);
    CheckFp8(b(), {5}, 7, 33, error);    // nothing is aligned
    CheckFp8(b(), {20}, 36, 72, error);  // rows of f32 are aligned, of bf16 not
    CheckFp8(b(), {3, 65}, 48, 64, error, /*most_checked=*/8);
    CheckStrangeFp8Rows(b());
    if (deterministic) CheckQuantisedRows(b(), {kernels::WeightType::kFp8}, 24, 80, {1, 2, 17, 40});
  }
}

TEST_F(CudaDeviceTest, SmallMProductsInFp8AreOneLaunch) {
  const auto launches = [&](int64_t rows, int64_t columns, int64_t k) {
    const int before = CudaShim::NumCalls(0, "SmallMMatMul");
    CheckFp8(b(), {rows}, columns, k, 32 * 0x1p-24, /*most_checked=*/9);
    return CudaShim::NumCalls(0, "SmallMMatMul") - before;
  };
  // Each type of `out` has a product alone and two at once, and there is one in splits.
  constexpr int kLaunches = 2 + 2 + 1;
  MakeWith({.small_m = true});
  EXPECT_EQ(launches(1, 72, 1100), kLaunches);
  EXPECT_EQ(launches(16, 40, 600), kLaunches);
  EXPECT_EQ(launches(32, 600, 80), kLaunches);
  EXPECT_EQ(launches(64, 33, 600), kLaunches);
  EXPECT_EQ(launches(65, 40, 80), 0);
  Make(/*deterministic=*/false);
  EXPECT_EQ(launches(16, 40, 80), kLaunches);
  EXPECT_EQ(launches(17, 40, 80), 0);
  MakeWith({.options = {.deterministic = true}, .small_m = true});
  EXPECT_EQ(launches(1, 40, 80), 0);
}

TEST(E4M3PairTest, PairsHaveTheValuesOfTheirNumbers) {
  for (uint32_t two = 0; two < 0x10000; ++two) {
    const uint32_t pair = kernels::cuda::WidenE4M3Pair(two | 0xabcd0000u, false);
    EXPECT_EQ(kernels::cuda::WidenE4M3Pair(two << 16 | 0xabcd, true), pair);
    for (const int i : {0, 1}) {
      const float expected = kernels::cuda::FromE4M3(static_cast<uint8_t>(two >> 8 * i));
      const float got = kernels::FromF16(static_cast<uint16_t>(pair >> 16 * i));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(got)) << two;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << two;
      }
    }
  }
}

TEST_F(CudaDeviceTest, ProductsInFp8TakeTheRowsThatAnOpPrepared) {
  for (const auto& [rows, k, inner] :
       std::vector<std::array<int64_t, 3>>{{1, 64, 48}, {5, 33, 21}, {3, 16, 5000}}) {
    Make(/*deterministic=*/false);
    const int before = CudaShim::NumCalls(0, "QuantiseRows");
    CheckFp8BehindOps(b(), rows, k, inner);
    // Six copies, two changed rows and x once; and for each of two gates three times x and one
    // copy.
    EXPECT_EQ(CudaShim::NumCalls(0, "QuantiseRows") - before, 6 + 2 + 1 + 2 * (3 + 1));
  }
}

// A thread takes more of many rows, and takes the chunks of a row that is too long for registers
// twice.
TEST_F(CudaDeviceTest, ProductsInFp8TakeManyRowsAndLongOnes) {
  Make(/*deterministic=*/false);
  CheckFp8BehindOps(b(), 256, 8, 1032);
  CheckFp8(b(), {256}, 16, 1112, 0x1p-24, /*most_checked=*/8);
  CheckFp8BehindOps(b(), 1, 8200, 16);
  CheckFp8(b(), {1}, 16, 65544, 0x1p-24);
}

// Scratch holds fewer rows, or these without the product's sums: prepared rows are taken in slices.
TEST_F(CudaDeviceTest, ProductsInFp8TakePreparedRowsInSlicesWhereScratchIsShort) {
  for (const size_t scratch_bytes : {size_t{1000}, size_t{2000}}) {
    for (const bool small_m : {false, true}) {
      MakeWith({.scratch_bytes = scratch_bytes, .small_m = small_m});
      const int before = CudaShim::NumCalls(0, "SiluMulInFp8");
      CheckFp8BehindOps(b(), 37, 48, 24);
      EXPECT_EQ(CudaShim::NumCalls(0, "SiluMulInFp8"), before + 1);
    }
  }
  MakeWith({.scratch_bytes = 600});
  CheckFp8BehindOps(b(), 1, 64, 100);
}

// Slices of rows are as large as scratch allows.
TEST_F(CudaDeviceTest, ProductsInFp8OfManyRowsAreThoseOfTheirNumbers) {
  for (const bool small_m : {false, true}) {
    MakeWith({.scratch_bytes = 2000, .small_m = small_m});
    CheckFp8(b(), {37}, 24, 48, small_m ? 16 * 0x1p-24 : 0x1p-24);
    CheckFp8(b(), {37}, 23, 47, small_m ? 16 * 0x1p-24 : 0x1p-24);
  }
}

// cuBLASLt has no algorithm with row scales for some shapes and numbers of rows. Scales are then
// applied later.
TEST_F(CudaDeviceTest, ProductsInFp8WithoutAnAlgorithmOfScalesAreThoseOfTheirNumbers) {
  for (const bool finds_none : {false, true}) {
    for (const bool of_bf16_alone : {false, true}) {
      for (const bool deterministic : {false, true}) {
        device_.reset();
        CudaShim::Reset({.workspace_of =
                             [=](const ShimProduct& product) {
                               const bool is_refused = product.has_scales && product.rows <= 20 &&
                                                       !(of_bf16_alone && product.is_f32);
                               return is_refused ? -1 : 0;
                             },
                         .finds_none = finds_none});
        MakeWith({.options = {.deterministic = deterministic}, .small_m = false});
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

// Of the slices of rows only the last has no algorithm with row scales.
TEST_F(CudaDeviceTest, ProductsInFp8OfManyRowsMayHaveNoAlgorithmOfScales) {
  const auto devices = kernels::cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  device_.reset();
  CudaShim::Reset({.workspace_of = [](const ShimProduct& product) {
    return product.has_scales && product.rows < 4 ? -1 : 0;
  }});
  auto device = kernels::cuda::CudaDevice::Make(
      {.device = devices->front(), .scratch_bytes = 1500, .small_m = false});
  ASSERT_TRUE(device.ok());
  device_ = *std::move(device);
  CheckFp8(b(), {37}, 24, 48, 4 * 0x1p-24);
  EXPECT_GT(CudaShim::NumCalls(0, "ScaleRows"), 0);
}

// Scratch for these products exists before they are captured.
TEST_F(CudaDeviceTest, ProductsInFp8WithoutAnAlgorithmOfScalesAreCaptured) {
  const auto devices = kernels::cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  device_.reset();
  CudaShim::Reset(
      {.workspace_of = [](const ShimProduct& product) { return product.has_scales ? -1 : 0; }});
  auto device = kernels::cuda::CudaDevice::Make(
      {.device = devices->front(), .scratch_bytes = 16, .small_m = false});
  ASSERT_TRUE(device.ok());
  device_ = *std::move(device);
  Random random(43);
  const DeviceTensor x(b(), HostTensor::Of(kernels::DType::kBF16, 3, 32, random));
  const DeviceWeight w(b(), kernels::WeightType::kFp8,
                       HostTensor::Of(kernels::DType::kBF16, 48, 32, random), {0, 32});
  std::vector<HostTensor> results;
  for (int i = 0; i < 3; ++i) {
    const DeviceTensor out(b(), HostTensor::Poisoned(kernels::DType::kBF16, 3, 48));
    const int64_t key[] = {0};
    b().DropGraphs();
    for (int repeat = 0; repeat < 1 + i; ++repeat) {
      EXPECT_EQ(b().RunGraph(key,
                             [&] {
                               b().ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
                               return absl::OkStatus();
                             }),
                absl::OkStatus());
    }
    results.push_back(out.Get());
    EXPECT_TRUE(results.back().SameBits(results.front()));
  }
  b().DropGraphs();
}

}  // namespace
}  // namespace continuo::testing
