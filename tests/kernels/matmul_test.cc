// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {
namespace {

using MatMulTest = IsaTest;
INSTANTIATE_FOR_ISAS(MatMulTest);

constexpr kernels::DType kActivations[] = {kernels::DType::kF32, kernels::DType::kBF16};
constexpr kernels::DType kWeights[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                       kernels::DType::kF16};

// f32 sums of k products in at least 8 lanes, then a tree and perhaps a bias: each addition and
// product may lose half an ulp of what it holds, which Σ|x·w| bounds.
Matrix SumBound(const Matrix& x, const Matrix& w, int64_t rows, int64_t columns, int64_t k,
                int64_t num_splits = 1) {
  Matrix ax = x, aw = w;
  for (double& v : ax) v = std::fabs(v);
  for (double& v : aw) v = std::fabs(v);
  Matrix bound = ReferenceMatMul(ax, aw, {}, rows, columns, k);
  const double steps = static_cast<double>(k) / 8 + 1 + 4 + std::log2(num_splits) + 2;
  for (double& v : bound) v = (v + 2) * (steps + 1) * 0x1p-24;
  return bound;
}

TEST_P(MatMulTest, MatchesReferenceAtOddSizes) {
  Random random(11);
  for (const kernels::DType type : kActivations) {
    for (const kernels::DType weight_type : kWeights) {
      for (const auto& [rows, columns, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                                {1, 9, 31},
                                                                                {2, 7, 32},
                                                                                {3, 25, 33},
                                                                                {4, 24, 64},
                                                                                {5, 50, 172},
                                                                                {7, 13, 5},
                                                                                {16, 30, 96},
                                                                                {17, 49, 100},
                                                                                {70, 26, 40}}) {
        for (const bool with_bias : {false, true}) {
          const HostTensor x = HostTensor::Of(type, rows, k, random);
          const HostTensor w = HostTensor::Of(weight_type, columns, k, random);
          const HostTensor bias =
              with_bias ? HostTensor::Of(kernels::DType::kF32, 1, columns, random) : HostTensor();
          const Matrix expected = ReferenceMatMul(
              x.matrix(), w.matrix(), with_bias ? bias.matrix() : Matrix(), rows, columns, k);
          const Matrix bound = SumBound(x.matrix(), w.matrix(), rows, columns, k);
          for (const kernels::DType out_type : kActivations) {
            HostTensor out = HostTensor::Poisoned(out_type, rows, columns);
            ops().matmul.MatMul(out, x, w.weight(), with_bias ? bias.tensor() : kernels::Tensor());
            SCOPED_TRACE(::testing::Message()
                         << rows << "x" << columns << "x" << k << " " << NameOf(type) << " "
                         << NameOf(weight_type) << " to " << NameOf(out_type));
            ExpectNear(out, expected, RoundingOf(out_type), bound);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(MatMulTest, ManyRowsGoThroughInSlabs) {
  Random random(12);
  const int64_t rows = 1030, columns = 5, k = 35;
  const HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, k, random);
  const HostTensor w = HostTensor::Of(kernels::DType::kBF16, columns, k, random);
  HostTensor out = HostTensor::Poisoned(kernels::DType::kBF16, rows, columns);
  ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
  ExpectNear(out, ReferenceMatMul(x.matrix(), w.matrix(), {}, rows, columns, k),
             RoundingOf(kernels::DType::kBF16), SumBound(x.matrix(), w.matrix(), rows, columns, k));
}

TEST_P(MatMulTest, SplitsMatchReference) {
  Random random(13);
  const std::vector<std::vector<int64_t>> cuts = {
      {0, 172},
      {0, 80, 172},
      {0, 21, 43, 64, 86, 107, 129, 150, 172},
      {0, 0, 0, 1, 1, 100, 172, 172, 172},  // some empty
  };
  for (const kernels::DType type : kActivations) {
    for (const kernels::DType weight_type : kWeights) {
      const HostTensor x = HostTensor::Of(type, 5, 172, random);
      const HostTensor w = HostTensor::Of(weight_type, 31, 172, random);
      for (const std::vector<int64_t>& cut : cuts) {
        HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 5, 31);
        ops().matmul.MatMulSplitK(out, x, w.weight(), cut);
        ExpectNear(out, ReferenceMatMul(x.matrix(), w.matrix(), {}, 5, 31, 172), 0x1p-24,
                   SumBound(x.matrix(), w.matrix(), 5, 31, 172, 8));
      }
    }
  }
}

TEST_P(MatMulTest, ASumOverNothingIsZero) {
  for (const kernels::DType type : kActivations) {
    const HostTensor x(type, 3, 0), w(kernels::DType::kBF16, 4, 0);
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 3, 4);
    ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
    EXPECT_EQ(out.matrix(), Matrix(12, 0.0));
    out = HostTensor::Poisoned(kernels::DType::kF32, 3, 4);
    ops().matmul.MatMulSplitK(out, x, w.weight(), std::vector<int64_t>{0, 0, 0});
    EXPECT_EQ(out.matrix(), Matrix(12, 0.0));
    const HostTensor bias(kernels::DType::kF32, 1, 4);
    ops().matmul.MatMul(out, x, w.weight(), bias);
    EXPECT_EQ(out.matrix(), Matrix(12, 0.0));
  }
}

TEST_P(MatMulTest, NoOutputsAndNoRowsAreFine) {
  const HostTensor x(kernels::DType::kF32, 3, 8), no_weights(kernels::DType::kBF16, 0, 8),
      no_columns(kernels::DType::kF32, 3, 0);
  ops().matmul.MatMul(no_columns, x, no_weights.weight(), kernels::Tensor());
  const HostTensor no_rows(kernels::DType::kF32, 0, 8), w(kernels::DType::kBF16, 4, 8),
      none(kernels::DType::kF32, 0, 4);
  ops().matmul.MatMul(none, no_rows, w.weight(), kernels::Tensor());
}

TEST_P(MatMulTest, WhatLiesBesideARowIsNotRead) {
  // x and w are slices of arrays filled with NaN elsewhere.
  Random random(14);
  const int64_t k = 45;
  for (const kernels::DType type : kActivations) {
    HostTensor x_all = HostTensor::Poisoned(type, 3, k), w_all = HostTensor::Poisoned(type, 4, k);
    for (int64_t i = k; i < 2 * k; ++i) x_all.Set(i, random.Value());
    for (int64_t i = k; i < 3 * k; ++i) w_all.Set(i, random.Value());
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 1, 2);
    ops().matmul.MatMul(out, x_all.Rows(1, 2), {w_all.Rows(1, 3)}, kernels::Tensor());
    const Matrix expected =
        ReferenceMatMul(ToMatrix(x_all.Rows(1, 2)), ToMatrix(w_all.Rows(1, 3)), {}, 1, 2, k);
    ExpectNear(out, expected, 0, {1e-4});
  }
}

}  // namespace
}  // namespace continuo::testing
