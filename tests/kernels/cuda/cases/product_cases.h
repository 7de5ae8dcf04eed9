// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/cuda/sampled.h"
#include "tests/kernels/host_tensor.h"

// Dense products of a Device whose memory the host does not read, against their definition in
// float64. The cases run on whatever is linked: the shim or a device. Outputs hold NaN before. Of
// results with more rows or columns than `most_checked`, that many are compared (sampled.h).
namespace continuo::testing {

// Bounds the error of sums of k products of numbers below 2 in some order: each partial sum may be
// rounded.
inline double SumError(int64_t k) {
  return static_cast<double>(k + 2) * 4 * static_cast<double>(k) * 0x1p-24;
}

// A rank may own no columns of K.
inline void CheckNoColumns(kernels::Device& b, int64_t rows, int64_t columns) {
  const DeviceTensor none(b, HostTensor(kernels::DType::kBF16, rows, 0));
  const DeviceTensor no_weights(b, HostTensor(kernels::DType::kBF16, columns, 0));
  const DeviceTensor sum(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
  const int64_t begins[] = {0, 0};
  b.ops().matmul.MatMulSplitK(sum, none, no_weights.weight(), begins);
  for (const double value : sum.Get().matrix()) ASSERT_EQ(value, 0);
}

// Checks each of some numbers of rows.
inline void CheckMatMul(kernels::Device& b, const std::vector<int64_t>& row_counts, int64_t columns,
                        int64_t k, int64_t most_checked = kAll) {
  Random random(8);
  for (const kernels::DType type : kActivations) {
    for (const kernels::DType w_type : kActivations) {
      if (w_type != type && (w_type != kernels::DType::kF32 || type != kernels::DType::kBF16))
        continue;
      const HostTensor w = HostTensor::Of(w_type, columns, k, random);
      const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, columns, random);
      const DeviceTensor weights(b, w), biases(b, bias);
      for (const int64_t rows : row_counts) {
        SCOPED_TRACE(::testing::Message() << NameOf(type) << ' ' << rows << " x " << columns
                                          << " x " << k << " of " << NameOf(w_type));
        const HostTensor x = HostTensor::Of(type, rows, k, random);
        const DeviceTensor in(b, x);
        const Sample some(rows, columns, most_checked, random);
        const Matrix some_x = RowsOf(x, some.rows).matrix();
        const Matrix some_w = RowsOf(w, some.columns).matrix();
        const auto product = [&](const Matrix& added) {
          return ReferenceMatMul(some_x, some_w, added, static_cast<int64_t>(some.rows.size()),
                                 static_cast<int64_t>(some.columns.size()), k);
        };
        const Matrix exact = product({}), biased = product(Part(bias, {0}, some.columns).matrix());
        for (const kernels::DType out_type : {kernels::DType::kF32, type}) {
          const DeviceTensor out(b, HostTensor::Poisoned(out_type, rows, columns));
          b.ops().matmul.MatMul(out, in, weights.weight(), kernels::Tensor());
          ExpectNearIn(some, out.Get(), exact, RoundingOf(out_type), {SumError(k)});
          b.ops().matmul.MatMul(out, in, weights.weight(), biases);
          ExpectNearIn(some, out.Get(), biased, RoundingOf(out_type), {SumError(k) + 4 * 0x1p-24});
        }
        const DeviceTensor sum(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
        const int64_t begins[] = {0, k / 2, k / 2, k, k};
        b.ops().matmul.MatMulSplitK(sum, in, weights.weight(), begins);
        ExpectNearIn(some, sum.Get(), exact, 0x1p-24, {SumError(k)});
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  for (const int64_t rows : row_counts) CheckNoColumns(b, rows, columns);
}

// Checks products of integers, whose sums are exact in any order: one element that is lost or read
// twice shows, however long they are.
inline void CheckExactMatMul(kernels::Device& b, const std::vector<int64_t>& row_counts,
                             int64_t columns, int64_t k, int64_t most_checked = kAll) {
  Random random(15);
  for (const kernels::DType type : kActivations) {
    const HostTensor w = SmallIntegers(type, columns, k, 7, random);
    const DeviceTensor weights(b, w);
    for (const int64_t rows : row_counts) {
      SCOPED_TRACE(::testing::Message() << "integers in " << NameOf(type) << ' ' << rows << " x "
                                        << columns << " x " << k);
      const HostTensor x = SmallIntegers(type, rows, k, 3, random);
      const DeviceTensor in(b, x),
          out(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      const Sample some(rows, columns, most_checked, random);
      b.ops().matmul.MatMul(out, in, weights.weight(), kernels::Tensor());
      ExpectNearIn(some, out.Get(),
                   ReferenceMatMul(RowsOf(x, some.rows).matrix(), RowsOf(w, some.columns).matrix(),
                                   {}, static_cast<int64_t>(some.rows.size()),
                                   static_cast<int64_t>(some.columns.size()), k),
                   0, {0});
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// With all ones, a sum that lacks the end of K shows.
inline void CheckOnes(kernels::Device& b, int64_t rows, int64_t columns, int64_t k) {
  const auto ones = [](kernels::DType type, int64_t n, int64_t cols) {
    HostTensor t(type, n, cols);
    for (int64_t i = 0; i < n * cols; ++i) t.Set(i, 1);
    return t;
  };
  for (const kernels::DType type : kActivations) {
    const DeviceTensor x(b, ones(type, rows, k)), w(b, ones(type, columns, k));
    const DeviceTensor out(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
    b.ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
    ExpectNear(out.Get(), Matrix(static_cast<size_t>(rows * columns), static_cast<double>(k)), 0,
               {0});
  }
}

}  // namespace continuo::testing
