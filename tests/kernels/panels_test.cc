// SPDX-License-Identifier: Apache-2.0
// Tests packed weights: how much packing loses, products beside float64, and equal bits everywhere.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/math/arithmetic.h"
#include "kernels/math/bfloat16.h"
#include "tests/kernels/packed_weight.h"
#include "tests/kernels/rank_sum.h"

namespace continuo::testing {
namespace {

using PanelsTest = IsaTest;
INSTANTIATE_FOR_ISAS(PanelsTest);

constexpr kernels::WeightType kQuantised[] = {kernels::WeightType::kInt8,
                                              kernels::WeightType::kInt4};
constexpr kernels::WeightType kPacked[] = {kernels::WeightType::kF32, kernels::WeightType::kBF16,
                                           kernels::WeightType::kInt8, kernels::WeightType::kInt4};
// Formats that keep numbers as they are, and the types of these numbers.
constexpr std::pair<kernels::WeightType, kernels::DType> kPlain[] = {
    {kernels::WeightType::kF32, kernels::DType::kF32},
    {kernels::WeightType::kBF16, kernels::DType::kBF16}};
constexpr int64_t kGroups[] = {64, 32};  // of kQuantised

// Returns values of very different sizes, as with outliers.
HostTensor Rough(int64_t rows, int64_t cols, Random& random) {
  HostTensor t(kernels::DType::kF32, rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float value = random.Value();
    t.Set(i, random.Below(50) == 0 ? value * 8 : value * 0.37f);
  }
  return t;
}

// Checkpoints that store groups of the same length, or of several, are taken as they are, though
// their values have been rounded to 16 bits.
TEST_P(PanelsTest, GroupsThatAreIntegersTimesAScaleKeepThem) {
  Random random(62);
  for (size_t type = 0; type < 2; ++type) {
    const bool is_int4 = kQuantised[type] == kernels::WeightType::kInt4;
    for (const bool is_bf16 : {true, false}) {
      const auto rounded = [is_bf16](float value) {
        return is_bf16 ? kernels::FromBF16(kernels::ToBF16(value))
                       : kernels::FromF16(kernels::ToF16(value));
      };
      constexpr int64_t kRows = 33, kColumns = 384;
      HostTensor stored(kernels::DType::kF32, kRows, kColumns);
      std::vector<float> meant;
      float scale = 0;
      for (int64_t i = 0; i < kRows * kColumns; ++i) {
        const bool is_first = i % kColumns % kGroups[type] == 0;
        if (is_first) scale = rounded(0.01f * (1.5f + random.Value() / 2));
        const int integer = is_int4    ? random.Below(16) - 8
                            : is_first ? 127
                                       : random.Below(64) + random.Below(64) - 63;
        meant.push_back(static_cast<float>(integer) * scale);
        stored.Set(i, rounded(meant.back()));
      }
      const PackedWeight packed(*device_, kQuantised[type], stored);
      const Matrix got = packed.Unpacked(*device_);
      for (size_t i = 0; i < meant.size(); ++i) {
        // An int4 group's minimum, here up to 8 · 0.025, is an f16.
        ASSERT_NEAR(got[i], meant[i], is_int4 ? 0.2 * 0x1p-11 : 0)
            << NameOf(kQuantised[type]) << " element " << i << (is_bf16 ? " bf16" : " f16");
      }
    }
  }
}

// The largest and least element of a group of one row.
std::pair<double, double> RangeOf(const Matrix& m, int64_t begin, int64_t end) {
  const auto [low, high] = std::minmax_element(m.begin() + begin, m.begin() + end);
  return {*low, *high};
}

// int8 loses half a step of the group's scale at most, its largest element over 127. int4 has
// fifteen steps between the least element and the largest; the line with the least squares may lose
// a whole one of few elements, and f16 its part of the minimum.
TEST_P(PanelsTest, RoundingToAGroupLosesAStepAtMost) {
  Random random(61);
  for (size_t type = 0; type < 2; ++type) {
    for (const auto& [rows, k] : {std::pair{1, 1}, {5, 7}, {16, 64}, {33, 200}, {40, 384}}) {
      const HostTensor matrix = Rough(rows, k, random);
      const PackedWeight packed(*device_, kQuantised[type], matrix);
      const Matrix exact = matrix.matrix(), got = packed.Unpacked(*device_);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t begin = 0; begin < k; begin += kGroups[type]) {
          const int64_t end = std::min<int64_t>(k, begin + kGroups[type]);
          const auto [low, high] = RangeOf(exact, r * k + begin, r * k + end);
          const double top = std::max(std::fabs(low), std::fabs(high));
          const double step = kQuantised[type] == kernels::WeightType::kInt8
                                  ? top / 127 / 2
                                  : (high - low) / 15 + top * 0x1p-10;
          for (int64_t i = begin; i < end; ++i) {
            ASSERT_LE(std::fabs(got[r * k + i] - exact[r * k + i]), step * (1 + 1e-5))
                << NameOf(kQuantised[type]) << " row " << r << " column " << i;
          }
        }
      }
    }
  }
}

TEST_P(PanelsTest, PlainNumbersAreKeptAsTheyAre) {
  Random random(62);
  for (const auto& [weights, type] : kPlain) {
    for (const auto& [rows, k] : {std::pair{1, 1}, {5, 7}, {16, 64}, {33, 201}}) {
      const HostTensor matrix = HostTensor::Of(type, rows, k, random);
      const PackedWeight packed(*device_, weights, matrix);
      EXPECT_EQ(packed.Unpacked(*device_), matrix.matrix());
    }
  }
}

TEST_P(PanelsTest, AnActivatedProductIsTheProductAndThenItsActivation) {
  Random random(71);
  const int64_t k = 150;
  const auto threads = MakeCpu(GetParam(), 3);
  for (const kernels::WeightType weights : kPacked) {
    for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
      for (const int64_t rows : {0, 1, 7, 100, 300}) {
        for (const int64_t columns : {1, 48, 301}) {
          const HostTensor x = HostTensor::Of(type, rows, k, random);
          const PackedWeight w(*device_, weights, Rough(columns, k, random));
          const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, columns, random);
          HostTensor expected = HostTensor::Poisoned(type, rows, columns);
          HostTensor out = HostTensor::Poisoned(type, rows, columns);
          ops().matmul.MatMul(expected, x, w.weight(), bias);
          ops().rows.GateMul(kernels::GateFunction::kGeluErf, expected, expected, {});
          threads->ops().matmul.ActivatedMatMul(x.tensor(), {out, w.weight(), bias},
                                                kernels::GateFunction::kGeluErf);
          EXPECT_TRUE(out.SameBits(expected))
              << NameOf(weights) << ", " << rows << " rows, " << columns << " columns";
        }
      }
    }
  }
}

TEST_P(PanelsTest, ProductsOfOneXTogetherAreThoseOneByOne) {
  Random random(69);
  // Products of any format and size; several at once, with an empty one among them.
  const std::vector<std::vector<kernels::WeightType>> together = {
      {kernels::WeightType::kBF16, kernels::WeightType::kBF16, kernels::WeightType::kBF16},
      {kernels::WeightType::kInt8, kernels::WeightType::kInt8},
      {kernels::WeightType::kInt4, kernels::WeightType::kInt4, kernels::WeightType::kInt4},
      {kernels::WeightType::kInt8, kernels::WeightType::kInt4},
      {kernels::WeightType::kF32, kernels::WeightType::kBF16, kernels::WeightType::kF32},
      {kernels::WeightType::kInt8}};
  const int64_t k = 150, columns[] = {301, 40, 17};
  const auto threads = MakeCpu(GetParam(), 3);
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    for (const int64_t rows : {1, 3, 17, 241, 1000}) {
      const HostTensor x = HostTensor::Of(type, rows, k, random);
      for (const std::vector<kernels::WeightType>& types : together) {
        for (const bool empty : {false, true}) {
          std::vector<PackedWeight> weights;
          std::vector<HostTensor> biases, alone, outs;
          std::vector<kernels::Product> products;
          for (size_t i = 0; i < types.size(); ++i) {
            const int64_t n = empty && i == 1 ? 0 : columns[i];
            weights.emplace_back(*device_, types[i], Rough(n, k, random));
            biases.push_back(i == 1 ? HostTensor()
                                    : HostTensor::Of(kernels::DType::kF32, 1, n, random));
            alone.push_back(HostTensor::Poisoned(type, rows, n));
            outs.push_back(HostTensor::Poisoned(type, rows, n));
          }
          for (size_t i = 0; i < types.size(); ++i) {
            const kernels::Tensor bias = i == 1 ? kernels::Tensor() : biases[i].tensor();
            ops().matmul.MatMul(alone[i], x, weights[i].weight(), bias);
            products.push_back({outs[i], weights[i].weight(), bias});
          }
          threads->ops().matmul.MatMuls(x, products);
          for (size_t i = 0; i < types.size(); ++i) {
            EXPECT_TRUE(outs[i].SameBits(alone[i]))
                << NameOf(types[i]) << " " << i << " of " << types.size() << ", " << rows;
          }
        }
      }
    }
  }
}

TEST_P(PanelsTest, AGatedProductIsItsProductsAndThenTheirGate) {
  Random random(70);
  const std::pair<kernels::WeightType, kernels::WeightType> types[] = {
      {kernels::WeightType::kBF16, kernels::WeightType::kBF16},
      {kernels::WeightType::kInt8, kernels::WeightType::kInt8},
      {kernels::WeightType::kInt4, kernels::WeightType::kInt4},
      {kernels::WeightType::kF32, kernels::WeightType::kF32},
      {kernels::WeightType::kInt8, kernels::WeightType::kInt4}};
  const int64_t k = 150;
  const auto threads = MakeCpu(GetParam(), 3);
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    for (const int64_t rows : {0, 1, 7, 64, 241, 1000}) {
      const HostTensor x = HostTensor::Of(type, rows, k, random);
      for (const int64_t columns : {1, 40, 301}) {
        for (const auto& [gate_type, up_type] : types) {
          const PackedWeight gate(*device_, gate_type, Rough(columns, k, random));
          const PackedWeight up(*device_, up_type, Rough(columns, k, random));
          const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, columns, random);
          HostTensor expected = HostTensor::Poisoned(type, rows, columns);
          HostTensor factor = HostTensor::Poisoned(type, rows, columns);
          for (const kernels::GateFunction function :
               {kernels::GateFunction::kSilu, kernels::GateFunction::kGelu}) {
            const bool silu = function == kernels::GateFunction::kSilu;
            const kernels::Tensor gate_bias = silu ? bias.tensor() : kernels::Tensor();
            const kernels::Tensor up_bias = silu ? kernels::Tensor() : bias.tensor();
            ops().matmul.MatMul(expected, x, gate.weight(), gate_bias);
            ops().matmul.MatMul(factor, x, up.weight(), up_bias);
            if (silu) {
              ops().rows.GateMul(kernels::GateFunction::kSilu, expected, expected, factor);
            } else {
              ops().rows.GateMul(kernels::GateFunction::kGelu, expected, expected, factor);
            }
            HostTensor out = HostTensor::Poisoned(type, rows, columns);
            HostTensor scratch = HostTensor::Poisoned(type, rows, columns);
            threads->ops().matmul.GatedMatMul(x, {out, gate.weight(), gate_bias},
                                              {scratch, up.weight(), up_bias}, function);
            EXPECT_TRUE(out.SameBits(expected))
                << NameOf(gate_type) << ", " << rows << " rows, " << columns << " columns";
          }
        }
      }
    }
  }
}

// The values of x in int8 groups, computed here independently.
Matrix Rounded(const Matrix& x, int64_t rows, int64_t k, int64_t group) {
  Matrix out = x;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t begin = 0; begin < k; begin += group) {
      const int64_t end = std::min(k, begin + group);
      float top = 0;
      for (int64_t i = begin; i < end; ++i) {
        top = std::max(top, std::fabs(static_cast<float>(x[r * k + i])));
      }
      if (top == 0) continue;
      for (int64_t i = begin; i < end; ++i) {
        const float scaled = static_cast<float>(x[r * k + i]) * (127.0f / top);
        out[r * k + i] = std::nearbyint(scaled) * static_cast<double>(top / 127.0f);
      }
    }
  }
  return out;
}

TEST_P(PanelsTest, QuantisedProductsMatchReference) {
  Random random(63);
  for (size_t type = 0; type < 2; ++type) {
    for (const kernels::DType activations : {kernels::DType::kF32, kernels::DType::kBF16}) {
      for (const auto& [rows, columns, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                                {1, 70, 129},
                                                                                {2, 16, 64},
                                                                                {3, 33, 200},
                                                                                {5, 100, 31},
                                                                                {7, 17, 1100},
                                                                                {13, 64, 127},
                                                                                {30, 20, 2500},
                                                                                {250, 9, 40}}) {
        const HostTensor x = HostTensor::Of(activations, rows, k, random);
        const HostTensor matrix = Rough(columns, k, random);
        const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, columns, random);
        const PackedWeight w(*device_, kQuantised[type], matrix);
        const Matrix rounded = Rounded(x.matrix(), rows, k, kGroups[type]);
        const Matrix weights = w.Unpacked(*device_);
        const Matrix expected = ReferenceMatMul(rounded, weights, bias.matrix(), rows, columns, k);
        Matrix ax = rounded, aw = weights;
        for (double& v : ax) v = std::fabs(v);
        // The product that is added to a minimum may be twice as large as the largest element.
        for (int64_t c = 0; c < columns; ++c) {
          for (int64_t begin = 0; begin < k; begin += kGroups[type]) {
            const int64_t first = c * k + begin, end = c * k + std::min(k, begin + kGroups[type]);
            const auto [low, high] = RangeOf(weights, first, end);
            for (int64_t i = first; i < end; ++i) aw[i] = std::fabs(low) + std::fabs(high);
          }
        }
        Matrix bound = ReferenceMatMul(ax, aw, {}, rows, columns, k);
        // Each group has at most four products and two sums, and there is the bias.
        const double steps = 6.0 * (static_cast<double>(k) / kGroups[type] + 1) + 2;
        for (double& v : bound) v = (v + 2) * steps * 0x1p-24;
        for (const kernels::DType out_type : {kernels::DType::kF32, kernels::DType::kBF16}) {
          HostTensor out = HostTensor::Poisoned(out_type, rows, columns);
          ops().matmul.MatMul(out, x, w.weight(), bias);
          SCOPED_TRACE(::testing::Message()
                       << NameOf(kQuantised[type]) << " " << rows << "x" << columns << "x" << k);
          ExpectNear(out, expected, RoundingOf(out_type), bound);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Rows of 1,024 floats begin in one set of the cache, and are copied.
TEST_P(PanelsTest, ProductsOfPlainNumbersMatchReference) {
  Random random(64);
  for (const auto& [weights, type] : kPlain) {
    for (const auto& [rows, columns, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                              {1, 70, 129},
                                                                              {4, 130, 64},
                                                                              {7, 33, 1201},
                                                                              {9, 32, 1024},
                                                                              {13, 64, 2},
                                                                              {250, 20, 600}}) {
      const HostTensor x = HostTensor::Of(type, rows, k, random);
      const HostTensor matrix = HostTensor::Of(type, columns, k, random);
      const PackedWeight w(*device_, weights, matrix);
      const Matrix expected = ReferenceMatMul(x.matrix(), matrix.matrix(), {}, rows, columns, k);
      Matrix ax = x.matrix(), aw = matrix.matrix();
      for (double& v : ax) v = std::fabs(v);
      for (double& v : aw) v = std::fabs(v);
      Matrix bound = ReferenceMatMul(ax, aw, {}, rows, columns, k);
      for (double& v : bound) v = (v + 2) * static_cast<double>(k + 8) * 0x1p-24;
      HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
      ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
      SCOPED_TRACE(::testing::Message()
                   << NameOf(weights) << " " << rows << "x" << columns << "x" << k);
      ExpectNear(out, expected, 0x1p-24, bound);
    }
  }
}

// Sums of integers have no order: scalar, avx2 and avx512 workers may serve one stream one after
// another.
TEST(QuantisedPanelsTest, EveryInstructionSetGivesTheSameBytes) {
  for (const kernels::WeightType type : kQuantised) {
    std::vector<std::byte> expected;
    for (const std::string& isa : AvailableIsas()) {
      const auto device = MakeCpu(isa);
      std::vector<std::byte> bytes;
      Random random(65);
      for (const auto& [rows, columns, k] : std::vector<std::array<int64_t, 3>>{
               {1, 100, 333}, {3, 33, 64}, {12, 70, 1400}, {29, 64, 2304}, {7, 90, 9}}) {
        const HostTensor x = Rough(rows, k, random);
        const PackedWeight w(*device, type, Rough(columns, k, random));
        HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
        device->ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
        bytes.insert(bytes.end(), out.bytes().begin(), out.bytes().end());
      }
      if (expected.empty()) expected = bytes;
      EXPECT_TRUE(bytes == expected) << isa << " " << NameOf(type);
    }
  }
}

TEST_P(PanelsTest, ARowIsTheSameAloneAndInAnyBatch) {
  Random random(66);
  const int64_t k = 1150, columns = 103, most = 500;
  for (const kernels::WeightType type : kPacked) {
    const HostTensor x = HostTensor::Of(kernels::DType::kBF16, most, k, random);
    const PackedWeight w(*device_, type, HostTensor::Of(kernels::DType::kBF16, columns, k, random));
    HostTensor all = HostTensor::Poisoned(kernels::DType::kF32, most, columns);
    ops().matmul.MatMul(all, x, w.weight(), kernels::Tensor());
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 24, 25, 49, 241}) {
      for (const int64_t first : {int64_t{0}, most - rows}) {
        HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
        ops().matmul.MatMul(out, x.Rows(first, first + rows), w.weight(), kernels::Tensor());
        ASSERT_EQ(
            std::memcmp(out.bytes().data(), all.Rows(first, first + rows).data, out.bytes().size()),
            0)
            << rows << " rows from " << first << ", " << NameOf(type);
      }
    }
    for (const int threads : {2, 3}) {
      HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, most, columns);
      MakeCpu(GetParam(), threads)->ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
      EXPECT_TRUE(out.SameBits(all)) << threads << " threads, " << NameOf(type);
    }
  }
}

TEST_P(PanelsTest, RanksThatShareASumGiveTheBitsOfOne) {
  Random random(67);
  const int64_t rows = 5, columns = 37;
  // The splits of an MLP of 1,100 columns, and of 6 heads of 40, some of which are empty.
  for (const auto& [units, unit] : {std::pair<int64_t, int64_t>{1100, 1}, {6, 40}}) {
    std::vector<int64_t> cut;
    for (int i = 0; i <= kernels::kNumSplits; ++i)
      cut.push_back(i * units / kernels::kNumSplits * unit);
    const int64_t width = cut.back();
    for (const kernels::WeightType type : kPacked) {
      const HostTensor x = HostTensor::Of(kernels::DType::kBF16, rows, width, random);
      const HostTensor w = HostTensor::Of(kernels::DType::kBF16, columns, width, random);
      ExpectRanksGiveTheBitsOfOne(
          GetParam(), x, w, cut,
          [type](kernels::Device& device, const HostTensor& out, const HostTensor& some_x,
                 const HostTensor& some_w, const std::vector<int64_t>& split_begin) {
            const PackedWeight packed(device, type, some_w, split_begin);
            device.ops().matmul.MatMulSplitK(out, some_x, packed.weight(), split_begin);
          },
          NameOf(type));
    }
  }
}

TEST_P(PanelsTest, NanAndInfinityReachTheirRowsAndNoOthers) {
  for (const kernels::WeightType type : kPacked) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Random random(68);
      HostTensor x = HostTensor::Of(kernels::DType::kBF16, 9, 300, random);
      const PackedWeight w(*device_, type, HostTensor::Of(kernels::DType::kBF16, 40, 300, random));
      HostTensor before = HostTensor::Poisoned(kernels::DType::kF32, 9, 40), after = before.Clone();
      ops().matmul.MatMul(before, x, w.weight(), kernels::Tensor());
      x.Set(4 * 300 + 170, bad);
      ops().matmul.MatMul(after, x, w.weight(), kernels::Tensor());
      for (int i = 0; i < 9 * 40; ++i) {
        if (i / 40 == 4) {
          EXPECT_FALSE(std::isfinite(after.matrix()[i])) << NameOf(type);
        } else {
          ASSERT_EQ(after.matrix()[i], before.matrix()[i]);
        }
      }
    }
  }
}

TEST_P(PanelsTest, ZerosAndTheSmallestNumbersGiveZeros) {
  for (const kernels::WeightType type : kQuantised) {
    HostTensor x(kernels::DType::kF32, 2, 200), matrix(kernels::DType::kF32, 3, 200);
    for (int i = 0; i < 200; ++i) x.Set(i, 0x1p-140f);
    for (int i = 0; i < 200; ++i) matrix.Set(i, 0x1p-140f);
    for (int i = 0; i < 200; ++i) matrix.Set(400 + i, 1.0f);
    const PackedWeight w(*device_, type, matrix);
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 2, 3);
    ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
    EXPECT_EQ(out.matrix(), Matrix(6, 0.0));
  }
}

TEST_P(PanelsTest, ASumOverNothingIsZeroAndNothingHappensToNoRows) {
  for (const kernels::WeightType type : kPacked) {
    const PackedWeight w(*device_, type, HostTensor(kernels::DType::kF32, 4, 0));
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 3, 4);
    ops().matmul.MatMul(out, HostTensor(kernels::DType::kBF16, 3, 0), w.weight(),
                        kernels::Tensor());
    EXPECT_EQ(out.matrix(), Matrix(12, 0.0));
    ops().matmul.MatMul(HostTensor(kernels::DType::kF32, 0, 4),
                        HostTensor(kernels::DType::kBF16, 0, 0), w.weight(), kernels::Tensor());
  }
}

TEST_P(PanelsTest, EmbedTakesPackedTables) {
  Random random(69);
  for (const kernels::WeightType type : kPacked) {
    const PackedWeight w(*device_, type, HostTensor::Of(kernels::DType::kBF16, 21, 150, random));
    const Matrix table = w.Unpacked(*device_);
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 4, 150);
    ops().rows.Embed(out, w.weight(), HostTensor::OfInts({30, 17, 10, 31}), 10, 2.0f);
    Matrix expected = ReferenceEmbed(table, 21, 150, std::vector<int32_t>{30, 17, 10, 31}, 10);
    for (double& v : expected) v *= 2;
    ExpectNear(out, expected, 0, {0});
  }
}

}  // namespace
}  // namespace continuo::testing
