// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/adapters/adapter_ops.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/host_tensor.h"

// AdapterOps of a Device whose memory the host does not read, against their definition in float64,
// and the bits of a row beside others. The cases run on whatever is linked: the shim or a device.
namespace continuo::testing {

// One adapter's factors, on the host and on the device.
struct DeviceFactors {
  DeviceFactors(kernels::Device& device, kernels::DType type, int64_t k, int64_t rank,
                int64_t columns, Random& random)
      : a(HostTensor::Of(type, k, rank, random)),
        b(HostTensor::Of(type, rank, columns, random)),
        factor(0.25f * static_cast<float>(1 + random.Below(8))),
        device_a(device, a),
        device_b(device, b) {}
  HostTensor a, b;
  float factor;
  DeviceTensor device_a, device_b;
};

struct AdapterEntry {
  int32_t row;
  const DeviceFactors* adapter;
};

// Adds to rows of a copy of `before` what their adapters make of x. Entries of one adapter are
// neighbours.
inline HostTensor RunAdapters(kernels::Device& device, const HostTensor& before,
                              const HostTensor& x, const std::vector<AdapterEntry>& entries,
                              std::vector<int64_t> splits = {}) {
  if (splits.empty()) splits = {0, x.tensor().cols()};
  std::vector<int32_t> rows;
  std::vector<kernels::ShrinkGroup> shrink;
  std::vector<kernels::ExpandGroup> expand;
  int64_t width = 1;
  const DeviceFactors* last = nullptr;
  for (const AdapterEntry& entry : entries) {
    const auto i = static_cast<int64_t>(rows.size());
    rows.push_back(entry.row);
    width = std::max(width, entry.adapter->a.tensor().cols());
    if (entry.adapter == last) {
      shrink.back().end = expand.back().end = i + 1;
      continue;
    }
    last = entry.adapter;
    shrink.push_back({i, i + 1, last->device_a});
    expand.push_back({i, i + 1, last->device_b, 0, last->factor});
  }
  const DeviceTensor row_ids(device, HostTensor::OfInts(rows)), xs(device, x), out(device, before);
  const DeviceTensor inner(
      device, HostTensor::Poisoned(kernels::DType::kF32, static_cast<int64_t>(rows.size()), width));
  device.ops().adapters->Shrink(inner, xs, row_ids, shrink, splits);
  device.ops().adapters->Expand(out, inner, row_ids, expand);
  return out.Get();
}

// Rows of `num_adapters` adapters of ranks 1, 1 + step, …, and every fourth row without one.
inline void CheckAdapters(kernels::Device& device, int num_adapters, int64_t rows, int64_t k,
                          int64_t columns, int64_t step) {
  using kernels::DType;
  SCOPED_TRACE(::testing::Message()
               << num_adapters << " adapters, " << rows << " rows, " << k << " x " << columns);
  Random random(23);
  std::vector<std::unique_ptr<DeviceFactors>> adapters;
  for (int i = 0; i < num_adapters; ++i) {
    adapters.push_back(std::make_unique<DeviceFactors>(
        device, i % 2 == 0 ? DType::kBF16 : DType::kF32, k, 1 + i * step, columns, random));
  }
  std::vector<AdapterEntry> entries;
  for (int i = 0; i < num_adapters; ++i) {
    for (int32_t row = i; row < rows; row += num_adapters) {
      if (row % 4 != 3) entries.push_back({row, adapters[static_cast<size_t>(i)].get()});
    }
  }
  for (const DType type : kActivations) {
    const HostTensor x = HostTensor::Of(type, rows, k, random);
    const HostTensor before = HostTensor::Of(type, rows, columns, random);
    const HostTensor got = RunAdapters(device, before, x, entries);
    const Matrix xs = x.matrix();
    Matrix want = before.matrix(), bound(want.size(), 0);
    for (const AdapterEntry& entry : entries) {
      const Matrix a = entry.adapter->a.matrix(), b = entry.adapter->b.matrix();
      const auto rank = entry.adapter->a.tensor().cols();
      const auto factor = static_cast<double>(entry.adapter->factor);
      for (int64_t j = 0; j < rank; ++j) {
        double inner = 0, size = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double term =
              xs[static_cast<size_t>(entry.row * k + i)] * a[static_cast<size_t>(i * rank + j)];
          inner += term;
          size += std::fabs(term);
        }
        for (int64_t c = 0; c < columns; ++c) {
          const auto at = static_cast<size_t>(entry.row * columns + c);
          const double weight = b[static_cast<size_t>(j * columns + c)];
          want[at] += factor * inner * weight;
          // One rounding for each term of a sum, at most.
          bound[at] +=
              static_cast<double>(k + rank + 2) * 0x1p-24 * factor * size * std::fabs(weight);
        }
      }
    }
    ExpectNear(got, want, RoundingOf(type), bound);
    // Every row has the bits of itself alone, and those without an adapter stay as they were.
    HostTensor alone = before.Clone();
    for (const AdapterEntry& entry : entries) {
      const HostTensor one = RunAdapters(device, before, x, {entry});
      std::memcpy(alone.Rows(entry.row, entry.row + 1).data,
                  one.Rows(entry.row, entry.row + 1).data, one.Rows(0, 1).bytes());
    }
    EXPECT_TRUE(got.SameBits(alone)) << NameOf(type);
  }
}

// A product that lies among the columns of others gets what it would get alone; they stay.
inline void CheckAdaptersOfJoinedProducts(kernels::Device& device) {
  using kernels::DType;
  constexpr int64_t kRows = 3, kRank = 5, kColumns = 33, kFirst = 40, kWidth = 80;
  Random random(29);
  const DeviceTensor rows(device, HostTensor::OfInts({2, 0}));
  const DeviceTensor inner(device, HostTensor::Of(DType::kF32, 2, kRank, random));
  const DeviceTensor b(device, HostTensor::Of(DType::kF32, kRank, kColumns, random));
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const HostTensor before = HostTensor::Of(type, kRows, kWidth, random);
    const Matrix values = before.matrix();
    HostTensor own(type, kRows, kColumns);
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      own.Set(i, static_cast<float>(
                     values[static_cast<size_t>(i / kColumns * kWidth + kFirst + i % kColumns)]));
    }
    const DeviceTensor joined(device, before), alone(device, own);
    kernels::ExpandGroup group = {0, 2, b, 0, 0.5f};
    device.ops().adapters->Expand(alone, inner, rows, std::span(&group, 1));
    group.column = kFirst;
    device.ops().adapters->Expand(joined, inner, rows, std::span(&group, 1));
    const Matrix got = joined.Get().matrix(), want = alone.Get().matrix();
    EXPECT_NE(got, values);
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      const int64_t row = i / kWidth, column = i % kWidth - kFirst;
      const bool is_own = column >= 0 && column < kColumns;
      EXPECT_EQ(got[static_cast<size_t>(i)],
                is_own ? want[static_cast<size_t>(row * kColumns + column)]
                       : values[static_cast<size_t>(i)])
          << row << ", " << i % kWidth;
    }
  }
}

// The sums of K splits that ranks have apart, added in their tree, are those of the whole.
inline void CheckAdapterSplits(kernels::Device& device) {
  using kernels::DType;
  constexpr int64_t kRank = 37;
  const std::vector<int64_t> splits = {0, 3, 70, 70, 90, 155, 160, 171, 200};
  Random random(5);
  const HostTensor a = HostTensor::Of(DType::kF32, splits.back(), kRank, random);
  const HostTensor x = HostTensor::Of(DType::kF32, 2, splits.back(), random);
  const DeviceTensor rows(device, HostTensor::OfInts({1, 0}));
  const auto shrink = [&](size_t first, size_t last) {
    const int64_t begin = splits[first], k = splits[last] - begin;
    HostTensor part(DType::kF32, 2, k);
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t i = 0; i < k; ++i) {
        part.Set(r * k + i, static_cast<float>(
                                x.matrix()[static_cast<size_t>(r * splits.back() + begin + i)]));
      }
    }
    std::vector<int64_t> own;
    for (size_t i = first; i <= last; ++i) own.push_back(splits[i] - begin);
    const DeviceTensor parts(device, part), factors(device, a.Rows(begin, begin + k));
    const DeviceTensor inner(device, HostTensor::Poisoned(DType::kF32, 2, kRank + 3));
    const kernels::ShrinkGroup group = {0, 2, factors};
    device.ops().adapters->Shrink(inner, parts, rows, std::span(&group, 1), own);
    return inner.Get().matrix();
  };
  const Matrix whole = shrink(0, 8);
  Matrix parts[4];
  for (size_t i = 0; i < 4; ++i) parts[i] = shrink(2 * i, 2 * i + 2);
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto of = [&](size_t part) { return static_cast<float>(parts[part][i]); };
    EXPECT_EQ(static_cast<float>(whole[i]), (of(0) + of(1)) + (of(2) + of(3))) << i;
    if (i % (kRank + 3) >= kRank) {
      EXPECT_EQ(whole[i], 0) << "a column behind the rank";
    }
  }
}

}  // namespace continuo::testing
