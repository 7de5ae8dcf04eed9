// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/kernels/cuda/cases/product_cases.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/cuda/sampled.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/packed_weight.h"

// Ops with int8 and int4 weights of a Backend whose memory the host does not read, beside the
// numbers that the CPU makes of the same weights, for whatever is linked: the shim or a device.
namespace continuo::testing {

// A matrix as a device packs it, in memory of exactly its size.
class DeviceWeight {
 public:
  DeviceWeight(kernels::Backend& backend, kernels::WeightType type, const HostTensor& matrix,
               const std::vector<int64_t>& piece_begin)
      : backend_(backend) {
    const kernels::Tensor t = matrix.tensor();
    weight_ = {{nullptr, kernels::DType::kI8, {t.rows(), t.cols(), 1}}, backend.FormatOf(type)};
    auto memory = backend.Allocate(backend.WeightBytes(weight_, piece_begin));
    CONTINUO_CHECK(memory.ok());
    weight_.data.data = *memory;
    // Two halves, to see that they find their places.
    const int64_t half = t.rows() / 2 / kernels::kPackedRows * kernels::kPackedRows;
    for (const auto& [begin, end] : {std::pair{int64_t{0}, half}, std::pair{half, t.rows()}}) {
      std::vector<float> rows;
      for (const double v : ToMatrix(matrix.Rows(begin, end)))
        rows.push_back(static_cast<float>(v));
      backend.PackRows(weight_, piece_begin, begin, rows.data(), end - begin);
    }
  }
  ~DeviceWeight() { backend_.Free(weight_.data.data); }
  DeviceWeight(const DeviceWeight&) = delete;
  DeviceWeight& operator=(const DeviceWeight&) = delete;
  const kernels::Weight& weight() const { return weight_; }

 private:
  kernels::Backend& backend_;
  kernels::Weight weight_;
};

// What the CPU makes of a matrix whose pieces are packed one by one.
inline Matrix Quantised(kernels::Backend& cpu, kernels::WeightType type, const HostTensor& matrix,
                        const std::vector<int64_t>& piece_begin) {
  const int64_t rows = matrix.tensor().rows(), k = matrix.tensor().cols();
  const Matrix all = matrix.matrix();
  Matrix result(all.size());
  for (size_t i = 0; i + 1 < piece_begin.size(); ++i) {
    const int64_t begin = piece_begin[i], size = piece_begin[i + 1] - begin;
    if (size == 0) continue;
    HostTensor piece(kernels::DType::kF32, rows, size);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < size; ++c) {
        piece.Set(r * size + c, static_cast<float>(all[r * k + begin + c]));
      }
    }
    const Matrix values = PackedWeight(cpu, type, piece).Unpacked(cpu);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * size, size, result.begin() + r * k + begin);
    }
  }
  return result;
}

// What a matrix of those numbers is in bf16.
inline Matrix Narrowed(Matrix values) {
  for (double& v : values) v = kernels::FromBF16(kernels::ToBF16(static_cast<float>(v)));
  return values;
}

// Weights that rounding to a type leaves as they are: integers, of which the first of each group,
// in pieces or in one, is the largest that there is, so that scales are 1. Sums with small integers
// are then exact. All times a power of two.
inline HostTensor WeightIntegers(kernels::WeightType type, int64_t rows,
                                 const std::vector<int64_t>& piece_begin, Random& random,
                                 float factor = 1) {
  const int64_t k = piece_begin.back(), group = type == kernels::WeightType::kInt4 ? 64 : 128;
  HostTensor w = SmallIntegers(kernels::DType::kBF16, rows, k, 7, random, factor);
  if (type == kernels::WeightType::kBF16) return w;
  const float largest = (type == kernels::WeightType::kInt4 ? -8 : 127) * factor;
  for (const std::vector<int64_t>& pieces : {piece_begin, std::vector<int64_t>{0, k}}) {
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      for (int64_t c = pieces[i]; c < pieces[i + 1]; c += group) {
        for (int64_t r = 0; r < rows; ++r) w.Set(r * k + c, largest);
      }
    }
  }
  return w;
}

// Products whose sums are exact in whatever order: one element that is lost or read twice shows
// however long they are. Of more than `most_checked` rows or columns so many are compared.
inline void CheckExactProducts(kernels::Backend& b, const std::vector<int64_t>& row_counts,
                               int64_t columns, const std::vector<int64_t>& piece_begin,
                               int64_t most_checked = kAll) {
  const int64_t k = piece_begin.back();
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    Random random(33);
    const HostTensor w = WeightIntegers(type, columns, piece_begin, random);
    const DeviceWeight pieces(b, type, w, piece_begin), whole(b, type, w, {0, k});
    for (const int64_t rows : row_counts) {
      SCOPED_TRACE(::testing::Message() << NameOf(type) << ' ' << rows << " x " << columns << " x "
                                        << k << " in " << piece_begin.size() - 1 << " pieces");
      const HostTensor x = SmallIntegers(kernels::DType::kBF16, rows, k, 3, random);
      const Sample some(rows, columns, most_checked, random);
      const Matrix expected = ReferenceMatMul(
          RowsOf(x, some.rows).matrix(), RowsOf(w, some.columns).matrix(), {},
          static_cast<int64_t>(some.rows.size()), static_cast<int64_t>(some.columns.size()), k);
      const DeviceTensor in(b, x),
          out(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b.MatMulPieces(out, in, pieces.weight(), piece_begin);
      ExpectNearIn(some, out.Get(), expected, 0, {0});
      const DeviceTensor of_whole(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b.MatMul(of_whole, in, whole.weight(), kernels::Tensor());
      ExpectNearIn(some, of_whole.Get(), expected, 0, {0});
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// The table of an embedding: its numbers to the bit.
inline void CheckQuantisedEmbed(kernels::Backend& b, kernels::Backend& cpu,
                                kernels::WeightType type, const HostTensor& w,
                                const kernels::Weight& table) {
  constexpr int kFirst = 2;
  const int64_t rows = w.tensor().rows(), k = w.tensor().cols();
  const std::vector<int64_t> named = {1, rows - 1, 0, rows / 2};
  const Matrix values = Quantised(cpu, type, RowsOf(w, named), {0, k});
  std::vector<int32_t> ids = {kFirst - 1};  // not of this rank
  for (const int64_t row : named) ids.push_back(static_cast<int32_t>(row) + kFirst);
  const auto n = static_cast<int64_t>(ids.size());
  const DeviceTensor device_ids(b, HostTensor::OfInts(ids));
  const DeviceTensor found(b, HostTensor::Poisoned(kernels::DType::kF32, n, k));
  b.Embed(found, table, device_ids, kFirst, 0.5f);
  HostTensor expected(kernels::DType::kF32, n, k);
  for (int64_t i = 0; i < n * k; ++i) {
    expected.Set(i, i < k ? -0.0f : static_cast<float>(values[static_cast<size_t>(i - k)]) * 0.5f);
  }
  EXPECT_TRUE(found.Get().SameBits(expected)) << NameOf(type) << " table of " << rows;
}

// Products with the numbers that the CPU rounds weights to. Without a bias `wide_from` rows and
// more are multiplied with those in bf16.
inline void CheckQuantised(kernels::Backend& b, kernels::Backend& cpu,
                           const std::vector<int64_t>& row_counts, int64_t columns,
                           const std::vector<int64_t>& piece_begin, int64_t wide_from = kAll,
                           int64_t most_checked = kAll) {
  const int64_t k = piece_begin.back();
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    Random random(31);
    const HostTensor w = HostTensor::Of(kernels::DType::kF32, columns, k, random);
    const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, columns, random);
    const DeviceTensor biases(b, bias);
    const DeviceWeight pieces(b, type, w, piece_begin), whole(b, type, w, {0, k});
    for (const int64_t rows : row_counts) {
      SCOPED_TRACE(::testing::Message() << NameOf(type) << ' ' << rows << " x " << columns << " x "
                                        << k << " in " << piece_begin.size() - 1 << " pieces");
      const bool wide = rows >= wide_from;
      const HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, k, random);
      const DeviceTensor in(b, x);
      const Sample some(rows, columns, most_checked, random);
      const Matrix some_x = RowsOf(x, some.rows).matrix();
      const HostTensor some_w = RowsOf(w, some.columns);
      const Matrix values = Quantised(cpu, type, some_w, {0, k});
      const Matrix of_pieces = Quantised(cpu, type, some_w, piece_begin);
      const auto product = [&](const Matrix& numbers, const Matrix& added) {
        return ReferenceMatMul(some_x, numbers, added, static_cast<int64_t>(some.rows.size()),
                               static_cast<int64_t>(some.columns.size()), k);
      };
      const DeviceTensor sum(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b.MatMulPieces(sum, in, pieces.weight(), piece_begin);
      ExpectNearIn(some, sum.Get(), product(wide ? Narrowed(of_pieces) : of_pieces, {}), 0x1p-24,
                   {SumError(k)});
      const Matrix plain = product(wide ? Narrowed(values) : values, {});
      const Matrix biased = product(values, Part(bias, {0}, some.columns).matrix());
      for (const kernels::DType out_type : kF32AndBF16) {
        const DeviceTensor out(b, HostTensor::Poisoned(out_type, rows, columns));
        b.MatMul(out, in, whole.weight(), kernels::Tensor());
        ExpectNearIn(some, out.Get(), plain, RoundingOf(out_type), {SumError(k)});
        b.MatMul(out, in, whole.weight(), biases);
        ExpectNearIn(some, out.Get(), biased, RoundingOf(out_type), {SumError(k) + 4 * 0x1p-24});
      }
      if (::testing::Test::HasFailure()) return;
    }
    CheckQuantisedEmbed(b, cpu, type, w, whole.weight());
  }
}

// A row's bits are the same alone and among others.
inline void CheckQuantisedRows(kernels::Backend& b, std::vector<kernels::WeightType> types,
                               int64_t columns, int64_t k, const std::vector<int64_t>& counts) {
  for (const kernels::WeightType type : types) {
    Random random(32);
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    const HostTensor x = HostTensor::Of(kernels::DType::kBF16, most, k, random);
    const DeviceWeight w(b, type, HostTensor::Of(kernels::DType::kF32, columns, k, random), {0, k});
    const DeviceTensor in(b, x), out(b, HostTensor::Poisoned(kernels::DType::kF32, most, columns));
    b.MatMul(out, in, w.weight(), kernels::Tensor());
    const HostTensor expected = out.Get();
    for (const int64_t rows : counts) {
      const DeviceTensor part(b, x.Rows(0, rows));
      const DeviceTensor got(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
      b.MatMul(got, part, w.weight(), kernels::Tensor());
      EXPECT_EQ(std::memcmp(got.Get().bytes().data(), expected.bytes().data(),
                            static_cast<size_t>(rows * columns) * sizeof(float)),
                0)
          << NameOf(type) << ' ' << rows << " rows of [" << columns << ", " << k << "]";
    }
  }
}

}  // namespace continuo::testing
