// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/host_tensor.h"

// Results that are too large to compare as a whole with float64 loops are compared in some rows and
// columns.
namespace continuo::testing {

inline constexpr int64_t kAll = int64_t{1} << 30;

// Returns all of the n numbers from 0 or, if they are more than `most`, the first, the last and
// others at random; ascending.
inline std::vector<int64_t> Sampled(int64_t n, int64_t most, Random& random) {
  std::vector<int64_t> which;
  if (n <= most) {
    which.resize(static_cast<size_t>(n));
    std::iota(which.begin(), which.end(), 0);
    return which;
  }
  which = {0, n - 1};
  while (static_cast<int64_t>(which.size()) < most) {
    which.push_back(random.Below(static_cast<int>(n)));
  }
  std::sort(which.begin(), which.end());
  which.erase(std::unique(which.begin(), which.end()), which.end());
  return which;
}

// The elements in some rows and columns.
struct Sample {
  Sample(int64_t num_rows, int64_t num_columns, int64_t most, Random& random)
      : rows(Sampled(num_rows, most, random)), columns(Sampled(num_columns, most, random)) {}
  std::vector<int64_t> rows, columns;
};

inline HostTensor Part(const HostTensor& from, const std::vector<int64_t>& rows,
                       const std::vector<int64_t>& columns) {
  const kernels::Tensor all = from.tensor();
  HostTensor some(all.dtype, static_cast<int64_t>(rows.size()),
                  static_cast<int64_t>(columns.size()));
  const auto bytes = static_cast<int64_t>(kernels::SizeOf(all.dtype));
  auto* to = static_cast<std::byte*>(some.tensor().data);
  for (const int64_t r : rows) {
    for (const int64_t c : columns) {
      std::memcpy(to, from.bytes().data() + (r * all.cols() + c) * bytes,
                  static_cast<size_t>(bytes));
      to += bytes;
    }
  }
  return some;
}

inline HostTensor RowsOf(const HostTensor& from, const std::vector<int64_t>& rows) {
  HostTensor some(from.tensor().dtype, static_cast<int64_t>(rows.size()), from.tensor().cols());
  for (size_t i = 0; i < rows.size(); ++i) {
    const kernels::Tensor row = from.Rows(rows[i], rows[i] + 1);
    std::memcpy(some.Rows(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1).data, row.data,
                row.bytes());
  }
  return some;
}

template <typename Bits>
int64_t FirstPoisoned(const HostTensor& t) {
  const auto* const data = reinterpret_cast<const Bits*>(t.bytes().data());
  const int64_t size = t.tensor().size();
  return std::find(data, data + size, static_cast<Bits>(-1)) - data;
}

// Expects that nothing is left as HostTensor::Poisoned made it.
inline void ExpectWritten(const HostTensor& actual) {
  const int64_t first = kernels::SizeOf(actual.tensor().dtype) == 4
                            ? FirstPoisoned<uint32_t>(actual)
                            : FirstPoisoned<uint16_t>(actual);
  ASSERT_EQ(first, actual.tensor().size()) << "element " << first << " was not written";
}

// Expects that everything is written, and that the sample is near, as ExpectNear says.
inline void ExpectNearIn(const Sample& sample, const HostTensor& actual, const Matrix& expected,
                         double relative, const Matrix& absolute) {
  ExpectWritten(actual);
  ExpectNear(Part(actual, sample.rows, sample.columns), expected, relative, absolute);
}

// Returns integers in [-most, most], times a power of two.
inline HostTensor SmallIntegers(kernels::DType type, int64_t rows, int64_t cols, int most,
                                Random& random, float factor = 1) {
  HostTensor t(type, rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    t.Set(i, static_cast<float>(random.Below(2 * most + 1) - most) * factor);
  }
  return t;
}

}  // namespace continuo::testing
