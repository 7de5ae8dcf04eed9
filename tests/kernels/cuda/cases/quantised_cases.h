// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/host/group_rounding.h"
#include "tests/kernels/cuda/cases/product_cases.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/cuda/sampled.h"
#include "tests/kernels/host_tensor.h"

// Ops with int8 and int4 weights of a Device whose memory the host does not read, beside the
// numbers that the weights are rounded to. The cases run on whatever is linked: the shim or
// a device.
namespace continuo::testing {

// A matrix as a device packs it, in memory of exactly its size.
class DeviceWeight {
 public:
  DeviceWeight(kernels::Device& device, kernels::WeightType type, const HostTensor& matrix,
               const std::vector<int64_t>& split_begin)
      : device_(device) {
    const kernels::Tensor t = matrix.tensor();
    weight_ = {{nullptr, kernels::DType::kI8, {t.rows(), t.cols(), 1}},
               device.ops().matmul.FormatOf(type)};
    auto memory = device.Allocate(device.ops().matmul.WeightBytes(weight_, split_begin));
    CONTINUO_CHECK(memory.ok());
    weight_.data.data = *memory;
    // It is packed in two halves, to see that they find their places.
    const int64_t half = t.rows() / 2 / kernels::kPackedRows * kernels::kPackedRows;
    for (const auto& [begin, end] : {std::pair{int64_t{0}, half}, std::pair{half, t.rows()}}) {
      std::vector<float> rows;
      for (const double v : ToMatrix(matrix.Rows(begin, end)))
        rows.push_back(static_cast<float>(v));
      device.ops().matmul.PackRows(weight_, split_begin, begin, rows.data(), end - begin);
    }
  }
  ~DeviceWeight() { device_.Free(weight_.data.data); }
  DeviceWeight(const DeviceWeight&) = delete;
  DeviceWeight& operator=(const DeviceWeight&) = delete;
  const kernels::Weight& weight() const { return weight_; }

 private:
  kernels::Device& device_;
  kernels::Weight weight_;
};

// Returns the values of a matrix whose groups are rounded, anew in each K split.
inline Matrix Quantised(kernels::WeightType type, const HostTensor& matrix,
                        const std::vector<int64_t>& split_begin) {
  const bool is_int4 = type == kernels::WeightType::kInt4;
  const auto format =
      is_int4 ? kernels::WeightFormat::kInt4Panels : kernels::WeightFormat::kInt8Panels;
  const int64_t k = matrix.tensor().cols(), group = kernels::host::GroupSize(format);
  const Matrix all = matrix.matrix();
  Matrix result(all.size());
  for (int64_t row = 0; row < matrix.tensor().rows(); ++row) {
    for (size_t i = 0; i + 1 < split_begin.size(); ++i) {
      for (int64_t c = split_begin[i]; c < split_begin[i + 1]; c += group) {
        const auto n = static_cast<size_t>(std::min(group, split_begin[i + 1] - c));
        const auto first = static_cast<size_t>(row * k + c);
        std::vector<float> x(n);
        for (size_t j = 0; j < n; ++j) x[j] = static_cast<float>(all[first + j]);
        std::vector<int32_t> rounded(n);
        const float scale =
            kernels::host::RoundGroup(format, x.data(), static_cast<int64_t>(n), rounded.data());
        for (size_t j = 0; j < n; ++j) result[first + j] = scale * static_cast<float>(rounded[j]);
      }
    }
  }
  return result;
}

// Returns such a matrix's values in bf16.
inline Matrix Narrowed(Matrix values) {
  for (double& v : values) v = kernels::FromBF16(kernels::ToBF16(static_cast<float>(v)));
  return values;
}

// Returns weights that rounding to a type leaves unchanged: integers, of which the first of each
// group, in splits or in one, is the largest that there is, so that scales are 1. Sums with small
// integers are then exact. All are times a power of two.
inline HostTensor WeightIntegers(kernels::WeightType type, int64_t rows,
                                 const std::vector<int64_t>& split_begin, Random& random,
                                 float factor = 1) {
  const int64_t k = split_begin.back(), group = type == kernels::WeightType::kInt4 ? 64 : 128;
  HostTensor w = SmallIntegers(kernels::DType::kBF16, rows, k, 7, random, factor);
  if (type == kernels::WeightType::kBF16) return w;
  const float largest = (type == kernels::WeightType::kInt4 ? -8 : 127) * factor;
  for (const std::vector<int64_t>& splits : {split_begin, std::vector<int64_t>{0, k}}) {
    for (size_t i = 0; i + 1 < splits.size(); ++i) {
      for (int64_t c = splits[i]; c < splits[i + 1]; c += group) {
        for (int64_t r = 0; r < rows; ++r) w.Set(r * k + c, largest);
      }
    }
  }
  return w;
}

// Checks products whose sums are exact in any order: one element that is lost or read twice shows,
// however long they are. Of more than `most_checked` rows or columns, that many are compared.
inline void CheckExactProducts(kernels::Device& b, const std::vector<int64_t>& row_counts,
                               int64_t columns, const std::vector<int64_t>& split_begin,
                               int64_t most_checked = kAll) {
  const int64_t k = split_begin.back();
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    Random random(33);
    const HostTensor w = WeightIntegers(type, columns, split_begin, random);
    const DeviceWeight split(b, type, w, split_begin), whole(b, type, w, {0, k});
    for (const int64_t rows : row_counts) {
      SCOPED_TRACE(::testing::Message()
                   << kernels::NameOf(type) << ' ' << rows << " x " << columns << " x " << k
                   << " in " << split_begin.size() - 1 << " splits");
      const HostTensor x = SmallIntegers(kernels::DType::kBF16, rows, k, 3, random);
      const Sample some(rows, columns, most_checked, random);
      const Matrix expected = ReferenceMatMul(
          RowsOf(x, some.rows).matrix(), RowsOf(w, some.columns).matrix(), {},
          static_cast<int64_t>(some.rows.size()), static_cast<int64_t>(some.columns.size()), k);
      const DeviceTensor in(b, x),
          out(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b.ops().matmul.MatMulSplitK(out, in, split.weight(), split_begin);
      ExpectNearIn(some, out.Get(), expected, 0, {0});
      const DeviceTensor of_whole(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b.ops().matmul.MatMul(of_whole, in, whole.weight(), kernels::Tensor());
      ExpectNearIn(some, of_whole.Get(), expected, 0, {0});
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Checks an embedding's table: its numbers to the bit.
inline void CheckQuantisedEmbed(kernels::Device& b, kernels::WeightType type, const HostTensor& w,
                                const kernels::Weight& table) {
  constexpr int kFirst = 2;
  const int64_t rows = w.tensor().rows(), k = w.tensor().cols();
  const std::vector<int64_t> named = {1, rows - 1, 0, rows / 2};
  const Matrix values = Quantised(type, RowsOf(w, named), {0, k});
  std::vector<int32_t> ids = {kFirst - 1};  // another rank's
  for (const int64_t row : named) ids.push_back(static_cast<int32_t>(row) + kFirst);
  const auto n = static_cast<int64_t>(ids.size());
  const DeviceTensor device_ids(b, HostTensor::OfInts(ids));
  const DeviceTensor found(b, HostTensor::Poisoned(kernels::DType::kF32, n, k));
  b.ops().rows.Embed(found, table, device_ids, kFirst, 0.5f);
  HostTensor expected(kernels::DType::kF32, n, k);
  for (int64_t i = 0; i < n * k; ++i) {
    expected.Set(i, i < k ? -0.0f : static_cast<float>(values[static_cast<size_t>(i - k)]) * 0.5f);
  }
  EXPECT_TRUE(found.Get().SameBits(expected)) << kernels::NameOf(type) << " table of " << rows;
}

// Checks products with the numbers that weights are rounded to. Without a bias, `wide_from` rows
// and more are multiplied with those numbers in bf16.
inline void CheckQuantised(kernels::Device& b, const std::vector<int64_t>& row_counts,
                           int64_t columns, const std::vector<int64_t>& split_begin,
                           int64_t wide_from = kAll, int64_t most_checked = kAll) {
  const int64_t k = split_begin.back();
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    Random random(31);
    const HostTensor w = HostTensor::Of(kernels::DType::kF32, columns, k, random);
    const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, columns, random);
    const DeviceTensor biases(b, bias);
    const DeviceWeight split(b, type, w, split_begin), whole(b, type, w, {0, k});
    for (const int64_t rows : row_counts) {
      SCOPED_TRACE(::testing::Message()
                   << kernels::NameOf(type) << ' ' << rows << " x " << columns << " x " << k
                   << " in " << split_begin.size() - 1 << " splits");
      const bool wide = rows >= wide_from;
      const HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, k, random);
      const DeviceTensor in(b, x);
      const Sample some(rows, columns, most_checked, random);
      const Matrix some_x = RowsOf(x, some.rows).matrix();
      const HostTensor some_w = RowsOf(w, some.columns);
      const Matrix values = Quantised(type, some_w, {0, k});
      const Matrix of_splits = Quantised(type, some_w, split_begin);
      const auto product = [&](const Matrix& numbers, const Matrix& added) {
        return ReferenceMatMul(some_x, numbers, added, static_cast<int64_t>(some.rows.size()),
                               static_cast<int64_t>(some.columns.size()), k);
      };
      const DeviceTensor sum(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b.ops().matmul.MatMulSplitK(sum, in, split.weight(), split_begin);
      ExpectNearIn(some, sum.Get(), product(wide ? Narrowed(of_splits) : of_splits, {}), 0x1p-24,
                   {SumError(k)});
      const Matrix plain = product(wide ? Narrowed(values) : values, {});
      const Matrix biased = product(values, Part(bias, {0}, some.columns).matrix());
      for (const kernels::DType out_type : kF32AndBF16) {
        const DeviceTensor out(b, HostTensor::Poisoned(out_type, rows, columns));
        b.ops().matmul.MatMul(out, in, whole.weight(), kernels::Tensor());
        ExpectNearIn(some, out.Get(), plain, RoundingOf(out_type), {SumError(k)});
        b.ops().matmul.MatMul(out, in, whole.weight(), biases);
        ExpectNearIn(some, out.Get(), biased, RoundingOf(out_type), {SumError(k) + 4 * 0x1p-24});
      }
      if (::testing::Test::HasFailure()) return;
    }
    CheckQuantisedEmbed(b, type, w, whole.weight());
  }
}

// A row's bits are the same alone and among others.
inline void CheckQuantisedRows(kernels::Device& b, std::vector<kernels::WeightType> types,
                               int64_t columns, int64_t k, const std::vector<int64_t>& counts) {
  for (const kernels::WeightType type : types) {
    Random random(32);
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    const HostTensor x = HostTensor::Of(kernels::DType::kBF16, most, k, random);
    const DeviceWeight w(b, type, HostTensor::Of(kernels::DType::kF32, columns, k, random), {0, k});
    const DeviceTensor in(b, x), out(b, HostTensor::Poisoned(kernels::DType::kF32, most, columns));
    b.ops().matmul.MatMul(out, in, w.weight(), kernels::Tensor());
    const HostTensor expected = out.Get();
    for (const int64_t rows : counts) {
      const DeviceTensor part(b, x.Rows(0, rows));
      const DeviceTensor got(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b.ops().matmul.MatMul(got, part, w.weight(), kernels::Tensor());
      EXPECT_EQ(std::memcmp(got.Get().bytes().data(), expected.bytes().data(),
                            static_cast<size_t>(rows * columns) * sizeof(float)),
                0)
          << kernels::NameOf(type) << ' ' << rows << " rows of [" << columns << ", " << k << "]";
    }
  }
}

}  // namespace continuo::testing
