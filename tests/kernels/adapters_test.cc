// SPDX-License-Identifier: Apache-2.0
// Compares AdapterOps with its float64 definition, and shows that a row's bits depend on nothing
// but the row and its adapter.
#include <cmath>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/adapters/adapter_ops.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/cases/adapter_cases.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {
namespace {

using kernels::DType;

using AdaptersTest = IsaTest;
INSTANTIATE_FOR_ISAS(AdaptersTest);

// A low-rank matrix in two factors, as AdapterOps takes them.
struct Factors {
  HostTensor a, b;  // [k, rank], [rank, columns]
  float factor;
};

Factors RandomFactors(DType type, int64_t k, int64_t rank, int64_t columns, Random& random) {
  return {HostTensor::Of(type, k, rank, random), HostTensor::Of(type, rank, columns, random),
          0.25f * static_cast<float>(1 + random.Below(8))};
}

// Adds to rows of `out` what their adapters make of x, as a list of (row, adapter) says.
struct Entry {
  int32_t row;
  const Factors* adapter;
};

void Apply(const kernels::Ops& ops, const HostTensor& out, const HostTensor& x,
           const std::vector<Entry>& entries, std::vector<int64_t> splits = {}) {
  if (splits.empty()) splits = {0, x.tensor().cols()};
  std::vector<int32_t> rows;
  std::vector<kernels::ShrinkGroup> shrink;
  std::vector<kernels::ExpandGroup> expand;
  int64_t width = 1;
  for (const Entry& entry : entries) {
    const auto i = static_cast<int64_t>(rows.size());
    rows.push_back(entry.row);
    width = std::max(width, entry.adapter->a.tensor().cols());
    if (!shrink.empty() && shrink.back().a.data == entry.adapter->a.tensor().data) {
      shrink.back().end = expand.back().end = i + 1;
      continue;
    }
    shrink.push_back({i, i + 1, entry.adapter->a});
    expand.push_back({i, i + 1, entry.adapter->b, 0, entry.adapter->factor});
  }
  const HostTensor inner =
      HostTensor::Poisoned(DType::kF32, static_cast<int64_t>(rows.size()), width);
  const HostTensor row_ids = HostTensor::OfInts(rows);
  ops.adapters->Shrink(inner, x, row_ids, shrink, splits);
  ops.adapters->Expand(out, inner, row_ids, expand);
}

TEST_P(AdaptersTest, MatchesTheDefinition) {
  Random random(3);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const DType stored : {DType::kF32, DType::kBF16}) {
      for (const auto& [k, rank, columns] :
           {std::array<int64_t, 3>{1, 1, 1}, {75, 8, 33}, {128, 16, 600}, {200, 130, 70}}) {
        const Factors f = RandomFactors(stored, k, rank, columns, random);
        const HostTensor x = HostTensor::Of(type, 3, k, random);
        const HostTensor before = HostTensor::Of(type, 3, columns, random);
        const HostTensor out = before.Clone();
        Apply(ops(), out, x, {{0, &f}, {2, &f}});
        const Matrix mx = x.matrix(), ma = f.a.matrix(), mb = f.b.matrix();
        Matrix expected = before.matrix(), bound = expected;
        for (int64_t row = 0; row < 3; ++row) {
          for (int64_t c = 0; c < columns; ++c) {
            double sum = 0, size = 0;
            for (int64_t j = 0; j < rank && row != 1; ++j) {
              double inner = 0, inner_size = 0;
              for (int64_t i = 0; i < k; ++i) {
                inner += mx[row * k + i] * ma[i * rank + j];
                inner_size += std::fabs(mx[row * k + i] * ma[i * rank + j]);
              }
              sum += inner * mb[j * columns + c];
              size += inner_size * std::fabs(mb[j * columns + c]);
            }
            const size_t at = static_cast<size_t>(row * columns + c);
            expected[at] += static_cast<double>(f.factor) * sum;
            // One rounding for each term of a sum, at most.
            bound[at] =
                static_cast<double>(k + rank + 2) * 0x1p-24 * static_cast<double>(f.factor) * size +
                1e-30;
          }
        }
        ExpectNear(out, expected, RoundingOf(type), bound);
        // The row without an adapter is as it was.
        EXPECT_EQ(
            std::memcmp(out.Rows(1, 2).data, before.Rows(1, 2).data, before.Rows(1, 2).bytes()), 0);
      }
    }
  }
}

// 40 rows of five adapters with other ranks, and some without, have the bits of each row alone,
// whatever the number of threads.
TEST_P(AdaptersTest, ARowDependsOnItselfAlone) {
  constexpr int64_t kRows = 40, kK = 131, kColumns = 530;
  Random random(4);
  std::vector<Factors> adapters;
  for (const int64_t rank : {1, 8, 16, 64, 150}) {
    adapters.push_back(
        RandomFactors(rank == 16 ? DType::kBF16 : DType::kF32, kK, rank, kColumns, random));
  }
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const HostTensor x = HostTensor::Of(type, kRows, kK, random);
    const HostTensor before = HostTensor::Of(type, kRows, kColumns, random);
    const HostTensor alone = before.Clone();
    std::vector<Entry> entries;
    for (size_t a = 0; a < adapters.size(); ++a) {
      for (int32_t row = 0; row < kRows; ++row) {
        if (static_cast<size_t>(row) % (adapters.size() + 1) == a) {
          entries.push_back({row, &adapters[a]});
        }
      }
    }
    ASSERT_LT(entries.size(), static_cast<size_t>(kRows));
    for (const Entry& entry : entries) Apply(ops(), alone, x, {entry});
    for (const int threads : {1, 3}) {
      const auto device = MakeCpu(GetParam(), threads);
      const HostTensor together = before.Clone();
      Apply(device->ops(), together, x, entries);
      EXPECT_TRUE(together.SameBits(alone)) << threads << " threads, " << NameOf(type);
    }
  }
}

TEST_P(AdaptersTest, ChangeTheirColumnsOfJoinedProducts) {
  CheckAdaptersOfJoinedProducts(*MakeCpu(GetParam(), 2));
}

// The K splits of the ranks' parts, added in their tree, are those of the whole.
TEST_P(AdaptersTest, SplitsAddUpInOneTree) {
  constexpr int64_t kRank = 24;
  const std::vector<int64_t> splits = {0, 3, 70, 70, 90, 155, 160, 171, 200};
  const int64_t k = splits.back();
  Random random(5);
  const HostTensor a = HostTensor::Of(DType::kF32, k, kRank, random);
  const HostTensor x = HostTensor::Of(DType::kF32, 2, k, random);
  const HostTensor rows = HostTensor::OfInts({0, 1});
  const auto shrink = [&](int64_t begin, int64_t end, std::vector<int64_t> own) {
    HostTensor part_x(DType::kF32, 2, end - begin), part_a(DType::kF32, end - begin, kRank);
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t i = begin; i < end; ++i) {
        part_x.Set(r * (end - begin) + i - begin,
                   static_cast<float>(x.matrix()[static_cast<size_t>(r * k + i)]));
      }
    }
    for (int64_t i = 0; i < (end - begin) * kRank; ++i) {
      part_a.Set(i, static_cast<float>(a.matrix()[static_cast<size_t>(begin * kRank + i)]));
    }
    for (int64_t& split : own) split -= begin;
    HostTensor inner = HostTensor::Poisoned(DType::kF32, 2, kRank + 3);
    const kernels::ShrinkGroup group = {0, 2, part_a};
    ops().adapters->Shrink(inner, part_x, rows, std::span(&group, 1), own);
    return inner;
  };
  const HostTensor whole = shrink(0, k, splits);
  std::vector<HostTensor> parts;
  for (size_t i = 0; i < 4; ++i) {
    parts.push_back(shrink(splits[2 * i], splits[2 * i + 2],
                           {splits[2 * i], splits[2 * i + 1], splits[2 * i + 2]}));
  }
  const Matrix got = whole.matrix();
  for (size_t i = 0; i < got.size(); ++i) {
    const auto of = [&](size_t part) { return static_cast<float>(parts[part].matrix()[i]); };
    EXPECT_EQ(static_cast<float>(got[i]), (of(0) + of(1)) + (of(2) + of(3))) << i;
    if (i % (kRank + 3) >= kRank) {
      EXPECT_EQ(got[i], 0) << "a column behind the rank";
    }
  }
}

}  // namespace
}  // namespace continuo::testing
