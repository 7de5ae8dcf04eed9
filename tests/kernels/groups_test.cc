// SPDX-License-Identifier: Apache-2.0
// Tests matrices that are kept as the integers of a file: what their elements are, products beside
// float64, and equal bits everywhere.
#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/math/arithmetic.h"
#include "tests/kernels/grouped_weight.h"
#include "tests/kernels/rank_sum.h"

namespace continuo::testing {
namespace {

using GroupsTest = IsaTest;
INSTANTIATE_FOR_ISAS(GroupsTest);

TEST_P(GroupsTest, ElementsAreThoseOfTheDefinition) {
  Random random(81);
  for (const GroupCase& c : GroupCases()) {
    const StoredMatrix stored(c, 37, 512, random);
    const GroupedWeight w(*device_, stored);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 37; ++i) ids.push_back(i);
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 37, 512);
    ops().rows.Embed(out, w.weight(), HostTensor::OfInts(ids), 0, 1.0f);
    EXPECT_EQ(out.matrix(), stored.Values()) << c.name;
  }
}

// The values of x in int8 groups, computed here independently.
Matrix Rounded(const Matrix& x, int64_t k, int64_t group) {
  Matrix out = x;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(k)) {
    for (int64_t begin = 0; begin < k; begin += group) {
      const int64_t end = std::min(k, begin + group);
      float top = 0;
      for (int64_t i = begin; i < end; ++i) {
        top = std::max(top, std::fabs(static_cast<float>(x[row + static_cast<size_t>(i)])));
      }
      for (int64_t i = begin; top > 0 && i < end; ++i) {
        double& value = out[row + static_cast<size_t>(i)];
        value = std::nearbyint(static_cast<float>(value) * (127.0f / top)) *
                static_cast<double>(top / 127.0f);
      }
    }
  }
  return out;
}

TEST_P(GroupsTest, ProductsMatchReference) {
  Random random(82);
  for (const GroupCase& c : GroupCases()) {
    for (const auto& [rows, columns, units] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                                  {1, 70, 3},
                                                                                  {2, 16, 1},
                                                                                  {5, 100, 2},
                                                                                  {13, 64, 5},
                                                                                  {30, 20, 7},
                                                                                  {250, 9, 1}}) {
      // Of scales that share no factor, the last unit may be shorter.
      const bool is_shared = c.groups.scales == kernels::GroupScales::kShared;
      const int64_t k = units * c.groups.unit + (is_shared || units > 3 ? 0 : c.groups.size);
      const StoredMatrix stored(c, columns, k, random);
      const GroupedWeight w(*device_, stored);
      const HostTensor x = HostTensor::Of(kernels::DType::kF32, rows, k, random);
      const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, columns, random);
      const Matrix rounded = Rounded(x.matrix(), k, c.groups.size);
      const Matrix weights = stored.Values();
      const Matrix expected = ReferenceMatMul(rounded, weights, bias.matrix(), rows, columns, k);
      // What is added is at most as large as an element without its minimum, and that minimum.
      Matrix ax = rounded, aw = weights;
      for (double& v : ax) v = std::fabs(v);
      for (double& v : aw) v = std::fabs(v) + 2 * StoredMatrix::kMinimumFactor;
      Matrix bound = ReferenceMatMul(ax, aw, {}, rows, columns, k);
      // Each group has five products and sums, and there is the bias.
      const double steps = 5.0 * (static_cast<double>(k) / c.groups.size) + 2;
      for (double& v : bound) v = (v + 2) * steps * 0x1p-24;
      for (const kernels::DType out_type : {kernels::DType::kF32, kernels::DType::kBF16}) {
        HostTensor out = HostTensor::Poisoned(out_type, rows, columns);
        ops().matmul.MatMul(out, x, w.weight(), bias);
        SCOPED_TRACE(::testing::Message() << c.name << " " << rows << "x" << columns << "x" << k);
        ExpectNear(out, expected, RoundingOf(out_type), bound);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Workers with other instruction sets may go on with a stream.
TEST(StoredGroupsTest, EveryInstructionSetGivesTheSameBytes) {
  for (const GroupCase& c : GroupCases()) {
    std::vector<std::byte> expected;
    for (const std::string& isa : AvailableIsas()) {
      const auto device = MakeCpu(isa);
      std::vector<std::byte> bytes;
      Random random(83);
      for (const auto& [rows, columns, units] :
           std::vector<std::array<int64_t, 3>>{{1, 100, 2}, {3, 33, 1}, {12, 70, 9}, {29, 64, 3}}) {
        const int64_t k = units * c.groups.unit;
        const GroupedWeight w(*device, StoredMatrix(c, columns, k, random));
        const HostTensor x = HostTensor::Of(kernels::DType::kF32, rows, k, random);
        HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
        device->ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
        bytes.insert(bytes.end(), out.bytes().begin(), out.bytes().end());
      }
      if (expected.empty()) expected = bytes;
      EXPECT_TRUE(bytes == expected) << isa << " " << c.name;
    }
  }
}

TEST_P(GroupsTest, ARowIsTheSameAloneAndInAnyBatch) {
  Random random(84);
  const int64_t k = 1280, columns = 103, most = 500;
  const HostTensor x = HostTensor::Of(kernels::DType::kBF16, most, k, random);
  for (const GroupCase& c : GroupCases()) {
    const GroupedWeight w(*device_, StoredMatrix(c, columns, k, random));
    HostTensor all = HostTensor::Poisoned(kernels::DType::kF32, most, columns);
    ops().matmul.MatMul(all, x, w.weight(), kernels::Tensor());
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 25, 49, 241}) {
      const int64_t first = most - rows;
      HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
      ops().matmul.MatMul(out, x.Rows(first, most), w.weight(), kernels::Tensor());
      ASSERT_EQ(std::memcmp(out.bytes().data(), all.Rows(first, most).data, out.bytes().size()), 0)
          << rows << " rows, " << c.name;
    }
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, most, columns);
    MakeCpu(GetParam(), 3)->ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
    EXPECT_TRUE(out.SameBits(all)) << c.name;
  }
}

TEST_P(GroupsTest, RanksThatShareASumGiveTheBitsOfOne) {
  Random random(85);
  const int64_t rows = 5, columns = 37;
  for (const GroupCase& c : GroupCases()) {
    // Splits of different lengths, some of them empty: 6 and 19 units.
    for (const int64_t units : {6, 19}) {
      std::vector<int64_t> cut;
      for (int i = 0; i <= kernels::kNumSplits; ++i) {
        cut.push_back(i * units / kernels::kNumSplits * c.groups.unit);
      }
      const StoredMatrix stored(c, columns, cut.back(), random);
      const HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, cut.back(), random);
      ExpectRanksGiveTheBitsOfOne(
          GetParam(), x, stored.Elements(), cut,
          [&](kernels::Device& device, const HostTensor& out, const HostTensor& some_x,
              const HostTensor& some_w, const std::vector<int64_t>& split_begin) {
            const GroupedWeight packed(device, stored, some_w, split_begin);
            device.ops().matmul.MatMulSplitK(out, some_x, packed.weight(), split_begin);
          },
          c.name);
    }
  }
}

// A file has matrices of several types, and a layer multiplies one x with several of them.
TEST_P(GroupsTest, ProductsOfOneXTogetherAreThoseOneByOne) {
  Random random(86);
  const int64_t k = 512, rows = 17;
  const HostTensor x = HostTensor::Of(kernels::DType::kF32, rows, k, random);
  std::vector<GroupedWeight> weights;
  for (const GroupCase& c : GroupCases()) {
    weights.emplace_back(*device_, StoredMatrix(c, 40, k, random));
    weights.emplace_back(*device_, StoredMatrix(c, 40, k, random));
  }
  const auto threads = MakeCpu(GetParam(), 3);
  for (size_t i = 0; i + 2 < weights.size(); ++i) {
    std::vector<HostTensor> alone, together;
    std::vector<kernels::Product> products;
    for (size_t j = 0; j < 3; ++j) {
      alone.push_back(HostTensor::Poisoned(kernels::DType::kF32, rows, 40));
      together.push_back(HostTensor::Poisoned(kernels::DType::kF32, rows, 40));
      ops().matmul.MatMul(alone[j], x, weights[i + j].weight(), kernels::Tensor());
    }
    for (size_t j = 0; j < 3; ++j) {
      products.push_back({together[j], weights[i + j].weight(), kernels::Tensor()});
    }
    threads->ops().matmul.MatMuls(x, products);
    for (size_t j = 0; j < 3; ++j) EXPECT_TRUE(together[j].SameBits(alone[j])) << i << " " << j;
    HostTensor gated = HostTensor::Poisoned(kernels::DType::kF32, rows, 40);
    HostTensor scratch = HostTensor::Poisoned(kernels::DType::kF32, rows, 40);
    threads->ops().matmul.GatedMatMul(x, {gated, weights[i].weight(), kernels::Tensor()},
                                      {scratch, weights[i + 1].weight(), kernels::Tensor()},
                                      kernels::GateFunction::kSilu);
    ops().rows.GateMul(kernels::GateFunction::kSilu, alone[0], alone[0], alone[1]);
    EXPECT_TRUE(gated.SameBits(alone[0])) << i;
  }
}

TEST_P(GroupsTest, NanAndInfinityReachTheirRowsAndNoOthers) {
  for (const GroupCase& c : GroupCases()) {
    Random random(87);
    HostTensor x = HostTensor::Of(kernels::DType::kF32, 9, 512, random);
    const GroupedWeight w(*device_, StoredMatrix(c, 40, 512, random));
    HostTensor before = HostTensor::Poisoned(kernels::DType::kF32, 9, 40), after = before.Clone();
    ops().matmul.MatMul(before, x, w.weight(), kernels::Tensor());
    x.Set(4 * 512 + 170, std::numeric_limits<float>::infinity());
    x.Set(6 * 512 + 1, std::numeric_limits<float>::quiet_NaN());
    ops().matmul.MatMul(after, x, w.weight(), kernels::Tensor());
    for (int i = 0; i < 9 * 40; ++i) {
      if (i / 40 == 4 || i / 40 == 6) {
        EXPECT_FALSE(std::isfinite(after.matrix()[i])) << c.name;
      } else {
        ASSERT_EQ(after.matrix()[i], before.matrix()[i]) << c.name;
      }
    }
  }
}

}  // namespace
}  // namespace continuo::testing
