// SPDX-License-Identifier: Apache-2.0
// CudaMatMul on a device.
#include "kernels/device.h"

#include <cstring>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/cublaslt_matmul.h"
#include "tests/gpu/device_fixture.h"
#include "tests/gpu/model_sizes.h"
#include "tests/kernels/cuda/cases/fp8_cases.h"
#include "tests/kernels/cuda/cases/joined_cases.h"
#include "tests/kernels/cuda/cases/matmul_cases.h"
#include "tests/kernels/cuda/cases/product_cases.h"
#include "tests/kernels/cuda/cases/quantised_cases.h"

namespace continuo::testing {
namespace {

// This many of a model's rows and columns are compared.
constexpr int64_t kChecked = 32;

TEST_F(GpuDeviceTest, ProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckMatMul(b(), {1}, 7, 64);
    CheckMatMul(b(), {5}, 64, 40);
    CheckMatMul(b(), {1, 16, 70}, 512, 2048);
    CheckExactMatMul(b(), {1, 18}, 33, 200);
    // Where K is split into parts that are no multiples of 64 elements, cuBLASLt may lose the last
    // one.
    for (const int64_t columns : {8, 128}) {
      for (const int64_t rows : {1, 128}) CheckOnes(b(), rows, columns, 11528);
    }
  }
}

void CheckProductsOf(kernels::Device& b, const ModelSizes& m) {
  for (const MatrixSizes& matrix : MatricesOf(m)) {
    CheckMatMul(b, kStepRows, matrix.columns, matrix.k, kChecked);
    CheckExactMatMul(b, kStepRows, matrix.columns, matrix.k, kChecked);
  }
}

TEST_F(GpuDeviceTest, ProductsOfQwenAreWhatTheReferenceSays) { CheckProductsOf(b(), kQwen); }
TEST_F(GpuDeviceTest, ProductsOfLlamaAreWhatTheReferenceSays) { CheckProductsOf(b(), kLlama); }
TEST_F(GpuDeviceTest, ProductsOfAShardAreWhatTheReferenceSays) { CheckProductsOf(b(), kShard); }

TEST_F(GpuDeviceTest, DeterministicProductsOfQwenAreWhatTheReferenceSays) {
  Make(true);
  CheckProductsOf(b(), kQwen);
}
TEST_F(GpuDeviceTest, DeterministicProductsOfLlamaAreWhatTheReferenceSays) {
  Make(true);
  CheckProductsOf(b(), kLlama);
}
TEST_F(GpuDeviceTest, DeterministicProductsOfAShardAreWhatTheReferenceSays) {
  Make(true);
  CheckProductsOf(b(), kShard);
}

TEST_F(GpuDeviceTest, ProductsWithVocabulariesAreWhatTheReferenceSays) {
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    CheckMatMul(b(), {1, 16, 64}, m.vocab, m.hidden, kChecked);
  }
}

TEST_F(GpuDeviceTest, JoinedProductsAreWhatTheReferenceSaysEitherWay) {
  for (const bool small_m : {false, true}) {
    MakeWith({.small_m = small_m});
    CheckJoinedProducts(b(), {1, 7, 16}, {33, 8}, 200);
    for (const ModelSizes& m : kModels) {
      SCOPED_TRACE(m.name);
      CheckJoinedProducts(b(), {1, 7, 16, 17, 128}, {m.q, m.kv, m.kv}, m.hidden, kChecked);
      CheckJoinedProducts(b(), {1, 7, 16, 17, 128}, {m.ffn, m.ffn}, m.hidden, kChecked);
    }
  }
}

TEST_F(GpuDeviceTest, JoinedQuantisedProductsHaveTheBitsOfTheSingleOnes) {
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    for (const ModelSizes& m : kModels) {
      SCOPED_TRACE(m.name);
      CheckJoinedQuantised(b(), {1, 17, 40, 128}, {m.q, m.kv, m.kv}, m.hidden, type);
    }
  }
}

TEST_F(GpuDeviceTest, GatesOfProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckGatedMatMul(b(), {1, 3, 16, 17}, 40, 72);
    CheckGatedMatMul(b(), {5}, 33, 41);
    CheckGatedMatMul(b(), kStepRows, kQwen.ffn, kQwen.hidden, kChecked);
    CheckGatedMatMul(b(), {1, 16, 17, 128}, kShard.ffn, kShard.hidden, kChecked);
  }
}

TEST_F(GpuDeviceTest, GatesOfProductsOfLlamaAreWhatTheReferenceSays) {
  CheckGatedMatMul(b(), kStepRows, kLlama.ffn, kLlama.hidden, kChecked);
  Make(true);
  CheckGatedMatMul(b(), {17}, kLlama.ffn, kLlama.hidden, kChecked);
}

// With --deterministic a row's bits do not depend on the other rows.
TEST_F(GpuDeviceTest, DeterministicProductsDoNotDependOnTheRows) {
  Make(true);
  ASSERT_TRUE(why_.ok());
  Random random(30);
  for (const auto& [type, columns, k] : std::vector<std::tuple<kernels::DType, int64_t, int64_t>>{
           {kernels::DType::kBF16, 1024, 1024},
           {kernels::DType::kBF16, 4096, 4096},
           {kernels::DType::kBF16, 3584, 8192},
           {kernels::DType::kF16, 4096, 4096}}) {
    const HostTensor x = HostTensor::Of(type, 300, k, random);
    const DeviceTensor w(b(), HostTensor::Of(type, columns, k, random));
    const DeviceTensor in(b(), x),
        out(b(), HostTensor::Poisoned(kernels::DType::kF32, 300, columns));
    b().ops().matmul.MatMul(out, in, w.weight(), kernels::Tensor());
    const HostTensor expected = out.Get();
    for (const int64_t rows : {1, 2, 16, 64, 65, 129}) {
      const DeviceTensor part(b(), x.Rows(0, rows));
      const DeviceTensor got(b(), HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b().ops().matmul.MatMul(got, part, w.weight(), kernels::Tensor());
      EXPECT_EQ(std::memcmp(got.Get().bytes().data(), expected.bytes().data(),
                            static_cast<size_t>(rows * columns) * sizeof(float)),
                0)
          << rows << " rows of " << NameOf(type) << " [" << columns << ", " << k << "]";
    }
  }
}

TEST_F(GpuDeviceTest, QuantisedProductsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckQuantised(b(), {5}, 7, {0, 33});
    CheckQuantised(b(), {3}, 16, {0, 0, 130, 131, 200});
    const int64_t wide_from = deterministic ? kAll : 65;
    const std::vector<int64_t> rows = {1, 16, 17, 64, 70, 200};
    CheckQuantised(b(), rows, 520, {0, 4096}, wide_from);
    CheckExactProducts(b(), rows, 1024, {0, 1024, 1025, 1025, 3072});
    CheckExactProducts(b(), rows, 520, {0, 4096});
  }
}

// Returns eight splits of k, or one.
std::vector<int64_t> SplitsOf(const MatrixSizes& matrix) {
  std::vector<int64_t> splits = {0, matrix.k};
  for (int i = 1; matrix.is_split && i < kernels::kNumSplits; ++i) {
    splits.insert(splits.end() - 1, matrix.k / kernels::kNumSplits * i);
  }
  return splits;
}

void CheckQuantisedOf(kernels::Device& b, const ModelSizes& m, int64_t wide_from) {
  for (const MatrixSizes& matrix : MatricesOf(m)) {
    CheckQuantised(b, kStepRows, matrix.columns, SplitsOf(matrix), wide_from, kChecked);
  }
}

TEST_F(GpuDeviceTest, QuantisedProductsOfQwenAreWhatTheReferenceSays) {
  CheckQuantisedOf(b(), kQwen, 65);
  Make(true);
  CheckQuantisedOf(b(), kQwen, kAll);
}
TEST_F(GpuDeviceTest, QuantisedProductsOfLlamaAreWhatTheReferenceSays) {
  CheckQuantisedOf(b(), kLlama, 65);
}
TEST_F(GpuDeviceTest, QuantisedProductsOfAShardAreWhatTheReferenceSays) {
  CheckQuantisedOf(b(), kShard, 65);
}
TEST_F(GpuDeviceTest, DeterministicQuantisedProductsOfLlamaAreWhatTheReferenceSays) {
  Make(true);
  CheckQuantisedOf(b(), kLlama, kAll);
}
TEST_F(GpuDeviceTest, DeterministicQuantisedProductsOfAShardAreWhatTheReferenceSays) {
  Make(true);
  CheckQuantisedOf(b(), kShard, kAll);
}

// No element of a model's matrices is lost.
TEST_F(GpuDeviceTest, QuantisedProductsOfModelsAreExact) {
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    for (const MatrixSizes& matrix : MatricesOf(m)) {
      if (!matrix.is_split) continue;
      CheckExactProducts(b(), kStepRows, matrix.columns, SplitsOf(matrix), kChecked);
    }
  }
}

// This includes the tables of vocabularies.
TEST_F(GpuDeviceTest, QuantisedVocabulariesAreWhatTheReferenceSays) {
  for (const ModelSizes& m : {kQwen, kShard}) {
    SCOPED_TRACE(m.name);
    CheckQuantised(b(), {1, 17}, m.vocab, {0, m.hidden}, kAll, kChecked);
  }
}

TEST_F(GpuDeviceTest, QuantisedProductsOfManyRowsAreMultipliedInSlices) {
  MakeWith({.scratch_bytes = 1024 * 2 * 400});
  CheckQuantised(b(), {130}, 1000, {0, 512, 1024}, /*wide_from=*/65);
}

TEST_F(GpuDeviceTest, DeterministicQuantisedProductsDoNotDependOnTheRows) {
  Make(true);
  CheckQuantisedRows(b(), {kernels::WeightType::kInt8, kernels::WeightType::kInt4}, 1024, 1024,
                     {1, 2, 16, 17, 64, 65, 300});
  CheckQuantisedRows(b(), {kernels::WeightType::kInt8, kernels::WeightType::kInt4}, 4096, 4096,
                     {1, 33, 300});
}

// Sums in e4m3 keep fewer bits than f32 has; Hopper keeps about 14 of a product's.
constexpr double kFp8SumError = 0x1p-11;

TEST_F(GpuDeviceTest, ProductsInFp8AreThoseOfTheirNumbers) {
  if (!b().ops().matmul.SupportsWeights(kernels::WeightType::kFp8))
    GTEST_SKIP() << "skipped: the device has no such products";
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFp8(b(), {1, 16, 64, 300}, 23, 47, kFp8SumError);
    CheckFp8(b(), {1, 16, 64, 300}, 512, 1024, kFp8SumError);
    CheckFp8(b(), {1, 127, 256}, 3072, 9216, kFp8SumError, /*most_checked=*/64);
    for (const int64_t rows : {1, 17, 300}) CheckFp8BehindOps(b(), rows, 1024, 3072);
    CheckFp8BehindOps(b(), 5, 4096, 14336);
    CheckFp8BehindOps(b(), 3, 33, 21);
    CheckStrangeFp8Rows(b());
    if (deterministic)
      CheckQuantisedRows(b(), {kernels::WeightType::kFp8}, 1024, 1024, {1, 2, 16, 65, 300});
  }
  auto fast = kernels::MakeDevice({.device = "cuda:0", .fp8_fast_accumulation = true});
  ASSERT_TRUE(fast.ok()) << fast.status();
  CheckFp8(**fast, {1, 64, 300}, 4096, 14336, 0x1p-9, /*most_checked=*/64);
}

void CheckFp8Of(kernels::Device& b) {
  for (const ModelSizes& m : kModels) {
    SCOPED_TRACE(m.name);
    for (const MatrixSizes& matrix : MatricesOf(m)) {
      CheckFp8(b, kStepRows, matrix.columns, matrix.k, kFp8SumError, kChecked);
    }
  }
}

TEST_F(GpuDeviceTest, ProductsOfModelsInFp8AreThoseOfTheirNumbers) {
  if (!b().ops().matmul.SupportsWeights(kernels::WeightType::kFp8))
    GTEST_SKIP() << "skipped: the device has no such products";
  CheckFp8Of(b());
}

TEST_F(GpuDeviceTest, DeterministicProductsOfModelsInFp8AreThoseOfTheirNumbers) {
  if (!b().ops().matmul.SupportsWeights(kernels::WeightType::kFp8))
    GTEST_SKIP() << "skipped: the device has no such products";
  Make(true);
  CheckFp8Of(b());
}

// All refused shapes are printed at once, also those that a worker would do without.
TEST_F(GpuDeviceTest, ThereAreAlgorithmsForTheShapesOfModels) {
  for (const kernels::cuda::CublasLtOptions& options :
       {kernels::cuda::CublasLtOptions{}, kernels::cuda::CublasLtOptions{.deterministic = true},
        kernels::cuda::CublasLtOptions{.fp8_fast_accumulation = true}}) {
    const std::string how = absl::StrCat("deterministic ", options.deterministic, ", fast ",
                                         options.fp8_fast_accumulation);
    auto matmul = kernels::cuda::CublasLtMatMul::Make(0, options);
    ASSERT_TRUE(matmul.ok()) << matmul.status();
    std::vector<std::string> without_scales;
    const std::vector<std::string> missing = MissingAlgorithms(
        **matmul, b().ops().matmul.SupportsWeights(kernels::WeightType::kFp8), &without_scales);
    EXPECT_EQ(absl::StrJoin(missing, "\n"), "") << how;
    if (without_scales.empty()) continue;
    std::cout << "without scales of rows, " << how << ":\n"
              << absl::StrJoin(without_scales, "\n") << '\n';
  }
}

}  // namespace
}  // namespace continuo::testing
