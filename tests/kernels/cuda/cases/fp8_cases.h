// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/formats/fp8.h"
#include "kernels/device.h"
#include "services/base/check.h"
#include "tests/kernels/cuda/cases/quantised_cases.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/cuda/sampled.h"
#include "tests/kernels/host_tensor.h"

// fp8 products of a Device whose memory the host does not read. The cases run on whatever is
// linked: the shim or a device.
namespace continuo::testing {

// Returns the values of a matrix's rows in e4m3, with a scale for each row.
inline Matrix InFp8(const HostTensor& matrix) {
  const int64_t rows = matrix.tensor().rows(), k = matrix.tensor().cols();
  Matrix values = matrix.matrix();
  for (int64_t r = 0; r < rows; ++r) {
    float largest = 0;
    for (int64_t i = 0; i < k; ++i) {
      largest = std::max(largest, std::fabs(static_cast<float>(values[r * k + i])));
    }
    const kernels::cuda::Fp8Scale scale = kernels::cuda::Fp8ScaleOf(largest, 0);
    for (int64_t i = 0; i < k; ++i) {
      double& value = values[r * k + i];
      value = static_cast<double>(kernels::cuda::FromE4M3(
                  kernels::cuda::ToE4M3(static_cast<float>(value) * scale.factor))) *
              static_cast<double>(scale.scale);
    }
  }
  return values;
}

// sum_error is the loss of a device's sums of e4m3 products, relative to the sum of their
// magnitudes. Of more than `most_checked` rows or columns, that many are compared with the
// reference.
inline void CheckFp8(kernels::Device& b, const std::vector<int64_t>& row_counts, int64_t columns,
                     int64_t k, double sum_error, int64_t most_checked = kAll) {
  Random random(41);
  const HostTensor w = HostTensor::Of(kernels::DType::kBF16, columns, k, random);
  const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, columns, random);
  const DeviceTensor biases(b, bias);
  const DeviceWeight weight(b, kernels::WeightType::kFp8, w, {0, k});
  for (const int64_t rows : row_counts) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << columns << " x " << k);
    HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, k, random, 3);
    if (rows > 1) {
      for (int64_t i = 0; i < k; ++i) x.Set((rows - 1) * k + i, 0);  // a row of zeros
    }
    const DeviceTensor in(b, x);
    const Sample some(rows, columns, most_checked, random);
    const Matrix numbers = InFp8(RowsOf(x, some.rows)), weights = InFp8(RowsOf(w, some.columns));
    Matrix sizes = numbers, weight_sizes = weights;
    for (double& v : sizes) v = std::fabs(v);
    for (double& v : weight_sizes) v = std::fabs(v);
    const auto product = [&](const Matrix& a, const Matrix& of_w, const Matrix& added) {
      return ReferenceMatMul(a, of_w, added, static_cast<int64_t>(some.rows.size()),
                             static_cast<int64_t>(some.columns.size()), k);
    };
    Matrix errors = product(sizes, weight_sizes, {});
    for (double& e : errors) e = e * sum_error + 4 * 0x1p-24;
    const Matrix expected = product(numbers, weights, {});
    const Matrix biased = product(numbers, weights, Part(bias, {0}, some.columns).matrix());
    for (const kernels::DType type : kF32AndBF16) {
      const DeviceTensor out(b, HostTensor::Poisoned(type, rows, columns));
      b.ops().matmul.MatMul(out, in, weight.weight(), kernels::Tensor());
      ExpectNearIn(some, out.Get(), expected, RoundingOf(type), errors);
      // The bits are the same beside other products.
      const DeviceTensor one(b, HostTensor::Poisoned(type, rows, columns));
      const DeviceTensor other(b, HostTensor::Poisoned(type, rows, columns));
      const kernels::Product products[] = {{one, weight.weight(), kernels::Tensor()},
                                           {other, weight.weight(), biases}};
      b.ops().matmul.MatMuls(in, products);
      EXPECT_TRUE(one.Get().SameBits(out.Get()));
      ExpectNearIn(some, other.Get(), biased, RoundingOf(type), errors);
    }
    const DeviceTensor sum(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
    const int64_t splits[] = {0, k / 2, k};
    b.ops().matmul.MatMulSplitK(sum, in, weight.weight(), splits);
    ExpectNearIn(some, sum.Get(), expected, 0x1p-24, errors);
    if (::testing::Test::HasFailure()) return;
  }
}

// Memory for the prepared inputs of fp8 products, [rows, k] at most.
class PreparedMemory {
 public:
  PreparedMemory(kernels::Device& b, int64_t rows, int64_t k) : b_(b) {
    const size_t bytes = b.ops().matmul.PreparedBytes(kernels::WeightFormat::kFp8Rows, rows, k);
    EXPECT_GT(bytes, 0u);
    auto data = b.Allocate(bytes);
    CONTINUO_CHECK(data.ok());
    data_ = *data;
  }
  ~PreparedMemory() { b_.Free(data_); }
  PreparedMemory(const PreparedMemory&) = delete;
  PreparedMemory& operator=(const PreparedMemory&) = delete;
  void* data() const { return data_; }

 private:
  kernels::Device& b_;
  void* data_ = nullptr;
};

// Products of rows that an op has prepared have the bits of products of a copy of these rows. So do
// products of the rows themselves, also after they have changed.
inline void CheckFp8BehindOps(kernels::Device& b, int64_t rows, int64_t k, int64_t inner) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << k << " x " << inner);
  Random random(43);
  const auto random_of = [&](kernels::DType type, int64_t n, int64_t cols) {
    return HostTensor::Of(type, n, cols, random, 3);
  };
  const auto weight_of = [&](int64_t columns, int64_t of_k) {
    return std::make_unique<DeviceWeight>(b, kernels::WeightType::kFp8,
                                          random_of(kernels::DType::kBF16, columns, of_k),
                                          std::vector<int64_t>{0, of_k});
  };
  const auto empty = [&](kernels::DType type, int64_t cols) {
    return std::make_unique<DeviceTensor>(b, HostTensor::Poisoned(type, rows, cols));
  };
  const auto gate_w = weight_of(inner, k), up_w = weight_of(inner, k), down_w = weight_of(k, inner);
  const DeviceTensor dense(b, random_of(kernels::DType::kBF16, inner, k));
  const DeviceTensor x(b, random_of(kernels::DType::kBF16, rows, k)),
      sum(b, random_of(kernels::DType::kF32, rows, k));
  const DeviceTensor gain(b, random_of(kernels::DType::kF32, 1, k)),
      bias(b, random_of(kernels::DType::kF32, 1, inner));
  const HostTensor other = random_of(kernels::DType::kBF16, rows, k);
  const auto h = empty(kernels::DType::kBF16, k), out = empty(kernels::DType::kBF16, inner);
  const auto aside = empty(kernels::DType::kBF16, inner);
  const PreparedMemory memory(b, rows, std::max(k, inner));
  // is_valid: in_between() leaves the op's rows as they are.
  const auto expect_as_of_copy = [&](kernels::Tensor added, bool is_valid, auto in_between) {
    const kernels::MatMulInput prepared =
        b.ops().rows.AddSumNorm(*h, x, sum, kernels::Tensor(), gain, 1e-6f, memory.data());
    EXPECT_NE(prepared.prepared, nullptr);
    in_between();
    b.ops().matmul.MatMul(*out, is_valid ? prepared : kernels::MatMulInput(*h), up_w->weight(),
                          added);
    const HostTensor got = out->Get();
    const DeviceTensor copy(b, h->Get());
    b.ops().matmul.MatMul(*out, copy, up_w->weight(), added);
    EXPECT_TRUE(got.SameBits(out->Get()));
  };
  const auto multiply = [&](kernels::Weight w, kernels::Tensor added) {
    return [&b, &aside, &x, w, added] { b.ops().matmul.MatMul(*aside, x, w, added); };
  };
  expect_as_of_copy(kernels::Tensor(), true, [] {});
  expect_as_of_copy(bias, true, [] {});
  expect_as_of_copy(kernels::Tensor(), false, [&] { b.CopyIn(*h, other.tensor().data); });
  expect_as_of_copy(kernels::Tensor(), false, [&] { b.ops().rows.RmsNorm(*h, *h, gain, 1e-6f); });
  expect_as_of_copy(kernels::Tensor(), true, multiply(gate_w->weight(), kernels::Tensor()));
  expect_as_of_copy(kernels::Tensor(), true, multiply(dense.weight(), bias));
  for (const kernels::GateFunction function :
       {kernels::GateFunction::kSilu, kernels::GateFunction::kGelu}) {
    const auto gate = empty(kernels::DType::kBF16, inner), up = empty(kernels::DType::kBF16, inner);
    const auto down = empty(kernels::DType::kF32, k);
    const int64_t splits[] = {0, inner / 2, inner};
    const kernels::MatMulInput prepared = b.ops().matmul.GatedMatMul(
        x, {*gate, gate_w->weight(), kernels::Tensor()}, {*up, up_w->weight(), kernels::Tensor()},
        function, memory.data());
    EXPECT_NE(prepared.prepared, nullptr);
    b.ops().matmul.MatMulSplitK(*down, prepared, down_w->weight(), splits);
    const HostTensor got = down->Get();
    b.ops().matmul.MatMul(*out, x, gate_w->weight(), kernels::Tensor());
    b.ops().matmul.MatMul(*aside, x, up_w->weight(), kernels::Tensor());
    b.ops().rows.GateMul(function, *out, *out, *aside);
    EXPECT_TRUE(gate->Get().SameBits(out->Get()));
    b.ops().matmul.MatMulSplitK(*down, *out, down_w->weight(), splits);
    EXPECT_TRUE(got.SameBits(down->Get()));
  }
}

// A row with a NaN or an infinity is NaN; other rows are not affected.
inline void CheckStrangeFp8Rows(kernels::Device& b) {
  constexpr int64_t kRows = 3, kColumns = 16, kK = 32;
  Random random(42);
  HostTensor x = HostTensor::Of(kernels::DType::kBF16, kRows, kK, random);
  x.Set(0, std::numeric_limits<float>::quiet_NaN());
  x.Set(kK + 5, std::numeric_limits<float>::infinity());
  const DeviceTensor in(b, x), out(b, HostTensor::Poisoned(kernels::DType::kF32, kRows, kColumns));
  const DeviceWeight w(b, kernels::WeightType::kFp8,
                       HostTensor::Of(kernels::DType::kBF16, kColumns, kK, random), {0, kK});
  b.ops().matmul.MatMul(out, in, w.weight(), kernels::Tensor());
  const Matrix got = out.Get().matrix();
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    EXPECT_EQ(std::isnan(got[i]), i < 2 * kColumns) << i;
  }
}

}  // namespace continuo::testing
