// SPDX-License-Identifier: Apache-2.0
// CudaBackend's ops over the shim: the kernels thread by thread, cuBLASLt as a loop.
#include "kernels/backend.h"

#include <algorithm>
#include <array>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/backend_cases.h"
#include "tests/kernels/cuda/expert_cases.h"
#include "tests/kernels/cuda/fp8_cases.h"
#include "tests/kernels/cuda/joined_cases.h"
#include "tests/kernels/cuda/quantised_cases.h"
#include "tests/kernels/cuda/sampling_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CudaBackendTest : public ::testing::Test {
 protected:
  CudaBackendTest() {
    CudaShim::Reset({});
    Make(false);
  }
  ~CudaBackendTest() override {
    backend_.reset();
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }
  void Make(bool deterministic) {
    auto backend = MakeBackend({.device = "cuda:0", .deterministic = deterministic});
    CONTINUO_CHECK(backend.ok());
    backend_ = *std::move(backend);
  }
  // Of device 0, otherwise as told.
  void MakeWith(cuda::CudaBackendOptions options) {
    const auto devices = cuda::FindDevices(std::array{0});
    CONTINUO_CHECK(devices.ok());
    options.device = devices->front();
    auto backend = cuda::CudaBackend::Make(options);
    CONTINUO_CHECK(backend.ok());
    backend_ = *std::move(backend);
  }
  Backend& b() { return *backend_; }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> cpu_ = MakeCpu("auto");
};

TEST_F(CudaBackendTest, RowsAndElementsAreWhatTheReferenceSays) {
  CheckEmbed(b());
  CheckF16(b());
  CheckRmsNorm(b(), {1, 5, 64, 257, 1024});
  CheckAddSum(b());
  CheckRope(b());
  CheckElements(b());
  CheckGatherRows(b());
}

TEST_F(CudaBackendTest, JoinedOpsHaveTheBitsOfTheSingleOnes) {
  CheckAddSumNorm(b(), {1, 9, 64, 520, 1024, 2056});
  CheckRotateAndWriteKv(b());
}

TEST_F(CudaBackendTest, ProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckMatMul(b(), 1, 7, 64);
    CheckMatMul(b(), 5, 64, 33);
    CheckMatMul(b(), 130, 24, 16);
    CheckOnes(b(), 1, 8, 11528);
  }
}

TEST_F(CudaBackendTest, ProductsOfFewRowsAreWhatTheReferenceSaysEitherWay) {
  for (const bool few_rows : {false, true}) {
    MakeWith({.few_rows = few_rows});
    const int before = CudaShim::NumCalls(0, "FewRowsMatMul");
    CheckMatMul(b(), 1, 7, 64);
    CheckMatMul(b(), 16, 64, 33);
    CheckMatMul(b(), 5, 40, 200);
    CheckJoinedProducts(b(), 3, {40, 8, 33}, 72);
    CheckJoinedProducts(b(), 16, {64, 64}, 136);
    EXPECT_EQ(CudaShim::NumCalls(0, "FewRowsMatMul") > before, few_rows);
    const int between = CudaShim::NumCalls(0, "FewRowsMatMul");
    CheckMatMul(b(), 17, 24, 16);  // not few
    EXPECT_EQ(CudaShim::NumCalls(0, "FewRowsMatMul"), between);
  }
}

TEST_F(CudaBackendTest, WhichWayProductsOfFewRowsGoIsMeasuredOnce) {
  const auto launches = [&](int64_t rows, int64_t k) {
    const int before = CudaShim::NumCalls(0, "FewRowsMatMul");
    CheckJoinedProducts(b(), rows, {8, 8}, k);
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
  const HostTensor x(DType::kBF16, 3, 64), w(DType::kBF16, 8, 64);
  const DeviceTensor in(b(), x), weights(b(), w), out(b(), HostTensor(DType::kF32, 3, 8));
  b().MatMul(out, in, weights.weight(), Tensor());
  EXPECT_EQ(CudaShim::NumCalls(0, "FewRowsMatMul"), before);
}

TEST_F(CudaBackendTest, QuantisedProductsOfOneXAreOneLaunch) {
  const int before = CudaShim::NumCalls(0, "FewRowsMatMul");
  CheckJoinedQuantised(b(), 3, {40, 8, 33}, 144, WeightType::kInt8);
  CheckJoinedQuantised(b(), 20, {16, 16}, 144, WeightType::kInt4);
  // And each alone, to compare with, for each type of out.
  EXPECT_EQ(CudaShim::NumCalls(0, "FewRowsMatMul") - before, 2 * (1 + 3) + 2 * (1 + 2));
}

TEST_F(CudaBackendTest, QuantisedProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckQuantised(b(), *cpu_, 1, 40, {0, 320});
    CheckQuantised(b(), *cpu_, 5, 7, {0, 33});
    CheckQuantised(b(), *cpu_, 19, 33, {0, 48, 96, 144, 192, 240, 288, 336, 384});
    CheckQuantised(b(), *cpu_, 3, 16, {0, 0, 130, 131, 131, 200});
    CheckQuantised(b(), *cpu_, 70, 24, {0, 136, 136, 144}, /*wide=*/!deterministic);
    CheckExactProducts(b(), 5, 35, {0, 300, 300, 1304});
    CheckExactProducts(b(), 66, 9, {0, 1111});
  }
}

// In slices of columns that scratch, or a slice's limit, holds: 16, 16 and 8.
TEST_F(CudaBackendTest, QuantisedProductsOfManyRowsAreOfBf16) {
  constexpr size_t kBytes = 72 * 2 * 20;
  const auto devices = cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  for (const cuda::CudaBackendOptions& options :
       {cuda::CudaBackendOptions{.device = devices->front(), .scratch_bytes = kBytes},
        cuda::CudaBackendOptions{.device = devices->front(), .slice_bytes = kBytes}}) {
    backend_.reset();
    CudaShim::Reset({});
    auto backend = cuda::CudaBackend::Make(options);
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    CheckQuantised(b(), *cpu_, 65, 37, {0, 72}, /*wide=*/true);
    // Of int8 and int4: a product in pieces, and of each type of `out` one that has no bias.
    EXPECT_EQ(CudaShim::NumCalls(0, "Dequantise"), 2 * 3 * 3);
  }
}

TEST_F(CudaBackendTest, DeterministicQuantisedProductsDoNotDependOnTheRows) {
  Make(true);
  CheckQuantisedRows(b(), {WeightType::kInt8, WeightType::kInt4}, 40, 1200, {1, 2, 16, 17, 33, 70});
}

TEST_F(CudaBackendTest, KeysAndValuesAreWrittenAsTheCpuDoes) { CheckWriteKv(b(), *cpu_); }

TEST_F(CudaBackendTest, ProductsInFp8AreThoseOfTheirNumbers) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFp8(b(), 1, 16, 64, 0x1p-24);
    CheckFp8(b(), 5, 7, 33, 0x1p-24);    // nothing is aligned
    CheckFp8(b(), 20, 36, 72, 0x1p-24);  // rows of f32 are, of bf16 not
    CheckFp8(b(), 3, 48, 64, 0x1p-24, /*most_checked=*/8);
    CheckStrangeFp8Rows(b());
    if (deterministic) CheckQuantisedRows(b(), {WeightType::kFp8}, 24, 80, {1, 2, 17, 40});
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
  CheckFp8(b(), 37, 24, 48, 0x1p-24);
  CheckFp8(b(), 37, 23, 47, 0x1p-24);
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
        for (const int64_t rows : {1, 20, 21}) CheckFp8(b(), rows, 16, 64, 4 * 0x1p-24);
        CheckFp8(b(), 5, 7, 33, 4 * 0x1p-24);
        CheckStrangeFp8Rows(b());
        if (deterministic) CheckQuantisedRows(b(), {WeightType::kFp8}, 24, 80, {1, 2, 20, 21, 40});
        EXPECT_EQ(CudaShim::NumCalls(0, "ScaleRows") > 0, !of_bf16_alone);
        EXPECT_THAT(CudaShim::Violations(), IsEmpty());
      }
    }
  }
}

// In slices of rows, of which the last alone has no algorithm that takes scales.
TEST_F(CudaBackendTest, ProductsInFp8OfManyRowsMayHaveNoAlgorithmOfScales) {
  const auto devices = cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  backend_.reset();
  CudaShim::Reset({.workspace_of = [](const ShimProduct& product) {
    return product.has_scales && product.rows < 4 ? -1 : 0;
  }});
  auto backend = cuda::CudaBackend::Make({.device = devices->front(), .scratch_bytes = 1500});
  ASSERT_TRUE(backend.ok());
  backend_ = *std::move(backend);
  CheckFp8(b(), 37, 24, 48, 4 * 0x1p-24);
  EXPECT_GT(CudaShim::NumCalls(0, "ScaleRows"), 0);
}

// Scratch for that is there before it is captured.
TEST_F(CudaBackendTest, ProductsInFp8WithoutAnAlgorithmOfScalesAreCaptured) {
  const auto devices = cuda::FindDevices(std::array{0});
  ASSERT_TRUE(devices.ok());
  backend_.reset();
  CudaShim::Reset(
      {.workspace_of = [](const ShimProduct& product) { return product.has_scales ? -1 : 0; }});
  auto backend = cuda::CudaBackend::Make({.device = devices->front(), .scratch_bytes = 16});
  ASSERT_TRUE(backend.ok());
  backend_ = *std::move(backend);
  Random random(43);
  const DeviceTensor x(b(), HostTensor::Of(DType::kBF16, 3, 32, random));
  const DeviceWeight w(b(), WeightType::kFp8, HostTensor::Of(DType::kBF16, 48, 32, random),
                       {0, 32});
  std::vector<HostTensor> results;
  for (int i = 0; i < 3; ++i) {
    const DeviceTensor out(b(), HostTensor::Poisoned(DType::kBF16, 3, 48));
    const int64_t key[] = {0};
    b().ForgetRepeated();
    for (int repeat = 0; repeat < 1 + i; ++repeat) {
      EXPECT_EQ(b().Repeat(key,
                           [&] {
                             b().MatMul(out, x, w.weight(), Tensor());
                             return absl::OkStatus();
                           }),
                absl::OkStatus());
    }
    results.push_back(out.Get());
    EXPECT_TRUE(results.back().SameBits(results.front()));
  }
  b().ForgetRepeated();
}

TEST_F(CudaBackendTest, Fp8WeightsAreForHopperKeysAndValuesForAll) {
  EXPECT_FALSE(cpu_->Keeps(DType::kF8, DType::kBF16));
  EXPECT_TRUE(b().Computes(WeightType::kFp8));
  EXPECT_FALSE(cpu_->Computes(WeightType::kFp8));
  backend_.reset();
  for (const auto& [major, minor] : {std::pair{8, 0}, std::pair{8, 9}, std::pair{10, 0}}) {
    CudaShim::Reset({.devices = {{.major = major, .minor = minor}}});
    Make(false);
    EXPECT_FALSE(b().Computes(WeightType::kFp8)) << major;
    EXPECT_TRUE(b().Computes(WeightType::kInt4)) << major;
    EXPECT_TRUE(b().Computes(WeightType::kF16)) << major;
    for (const DType activations : kActivations) {
      EXPECT_TRUE(b().Keeps(DType::kF8, activations)) << major;
    }
    backend_.reset();
  }
}

TEST_F(CudaBackendTest, Fp16IsForDevicesAndForItself) {
  EXPECT_TRUE(b().Computes(WeightType::kF16));
  EXPECT_FALSE(cpu_->Computes(WeightType::kF16));
  EXPECT_FALSE(cpu_->Keeps(DType::kF16, DType::kF32));
  for (const DType activations : kActivations) {
    for (const DType kept : {DType::kF32, DType::kBF16, DType::kF16}) {
      EXPECT_EQ(b().Keeps(kept, activations),
                (kept == DType::kF16) == (activations == DType::kF16));
    }
  }
}

TEST_F(CudaBackendTest, RowsGoToTheExpertsOfTheCpu) {
  CheckRoutes(b(), *cpu_, 1, 4, 2);
  CheckRoutes(b(), *cpu_, 3, 32, 32);
  CheckRoutes(b(), *cpu_, 37, 40, 8);
  CheckRoutes(b(), *cpu_, 300, 8, 2);
  CheckRoutes(b(), *cpu_, 9, 1024, 10);
}

// Few rows an expert, in launches of 128 experts; sums of one group, of more than a block's warps
// take at once, with a tail and without, aligned and not.
TEST_F(CudaBackendTest, ExpertsOfFewRowsAreThoseOfTheCpu) {
  const auto launches = [](const char* name) {
    const std::vector<ShimCall> calls = CudaShim::Calls();
    return std::count_if(calls.begin(), calls.end(),
                         [&](const ShimCall& call) { return call.function == name; });
  };
  const auto expect_launches = [&](int n, auto check) {
    const auto before = launches("ExpertMatMul");
    check();
    EXPECT_EQ(launches("ExpertMatMul"), before + 2 * n);  // whole and in pieces
  };
  for (const WeightType type : kExpertTypes) {
    expect_launches(1, [&] { CheckExperts(b(), *cpu_, 1, 4, 2, type); });
    expect_launches(1, [&] { CheckExperts(b(), *cpu_, 37, 40, 8, type); });
    expect_launches(1, [&] { CheckExperts(b(), *cpu_, 5, 3, 2, type, {0, 640, 1300}); });
    expect_launches(1, [&] { CheckExperts(b(), *cpu_, 5, 3, 2, type, {0, 128, 128, 640, 1304}); });
    expect_launches(2, [&] { CheckExperts(b(), *cpu_, 20, 150, 3, type); });
  }
  expect_launches(0, [&] { CheckExperts(b(), *cpu_, 37, 4, 2); });
  expect_launches(1, [&] { CheckExperts(b(), *cpu_, 37, 4, 2, WeightType::kInt8); });
  CheckExpertsOfNoColumns(b(), *cpu_);
  Make(true);
  expect_launches(1, [&] { CheckExperts(b(), *cpu_, 90, 2, 1); });
}

// Of many rows an expert, of which the host has to know the numbers.
TEST_F(CudaBackendTest, ALayerOfExpertsWaitsForTheDeviceOnce) {
  MakeWith({.few_rows = false});  // else it waits to measure
  int before = 0, layers = 0;
  const auto waits = [] { return CudaShim::NumCalls(0, "cudaStreamSynchronize"); };
  CheckLayersOfExperts(
      b(), *cpu_, [&] { before = waits(); },
      [&] {
        EXPECT_EQ(waits(), before + 1);
        ++layers;
      });
  EXPECT_EQ(layers, 3);
}

TEST_F(CudaBackendTest, DeterministicExpertsDoNotDependOnTheOtherRows) {
  Make(true);
  for (const WeightType type : kExpertTypes) {
    CheckExpertRows(b(), type, 700, {1, 3, 16, 17, 50});
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

// Long sequences among short ones, chunks behind a prefix, one row each.
TEST_F(CudaBackendTest, AttentionOnTensorCoresIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const auto& [heads, kv_heads, dim] : std::vector<std::array<int, 3>>{
             {4, 1, 64}, {6, 2, 128}, {3, 1, 40}, {2, 1, 256}, {2, 2, 96}}) {
      for (const int window : {0, 70}) {
        for (const DType type : kNumbers) {
          CheckAttention(b(), {{1, 1}, {5, 5}, {129, 3}, {200, 37}},
                         Heads(heads, kv_heads, dim, window), type, 16);
          CheckAttention(b(), {{300, 1}, {7, 1}, {64, 1}}, Heads(heads, kv_heads, dim, window),
                         type, 7);
          if (HasFatalFailure()) return;
        }
      }
    }
    AttentionParams capped = Heads(4, 2, 64, 70);
    capped.softcap = 5;
    for (const DType type : kNumbers) {
      CheckAttention(b(), {{130, 40}, {90, 1}}, capped, type, 16);
      CheckAttention(b(), {{70, 9}}, Heads(70, 1, 16), type, 16);
      CheckAttention(b(), {{130, 1}, {3, 1}}, Heads(16, 1, 64), type, 16);
    }
  }
}

// Keys and values of bytes likewise; nothing goes the way of other types.
TEST_F(CudaBackendTest, AttentionOverBytesOnTensorCoresIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const auto& [heads, kv_heads, dim] : std::vector<std::array<int, 3>>{
             {4, 1, 64}, {6, 2, 128}, {3, 1, 40}, {2, 1, 256}, {2, 2, 96}, {2, 1, 8}}) {
      for (const int window : {0, 70}) {
        const AttentionParams params = Heads(heads, kv_heads, dim, window);
        CheckAttentionOverBytes(b(), {{1, 1}, {5, 5}, {129, 3}, {200, 37}}, params, {16});
        CheckAttentionOverBytes(b(), {{300, 1}, {7, 1}, {64, 1}}, params, {7, 4});
        if (HasFatalFailure()) return;
      }
    }
    AttentionParams capped = Heads(4, 2, 64, 70);
    capped.softcap = 5;
    CheckAttentionOverBytes(b(), {{130, 40}, {90, 1}}, capped, {16, 2});
    CheckAttentionOverBytes(b(), {{70, 9}}, Heads(70, 1, 16), {16});
    CheckAttentionOverBytes(b(), {{130, 1}, {3, 1}}, Heads(16, 1, 64), {16});
    CheckAttentionOverBytes(b(), {{1100, 1}}, Heads(4, 2, 64), {16});  // in splits
    CheckAttentionOverBytes(b(), {{1100, 3}, {5, 1}}, Heads(4, 2, 64, 600), {5});
  }
  const std::vector<ShimCall> calls = CudaShim::Calls();
  EXPECT_THAT(calls, ::testing::Contains(ShimCall{0, "MergeSplits", 1}));
  for (const ShimCall& call : calls) EXPECT_NE(call.function, "SpanAttention");
}

TEST_F(CudaBackendTest, AttentionIsSplitWhereTilesAreFew) {
  // 8 multiprocessors take 24 blocks at once, of which 2 key-value heads and one tile are 2.
  CheckAttention(b(), {{1100, 1}}, Heads(4, 2, 64), DType::kBF16, 16);
  EXPECT_THAT(CudaShim::Calls(), ::testing::Contains(ShimCall{0, "MergeSplits", 1}));
  for (const DType type : kNumbers) {
    CheckAttention(b(), {{1100, 3}, {5, 1}}, Heads(4, 2, 64, 600), type, 16);
  }
}

TEST_F(CudaBackendTest, AttentionOfPromptsByWarpgroupsIsWhatTheReferenceSays) {
  MakeWith({.warpgroup_attention = true});
  CheckPromptAttention(b());
  EXPECT_EQ(CudaShim::NumCalls(0, "TileAttention"), 0);
  EXPECT_THAT(CudaShim::Calls(), ::testing::Contains(ShimCall{0, "MergeSplits", 1}));
  // Others than they are for.
  const int before = CudaShim::NumCalls(0, "PromptAttention");
  CheckAttention(b(), {{130, 1}, {3, 1}}, Heads(4, 2, 64), DType::kBF16, 16);
  CheckAttention(b(), {{40, 9}}, Heads(4, 2, 256), DType::kBF16, 16);
  CheckAttention(b(), {{40, 9}}, Heads(4, 2, 64), DType::kBF16, 16, DType::kF8);
  MakeWith({.deterministic = true, .warpgroup_attention = true});
  CheckAttention(b(), {{40, 9}}, Heads(4, 2, 64), DType::kBF16, 16);
  EXPECT_EQ(CudaShim::NumCalls(0, "PromptAttention"), before);
}

TEST_F(CudaBackendTest, SequencesOfOneRowHaveSmallTilesBesidePromptsToo) {
  const auto launches = [&](std::vector<PagedCase::Sequence> sequences, bool deterministic) {
    Make(deterministic);
    const int before = CudaShim::NumCalls(0, "TileAttention");
    CheckAttention(b(), std::move(sequences), Heads(4, 2, 64), DType::kBF16, 16);
    return CudaShim::NumCalls(0, "TileAttention") - before;
  };
  EXPECT_EQ(launches({{130, 1}, {3, 1}}, false), 1);
  EXPECT_EQ(launches({{130, 1}, {3, 1}, {90, 40}}, false), 2);
  EXPECT_EQ(launches({{90, 40}, {3, 1}}, false), 1);  // only the first ones are known to have one
  EXPECT_EQ(launches({{130, 1}, {3, 1}, {90, 40}}, true), 1);
}

TEST_F(CudaBackendTest, AttentionOfOtherTypesIsWhatTheReferenceSays) {
  for (const int window : {0, 70}) {
    for (const auto& [heads, kv_heads, dim] :
         std::vector<std::array<int, 3>>{{1, 1, 1}, {4, 2, 20}, {3, 1, 33}}) {
      CheckAttention(b(), {{1, 1}, {5, 5}, {128, 1}, {129, 3}, {200, 7}},
                     Heads(heads, kv_heads, dim, window), DType::kF32, 7);
      for (const DType kept : {DType::kI8, DType::kF8}) {
        for (const DType type : kActivations) {
          CheckAttention(b(), {{129, 3}, {1, 1}}, Heads(heads, kv_heads, dim, window), type, 16,
                         kept);
        }
      }
      for (const DType type : kNumbers) {
        CheckAttention(b(), {{129, 3}}, Heads(heads, kv_heads, 33, window), type, 16);
      }
    }
  }
  AttentionParams capped = Heads(6, 2, 20, 70);
  capped.softcap = 5;
  CheckAttention(b(), {{130, 3}}, capped, DType::kF32, 16);
}

TEST_F(CudaBackendTest, AttentionOfAFewShapesIsWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFewShapes(b());
  }
}

TEST_F(CudaBackendTest, StrangeKeysAndValuesReachTheRowsThatSeeThemAlone) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const DType type : kNumbers) CheckStrangeKeysAndValues(b(), type);
  }
}

TEST_F(CudaBackendTest, EveryByteOfTheCacheStandsForItsNumber) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const DType type : kNumbers) {
      for (const float scale : {1.0f, 0x1.02p-20f}) CheckEveryByte(b(), type, scale);
    }
  }
}

TEST_F(CudaBackendTest, DeterministicAttentionDoesNotDependOnTheStep) {
  Make(true);
  CheckDeterministicAttention(b());
}

TEST_F(CudaBackendTest, AFailedCallIsToldByEverySynchronizeAndEndsTheWork) {
  const HostTensor x(DType::kF32, 4, 8);
  const DeviceTensor a(b(), x), c(b(), x), gain(b(), HostTensor(DType::kF32, 1, 8));
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
  const DeviceTensor none(b(), HostTensor(DType::kBF16, 0, 8));
  const DeviceTensor gain(b(), HostTensor(DType::kF32, 1, 8));
  const DeviceTensor ids(b(), HostTensor::OfInts({}));
  b().RmsNorm(none, none, gain, 1e-5f);
  b().SiluMul(none, none, none);
  const DeviceTensor no_sum(b(), HostTensor(DType::kF32, 0, 8));
  b().AddSum(none, no_sum, Tensor());
  b().AddSumNorm(none, none, no_sum, Tensor(), gain, 1e-5f);
  EXPECT_FALSE(b().DrawTokens({}, ids, no_sum, {}, {}));
  b().TakeTokens(ids, ids);
  b().GatherRows(none, none, ids);
  b().MatMul(none, none, DeviceTensor(b(), HostTensor(DType::kBF16, 8, 8)).weight(), Tensor());
  EXPECT_TRUE(b().Synchronize().ok());
}

}  // namespace
}  // namespace continuo::testing
