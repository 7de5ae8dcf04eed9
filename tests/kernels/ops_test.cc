// SPDX-License-Identifier: Apache-2.0
// Compares the ops that treat rows or elements by themselves with their float64 definitions.
#include <cmath>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {
namespace {

using OpsTest = IsaTest;
INSTANTIATE_FOR_ISAS(OpsTest);

constexpr kernels::DType kActivations[] = {kernels::DType::kF32, kernels::DType::kBF16};
constexpr kernels::DType kWeights[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                       kernels::DType::kF16};

TEST_P(OpsTest, EmbedCopiesRowsAndLeavesForeignIdsNeutral) {
  Random random(1);
  const std::vector<int32_t> ids = {10, 14, 9, 15, 12, -1, 1 << 30};
  for (const kernels::DType type : kActivations) {
    for (const kernels::DType table_type : kWeights) {
      for (const int64_t cols : {1, 7, 33, 64}) {
        const HostTensor table = HostTensor::Of(table_type, 5, cols, random);
        HostTensor out = HostTensor::Poisoned(type, 7, cols);
        ops().rows.Embed(out, table.weight(), HostTensor::OfInts(ids), /*first_id=*/10, 1.0f);
        const Matrix expected = ReferenceEmbed(table.matrix(), 5, cols, ids, 10);
        ExpectNear(out, expected, RoundingOf(type), {0});
        const Matrix got = out.matrix();
        for (size_t i = 0; i < got.size(); ++i) {
          if (expected[i] == 0) {
            EXPECT_EQ(std::signbit(got[i]), std::signbit(expected[i]));
          }
        }
      }
    }
  }
}

TEST_P(OpsTest, EmbedOnARankWithoutRowsIsNeutral) {
  HostTensor table(kernels::DType::kBF16, 0, 8);
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 2, 8);
  ops().rows.Embed(out, table.weight(), HostTensor::OfInts({0, 1}), 0, 1.0f);
  for (const double value : out.matrix()) {
    EXPECT_EQ(value, 0);
    EXPECT_TRUE(std::signbit(value));
  }
}

TEST_P(OpsTest, RmsNormMatchesReference) {
  Random random(2);
  for (const kernels::DType type : kActivations) {
    for (const kernels::DType gain_type : kActivations) {
      for (const int64_t n : {1, 5, 8, 17, 64, 100, 1000}) {
        const int64_t heads = 3;
        HostTensor x = HostTensor::Of(type, 4, heads * n, random);
        const HostTensor gain = HostTensor::Of(gain_type, 1, n, random);
        HostTensor out = HostTensor::Poisoned(type, 4, heads * n);
        const Matrix expected = ReferenceRmsNorm(x.matrix(), gain.matrix(), 1e-5f);
        ops().rows.RmsNorm(out, x, gain, 1e-5f);
        // The op is a sum of n squares, then a division, a root, a division and two products.
        const double relative = (static_cast<double>(n) / 8 + 12) * 0x1p-24;
        ExpectNear(out, expected, relative + RoundingOf(type), {1e-30});
        ops().rows.RmsNorm(x, x, gain, 1e-5f);
        EXPECT_TRUE(x.SameBits(out)) << "in place";
      }
    }
  }
}

TEST_P(OpsTest, LayerNormMatchesReference) {
  Random random(21);
  for (const kernels::DType type : kActivations) {
    for (const bool with_bias : {false, true}) {
      for (const int64_t n : {2, 5, 8, 17, 100, 1000}) {
        HostTensor x = HostTensor::Of(type, 4, n, random);
        for (int64_t i = 0; i < n; ++i) x.Set(i, static_cast<float>(x.matrix()[i] + 3));
        const HostTensor gain = HostTensor::Of(kernels::DType::kF32, 1, n, random);
        const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, n, random);
        HostTensor out = HostTensor::Poisoned(type, 4, n);
        const Matrix expected = ReferenceLayerNorm(x.matrix(), gain.matrix(),
                                                   with_bias ? bias.matrix() : Matrix(), 1e-5f);
        const kernels::Tensor added = with_bias ? bias.tensor() : kernels::Tensor();
        ops().rows.LayerNorm(out, x, gain, added, 1e-5f);
        // Sums are in f64; a difference, two products and the bias, which may cancel, are rounded.
        ExpectNear(out, expected, RoundingOf(type), {16 * 0x1p-24});
        ops().rows.LayerNorm(x, x, gain, added, 1e-5f);
        EXPECT_TRUE(x.SameBits(out)) << "in place";
      }
    }
  }
}

// The norm of a row in parts is the norm of the row, whatever the parts.
TEST_P(OpsTest, RmsNormBySquaresIsTheNormOfTheWholeRow) {
  Random random(22);
  constexpr int kHeads = 6, kRows = 3;
  for (const kernels::DType type : kActivations) {
    for (const int width : {1, 8, 20}) {
      const int64_t cols = int64_t{kHeads} * width;
      const HostTensor x = HostTensor::Of(type, kRows, cols, random);
      const HostTensor gain = HostTensor::Of(kernels::DType::kF32, 1, cols, random);
      HostTensor squares = HostTensor::Poisoned(kernels::DType::kF32, kRows, kHeads);
      ops().rows.SumSquares(squares, x, width, 0);
      HostTensor whole = x.Clone();
      ops().rows.RmsNormBySquares(whole, squares, gain, cols, 1e-5f);
      ExpectNear(whole, ReferenceRmsNorm(x.matrix(), gain.matrix(), 1e-5f),
                 16 * 0x1p-24 + RoundingOf(type), {1e-30});
      HostTensor some = HostTensor::Poisoned(kernels::DType::kF32, kRows, 2);
      ops().rows.SumSquares(some, x, width, 3);
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < 2; ++i) {
          EXPECT_EQ(some.matrix()[r * 2 + i], squares.matrix()[r * kHeads + 3 + i]);
        }
      }
      HostTensor part(type, kRows, 2 * width), part_gain(kernels::DType::kF32, 1, 2 * width);
      for (int i = 0; i < 2 * width; ++i) {
        part_gain.Set(i, static_cast<float>(gain.matrix()[2 * width + i]));
        for (int r = 0; r < kRows; ++r) {
          part.Set(r * 2 * width + i, static_cast<float>(x.matrix()[r * cols + 2 * width + i]));
        }
      }
      ops().rows.RmsNormBySquares(part, squares, part_gain, cols, 1e-5f);
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < 2 * width; ++i) {
          EXPECT_EQ(part.matrix()[r * 2 * width + i], whole.matrix()[r * cols + 2 * width + i]);
        }
      }
    }
  }
}

// The groups of a row are rows by themselves, also where the part that is there cuts them.
TEST_P(OpsTest, RmsNormBySquaresOfGroups) {
  Random random(23);
  constexpr int kHeads = 6, kRows = 3;
  const auto cut = [](const HostTensor& t, int64_t begin, int64_t n) {
    HostTensor part(t.tensor().dtype, t.tensor().rows(), n);
    for (int64_t r = 0; r < t.tensor().rows(); ++r) {
      for (int64_t i = 0; i < n; ++i) {
        part.Set(r * n + i, static_cast<float>(t.matrix()[r * t.tensor().cols() + begin + i]));
      }
    }
    return part;
  };
  for (const kernels::DType type : kActivations) {
    for (const int width : {1, 8, 20}) {
      const int64_t cols = int64_t{kHeads} * width;
      const HostTensor x = HostTensor::Of(type, kRows, cols, random);
      const HostTensor gain = HostTensor::Of(kernels::DType::kF32, 1, cols, random);
      HostTensor squares = HostTensor::Poisoned(kernels::DType::kF32, kRows, kHeads);
      ops().rows.SumSquares(squares, x, width, 0);
      for (const int64_t num_groups : {2, 3, 6}) {
        const int64_t sharing = kHeads / num_groups, in_group = sharing * width;
        HostTensor whole = x.Clone();
        ops().rows.RmsNormBySquares(whole, squares, gain, cols, 1e-5f, {num_groups, 0});
        for (int64_t g = 0; g < num_groups; ++g) {
          HostTensor part = cut(x, g * in_group, in_group);
          ops().rows.RmsNormBySquares(part, cut(squares, g * sharing, sharing),
                                      cut(gain, g * in_group, in_group), in_group, 1e-5f);
          EXPECT_TRUE(part.SameBits(cut(whole, g * in_group, in_group)));
        }
        for (const auto& [first, heads] : {std::pair{1, 4}, std::pair{0, 5}, std::pair{5, 1}}) {
          HostTensor part = cut(x, int64_t{first} * width, int64_t{heads} * width);
          ops().rows.RmsNormBySquares(part, squares,
                                      cut(gain, int64_t{first} * width, int64_t{heads} * width),
                                      cols, 1e-5f, {num_groups, first});
          EXPECT_TRUE(part.SameBits(cut(whole, int64_t{first} * width, int64_t{heads} * width)));
        }
      }
    }
  }
}

TEST_P(OpsTest, ScaleMultiplies) {
  Random random(23);
  HostTensor x = HostTensor::Of(kernels::DType::kF32, 3, 77, random);
  const Matrix before = x.matrix();
  ops().rows.Scale(x, 0.3f);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(x.matrix()[i], static_cast<float>(before[i]) * 0.3f);
  }
}

TEST_P(OpsTest, ScaleByMultipliesAndRoundsOnce) {
  Random random(25);
  const HostTensor factor = HostTensor::OfFloats({0.3f});
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    HostTensor x = HostTensor::Of(type, 3, 77, random);
    Matrix expected = x.matrix();
    for (double& value : expected) value *= 0.3f;
    ops().rows.ScaleBy(x, factor);
    ExpectNear(x, expected, RoundingOf(type), {0});
  }
}

TEST_P(OpsTest, AddSumRoundsTwice) {
  Random random(3);
  for (const kernels::DType type : kActivations) {
    for (const bool with_bias : {false, true}) {
      for (const int64_t cols : {1, 9, 64, 130}) {
        HostTensor x = HostTensor::Of(type, 5, cols, random);
        const HostTensor sum = HostTensor::Of(kernels::DType::kF32, 5, cols, random, 0.37f);
        const HostTensor bias =
            with_bias ? HostTensor::Of(kernels::DType::kF32, 1, cols, random, 0.11f) : HostTensor();
        const Matrix before = x.matrix(), s = sum.matrix();
        const Matrix b = with_bias ? bias.matrix() : Matrix();
        ops().rows.AddSum(x, sum, with_bias ? bias.tensor() : kernels::Tensor());
        const Matrix got = x.matrix();
        for (size_t i = 0; i < got.size(); ++i) {
          float addend = static_cast<float>(s[i]);
          if (with_bias) addend += static_cast<float>(b[i % cols]);
          if (type == kernels::DType::kBF16) addend = kernels::FromBF16(kernels::ToBF16(addend));
          float expected = static_cast<float>(before[i]) + addend;
          if (type == kernels::DType::kBF16)
            expected = kernels::FromBF16(kernels::ToBF16(expected));
          ASSERT_EQ(got[i], expected);
        }
      }
    }
  }
}

TEST_P(OpsTest, RopeAnglesAreRightFarOut) {
  const std::vector<int32_t> positions = {0, 1, 2, 77, 4095, 131071, 1000003};
  HostTensor frequencies(kernels::DType::kF32, 1, 5);
  const float values[] = {1.0f, 0.1f, 0.0123f, 1e-4f, 2.5e-6f};
  for (int i = 0; i < 5; ++i) frequencies.Set(i, values[i]);
  HostTensor angles = HostTensor::Poisoned(kernels::DType::kF32, 7, 10);
  ops().attention.RopeAngles(angles, HostTensor::OfInts(positions), frequencies, 1.25f);
  ExpectNear(angles, ReferenceRopeAngles(positions, frequencies.matrix(), 1.25), 0, {0x1.1p-23});
}

TEST_P(OpsTest, GrowAnglesScalesBySteps) {
  Random random(24);
  const std::vector<int32_t> positions = {0, 1, 15, 16, 47, 48, 100000};
  const HostTensor angles = HostTensor::Of(kernels::DType::kF32, 7, 10, random);
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 7, 10);
  ops().attention.GrowAngles(out, angles, HostTensor::OfInts(positions), {0.1, 16});
  ExpectNear(out, ReferenceGrowAngles(angles.matrix(), positions, {0.1, 16}), 2 * 0x1p-24, {0});
  EXPECT_EQ(out.matrix()[25], angles.matrix()[25]);
  EXPECT_NE(out.matrix()[35], angles.matrix()[35]);
  // The 16th position is the first that grows where positions count from 1.
  ops().attention.GrowAngles(out, angles, HostTensor::OfInts(positions), {0.1, 16, 1});
  ExpectNear(out, ReferenceGrowAngles(angles.matrix(), positions, {0.1, 16, 1}), 2 * 0x1p-24, {0});
  EXPECT_EQ(out.matrix()[15], angles.matrix()[15]);
  EXPECT_NE(out.matrix()[25], angles.matrix()[25]);
}

TEST_P(OpsTest, RopeRotatesTheFirstPartOfEachHead) {
  Random random(5);
  for (const kernels::DType type : kActivations) {
    for (const int64_t n : {1, 3, 8, 16, 37}) {
      for (const int64_t rest : {0, 5}) {
        const int64_t head_dim = 2 * n + rest, cols = 3 * head_dim;
        HostTensor x = HostTensor::Of(type, 4, cols, random);
        const HostTensor angles = HostTensor::Of(kernels::DType::kF32, 4, 2 * n, random, 0.5f);
        const Matrix expected = ReferenceRope(x.matrix(), angles.matrix(), 4, cols, head_dim);
        ops().attention.Rope(x, angles, static_cast<int>(head_dim));
        ExpectNear(x, expected, RoundingOf(type), {3 * 4 * 0x1p-24});
      }
    }
  }
}

TEST_P(OpsTest, WriteKvPutsRowsIntoTheirSlots) {
  Random random(6);
  const int heads = 2, dim = 5, block_size = 4;
  for (const kernels::DType type : kActivations) {
    for (const kernels::DType cache_type : kActivations) {
      HostTensor cache(cache_type, {3, heads, 2 * block_size * dim});
      const HostTensor k = HostTensor::Of(type, 3, heads * dim, random),
                       v = HostTensor::Of(type, 3, heads * dim, random);
      const std::vector<int32_t> slots = {11, 0, 6};
      kernels::PagedKv kv;
      kv.cache = cache;
      kv.block_size = block_size;
      ops().attention.WriteKv(kv, k, v, HostTensor::OfInts(slots));
      Matrix expected(240, 0.0);
      for (int r = 0; r < 3; ++r) {
        for (int c = 0; c < heads * dim; ++c) {
          const int block = slots[r] / block_size, head = c / dim;
          const int row = (block * heads + head) * 2 * block_size + slots[r] % block_size;
          expected[row * dim + c % dim] = k.matrix()[r * heads * dim + c];
          expected[(row + block_size) * dim + c % dim] = v.matrix()[r * heads * dim + c];
        }
      }
      ExpectNear(cache, expected, RoundingOf(cache_type), {0});
    }
  }
}

TEST_P(OpsTest, WriteKvRoundsToInt8PerPositionAndHead) {
  Random random(9);
  const int heads = 2, dim = 5, block_size = 3;
  for (const kernels::DType type : kActivations) {
    HostTensor cache(kernels::DType::kI8,
                     {2, heads, 2 * block_size * kernels::KvRowElements(kernels::DType::kI8, dim)});
    HostTensor k = HostTensor::Of(type, 2, heads * dim, random, 3.0f);
    const HostTensor v = HostTensor::Of(type, 2, heads * dim, random, 0.01f);
    for (int i = 0; i < dim; ++i) k.Set(dim + i, 0);  // a head of zeros
    kernels::PagedKv kv;
    kv.cache = cache;
    kv.block_size = block_size;
    const std::vector<int32_t> slots = {4, 2};
    ops().attention.WriteKv(kv, k, v, HostTensor::OfInts(slots));
    for (int r = 0; r < 2; ++r) {
      for (int which = 0; which < 2; ++which) {
        const Matrix from = (which == 0 ? k : v).matrix();
        for (int head = 0; head < heads; ++head) {
          const int64_t half = ((slots[r] / block_size * heads + head) * 2 + which) * block_size *
                               kernels::KvRowElements(kernels::DType::kI8, dim);
          const std::byte* rows = cache.bytes().data() + half;
          float scale;
          std::memcpy(&scale, rows + block_size * dim + slots[r] % block_size * 4, sizeof(scale));
          double top = 0;
          for (int d = 0; d < dim; ++d) {
            const double x = from[(r * heads + head) * dim + d];
            const int n = static_cast<int8_t>(rows[slots[r] % block_size * dim + d]);
            EXPECT_NEAR(n * static_cast<double>(scale), x, scale * 0.5001);
            EXPECT_LE(std::abs(n), 127);
            top = std::max(top, std::fabs(x));
          }
          EXPECT_FLOAT_EQ(scale, static_cast<float>(top / 127));
        }
      }
    }
  }
}

TEST_P(OpsTest, CopyKvBlocksCopiesInOrder) {
  Random random(7);
  const HostTensor cache = HostTensor::Of(kernels::DType::kBF16, 4, 12, random);
  const Matrix before = cache.matrix();
  kernels::PagedKv kv;
  kv.cache = cache;
  ops().attention.CopyKvBlocks(kv, HostTensor::OfInts({0, 2, 2, 3, 1, 1}, 2));
  for (int i = 0; i < 12; ++i) {
    for (const int block : {2, 3}) EXPECT_EQ(cache.matrix()[block * 12 + i], before[i]);
    EXPECT_EQ(cache.matrix()[12 + i], before[12 + i]);
  }
}

TEST_P(OpsTest, EmbedScalesRowsButNotForeignOnes) {
  Random random(10);
  for (const kernels::DType type : kActivations) {
    const HostTensor table = HostTensor::Of(kernels::DType::kBF16, 2, 19, random);
    HostTensor out = HostTensor::Poisoned(type, 2, 19);
    ops().rows.Embed(out, table.weight(), HostTensor::OfInts({1, 2}), 0, 45.25f);
    Matrix expected = ReferenceEmbed(table.matrix(), 2, 19, std::vector<int32_t>{1, 2}, 0);
    for (double& v : expected) v *= 45.25;
    ExpectNear(out, expected, RoundingOf(type), {0});
    for (int i = 19; i < 38; ++i) EXPECT_TRUE(std::signbit(out.matrix()[i]));
  }
}

TEST_P(OpsTest, SoftCapMatchesReferenceFromTinyToHuge) {
  Random random(12);
  for (const float cap : {0.5f, 30.0f}) {
    for (const float size : {1e-20f, 1e-3f, 0.1f, 1.0f, 10.0f, 1e4f, 1e30f}) {
      HostTensor x = HostTensor::Of(kernels::DType::kF32, 3, 101, random, size);
      const Matrix expected = ReferenceSoftCap(x.matrix(), cap);
      ops().rows.SoftCap(x, cap);
      ExpectNear(x, expected, 8 * 0x1p-23, {1e-40});
    }
  }
}

TEST_P(OpsTest, CopyHeadsCopiesParts) {
  Random random(19);
  for (const kernels::DType type : kActivations) {
    const HostTensor shared = HostTensor::Of(type, 5, 3, random);
    const HostTensor own = HostTensor::Of(type, 5, 14, random);
    HostTensor out = HostTensor::Of(type, 5, 13, random);
    const Matrix before = out.matrix();
    // Two heads of six elements from the second on: two of the shared ones, then three of seven.
    ops().rows.CopyHeads(
        out, shared, {.num_heads = 2, .count = 2, .out_stride = 6, .out_begin = 1, .x_begin = 1});
    ops().rows.CopyHeads(
        out, own,
        {.num_heads = 2, .count = 3, .out_stride = 6, .out_begin = 3, .x_stride = 7, .x_begin = 4});
    ops().rows.CopyHeads(out, own, {.num_heads = 0, .count = 3, .out_stride = 6});
    Matrix expected = before;
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t i = 0; i < 2; ++i) {
          expected[r * 13 + h * 6 + 1 + i] = shared.matrix()[r * 3 + 1 + i];
        }
        for (int64_t i = 0; i < 3; ++i) {
          expected[r * 13 + h * 6 + 3 + i] = own.matrix()[r * 14 + h * 7 + 4 + i];
        }
      }
    }
    EXPECT_EQ(out.matrix(), expected);
  }
}

TEST_P(OpsTest, GatherRowsCopiesRows) {
  Random random(9);
  for (const kernels::DType type : kActivations) {
    const HostTensor x = HostTensor::Of(type, 6, 11, random);
    HostTensor out = HostTensor::Poisoned(type, 4, 11);
    ops().rows.GatherRows(out, x, HostTensor::OfInts({5, 0, 0, 3}));
    int i = 0;
    for (const int row : {5, 0, 0, 3}) {
      for (int c = 0; c < 11; ++c) EXPECT_EQ(out.matrix()[i++], x.matrix()[row * 11 + c]);
    }
  }
}

TEST_P(OpsTest, RoundingToBF16IsNearestEvenAndKeepsNan) {
  // GatherRows rounds nothing; Embed of f32 rounds.
  const uint32_t patterns[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff,
                               0x7f800000, 0xff800001, 0x7fffffff, 0x00000001, 0x80008000};
  HostTensor table(kernels::DType::kF32, 1, 10);
  for (int i = 0; i < 10; ++i) table.Set(i, std::bit_cast<float>(patterns[i]));
  HostTensor out(kernels::DType::kBF16, 1, 10);
  ops().rows.Embed(out, table.weight(), HostTensor::OfInts({0}), 0, 1.0f);
  for (int i = 0; i < 10; ++i) {
    uint16_t bits;
    std::memcpy(&bits, out.bytes().data() + 2 * i, 2);
    EXPECT_EQ(bits, kernels::ToBF16(std::bit_cast<float>(patterns[i]))) << i;
  }
  EXPECT_EQ(kernels::ToBF16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(kernels::ToBF16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(kernels::ToBF16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
}

TEST_P(OpsTest, EveryF16IsWidenedExactly) {
  HostTensor table(kernels::DType::kF16, 1, 65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    std::memcpy(const_cast<std::byte*>(table.bytes().data()) + 2 * i, &bits, 2);
  }
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 1, 65536);
  ops().rows.Embed(out, table.weight(), HostTensor::OfInts({0}), 0, 1.0f);
  const Matrix got = out.matrix();
  for (int i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31, fraction = i & 1023;
    const double sign = (i & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) {
      EXPECT_TRUE(fraction != 0 ? std::isnan(got[i]) : got[i] == sign * INFINITY) << i;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(got[i], sign * magnitude) << i;
    }
  }
}

TEST_P(OpsTest, NothingHappensToNoRows) {
  for (const kernels::DType type : kActivations) {
    HostTensor none(type, 0, 8), gain(type, 1, 8), sum(kernels::DType::kF32, 0, 8);
    ops().rows.RmsNorm(none, none, gain, 1e-5f);
    ops().rows.GateMul(kernels::GateFunction::kSilu, none, none, none);
    ops().rows.AddSum(none, sum, kernels::Tensor());
    ops().rows.GatherRows(none, none, HostTensor::OfInts({}));
    HostTensor no_columns(type, 3, 0);
    ops().attention.Rope(no_columns, HostTensor(kernels::DType::kF32, 3, 8), 8);
  }
}

TEST(MakeDeviceTest, UnknownNamesAreListedWithWhatThereIs) {
  const auto isa = kernels::MakeDevice({.device = "cpu", .isa = "mmx"});
  EXPECT_EQ(isa.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(isa.status().message()), ::testing::HasSubstr("mmx"));
  EXPECT_THAT(std::string(isa.status().message()), ::testing::HasSubstr("scalar"));
  const auto device = kernels::MakeDevice({.device = "tpu"});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device.status().message()), ::testing::HasSubstr("cpu"));
  EXPECT_EQ(kernels::MakeDevice({.device = "cpu", .num_threads = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MakeDeviceTest, MemoryIsZeroedAlignedAndRefusedWithItsSize) {
  const auto device = MakeCpu("auto");
  EXPECT_THAT(device->name(), ::testing::StartsWith("cpu/"));
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{5} << 20}) {
    const auto data = device->Allocate(bytes);
    ASSERT_TRUE(data.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*data) % 64, 0u);
    for (size_t i = 0; i < bytes; i += 97) EXPECT_EQ(static_cast<char*>(*data)[i], 0);
    device->Free(*data);
  }
  const auto much = device->Allocate(size_t{1} << 60);
  EXPECT_EQ(much.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(much.status().message()), ::testing::HasSubstr("1152921504606846976"));
}

}  // namespace
}  // namespace continuo::testing
