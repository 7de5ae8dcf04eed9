// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/cuda/sampled.h"
#include "tests/kernels/host_tensor.h"

// Ops on rows and elements of a Device whose memory the host does not read, against their
// definitions in float64. The cases run on whatever is linked: the shim or a device. Outputs hold
// NaN before.
namespace continuo::testing {

// The ids include those at the table's ends and beyond them.
inline void CheckEmbed(kernels::Device& b, int64_t table_rows, const std::vector<int64_t>& widths,
                       int64_t num_ids) {
  SCOPED_TRACE(::testing::Message() << "table of " << table_rows);
  constexpr int kFirst = 10;
  Random random(1);
  const auto end = static_cast<int32_t>(kFirst + table_rows);
  std::vector<int32_t> ids = {kFirst, end - 1, kFirst - 1, end, (kFirst + end) / 2, -1, 1 << 30};
  while (static_cast<int64_t>(ids.size()) < num_ids) {
    ids.push_back(kFirst + random.Below(static_cast<int>(table_rows)));
  }
  // The rows that the ids name, one behind the other, and the ids of those.
  std::vector<int64_t> named;
  std::vector<int32_t> ids_of_named;
  for (const int32_t id : ids) {
    const bool is_there = id >= kFirst && id < end;
    ids_of_named.push_back(is_there ? static_cast<int32_t>(named.size()) : -1);
    if (is_there) named.push_back(id - kFirst);
  }
  const auto n = static_cast<int64_t>(ids.size());
  const DeviceTensor device_ids(b, HostTensor::OfInts(ids));
  for (const kernels::DType table_type : kActivations) {
    for (const int64_t cols : widths) {
      const HostTensor table = HostTensor::Of(table_type, table_rows, cols, random);
      const DeviceTensor weights(b, table);
      const Matrix expected = ReferenceEmbed(
          RowsOf(table, named).matrix(), static_cast<int64_t>(named.size()), cols, ids_of_named, 0);
      for (const kernels::DType type : kActivations) {
        // f16 becomes f16, or f32 where ranks add up their parts.
        if (table_type == kernels::DType::kF16 ? type == kernels::DType::kBF16
                                               : type == kernels::DType::kF16)
          continue;
        const DeviceTensor out(b, HostTensor::Poisoned(type, n, cols));
        b.ops().rows.Embed(out, weights.weight(), device_ids, kFirst, 1.0f);
        const HostTensor got = out.Get();
        ExpectNear(got, expected, RoundingOf(type), {0});
        const Matrix values = got.matrix();
        for (size_t i = 0; i < expected.size(); ++i) {
          if (expected[i] == 0) {
            ASSERT_EQ(std::signbit(values[i]), std::signbit(expected[i]));
          }
        }
      }
    }
  }
}

// Checks every f16 to f32 and back, and every f32 at which rounding to f16 changes.
inline void CheckF16(kernels::Device& b) {
  HostTensor table(kernels::DType::kF16, 256, 256);
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(static_cast<uint16_t*>(table.tensor().data) + i, &bits, sizeof(bits));
  }
  std::vector<int32_t> ids(256);
  for (int i = 0; i < 256; ++i) ids[static_cast<size_t>(i)] = i;
  const DeviceTensor device_ids(b, HostTensor::OfInts(ids)), weights(b, table);
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kF16}) {
    const DeviceTensor out(b, HostTensor::Poisoned(type, 256, 256));
    b.ops().rows.Embed(out, weights.weight(), device_ids, 0, 1.0f);
    const Matrix got = out.Get().matrix(), expected = table.matrix();
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_EQ(got[i], expected[i]) << i;
        ASSERT_EQ(std::signbit(got[i]), std::signbit(expected[i])) << i;
      }
    }
  }
  std::vector<float> values = {65519.996f, 65520, 65536, 1e30f, INFINITY, 0x1p-149f};
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const float low = kernels::FromF16(static_cast<uint16_t>(bits));
    const float middle = low + (kernels::FromF16(static_cast<uint16_t>(bits + 1)) - low) / 2;
    values.insert(values.end(),
                  {low, std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e6f)});
  }
  const auto n = static_cast<int64_t>(values.size());
  for (const float sign : {1.0f, -1.0f}) {
    HostTensor x(kernels::DType::kF16, 1, n), sum(kernels::DType::kF32, 1, n),
        expected(kernels::DType::kF16, 1, n);
    for (int64_t i = 0; i < n; ++i) {
      const float value = sign * values[static_cast<size_t>(i)];
      x.Set(i, -0.0f);
      sum.Set(i, value);
      expected.Set(i, value);
    }
    const DeviceTensor to(b, x), sums(b, sum);
    b.ops().rows.AddSum(to, sums, kernels::Tensor());
    EXPECT_TRUE(to.Get().SameBits(expected)) << sign;
  }
}

// Bounds the error of a norm of n elements before it is rounded: a thread's multiply-adds and 8
// levels of the tree, halved by the root, then a quotient, a sum, a root, a reciprocal and two
// products.
inline double RmsNormError(int64_t n) {
  return ((static_cast<double>(n) / 256 + 9) / 2 + 6) * 0x1p-24;
}

inline void CheckRmsNorm(kernels::Device& b, int64_t rows, const std::vector<int64_t>& widths) {
  Random random(2);
  for (const kernels::DType type : kActivations) {
    for (const int64_t n : widths) {
      const HostTensor x = HostTensor::Of(type, rows, 3 * n, random);
      const HostTensor gain = HostTensor::Of(kernels::DType::kF32, 1, n, random);
      const DeviceTensor in(b, x), gains(b, gain), out(b, HostTensor::Poisoned(type, rows, 3 * n));
      b.ops().rows.RmsNorm(out, in, gains, 1e-5f);
      const Matrix expected = ReferenceRmsNorm(x.matrix(), gain.matrix(), 1e-5f);
      ExpectNear(out.Get(), expected, RmsNormError(n) + RoundingOf(type), {1e-30});
      b.ops().rows.RmsNorm(in, in, gains, 1e-5f);
      EXPECT_TRUE(in.Get().SameBits(out.Get())) << "in place";
    }
  }
}

inline void CheckLayerNorm(kernels::Device& b, int64_t rows, const std::vector<int64_t>& widths) {
  Random random(21);
  for (const kernels::DType type : kActivations) {
    for (const bool with_bias : {false, true}) {
      for (const int64_t n : widths) {
        const HostTensor x = HostTensor::Of(type, rows, n, random);
        const HostTensor gain = HostTensor::Of(kernels::DType::kF32, 1, n, random);
        const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, n, random);
        const DeviceTensor in(b, x), gains(b, gain), biases(b, bias),
            out(b, HostTensor::Poisoned(type, rows, n));
        const kernels::Tensor added = with_bias ? kernels::Tensor(biases) : kernels::Tensor();
        b.ops().rows.LayerNorm(out, in, gains, added, 1e-5f);
        const Matrix expected = ReferenceLayerNorm(x.matrix(), gain.matrix(),
                                                   with_bias ? bias.matrix() : Matrix(), 1e-5f);
        // The mean's error counts as that of a sum, and the bias may cancel.
        ExpectNear(out.Get(), expected, RmsNormError(n) + RoundingOf(type), {8 * RmsNormError(n)});
        b.ops().rows.LayerNorm(in, in, gains, added, 1e-5f);
        EXPECT_TRUE(in.Get().SameBits(out.Get())) << "in place";
      }
    }
  }
}

// Checks a norm whose rows come in two parts, each of some heads.
inline void CheckRmsNormBySquares(kernels::Device& b, int64_t rows, int heads,
                                  const std::vector<int64_t>& widths) {
  Random random(22);
  for (const kernels::DType type : kActivations) {
    for (const int64_t width : widths) {
      const int64_t cols = heads * width;
      const HostTensor x = HostTensor::Of(type, rows, cols, random);
      const HostTensor gain = HostTensor::Of(kernels::DType::kF32, 1, cols, random);
      const DeviceTensor in(b, x), gains(b, gain),
          squares(b, HostTensor::Poisoned(kernels::DType::kF32, rows, heads)),
          last(b, HostTensor::Poisoned(kernels::DType::kF32, rows, 1));
      b.ops().rows.SumSquares(squares, in, static_cast<int>(width), 0);
      b.ops().rows.SumSquares(last, in, static_cast<int>(width), heads - 1);
      for (int64_t r = 0; r < rows; ++r) {
        EXPECT_EQ(last.Get().matrix()[r], squares.Get().matrix()[(r + 1) * heads - 1]);
      }
      b.ops().rows.RmsNormBySquares(in, squares, gains, cols, 1e-5f);
      const Matrix expected = ReferenceRmsNorm(x.matrix(), gain.matrix(), 1e-5f);
      ExpectNear(in.Get(), expected, RmsNormError(cols) + RoundingOf(type), {1e-30});
      // Each head by itself: a norm of rows of one head, whose gains differ.
      const DeviceTensor again(b, x), ones(b, HostTensor::OfFloats(std::vector<float>(cols, 1.0f)));
      b.ops().rows.RmsNormBySquares(again, squares, ones, cols, 1e-5f, {heads, 0});
      const Matrix by_head =
          ReferenceRmsNorm(x.matrix(), std::vector<double>(static_cast<size_t>(width), 1.0), 1e-5f);
      ExpectNear(again.Get(), by_head, RmsNormError(width) + RoundingOf(type), {1e-30});
    }
  }
}

inline void CheckScale(kernels::Device& b, int64_t rows, int64_t cols) {
  Random random(23);
  const HostTensor x = HostTensor::Of(kernels::DType::kF32, rows, cols, random);
  const DeviceTensor scaled(b, x);
  b.ops().rows.Scale(scaled, 0.3f);
  for (int64_t i = 0; i < rows * cols; ++i) {
    EXPECT_EQ(scaled.Get().matrix()[i], static_cast<float>(x.matrix()[i]) * 0.3f);
  }
}

inline void CheckScaleBy(kernels::Device& b, int64_t rows, int64_t cols) {
  Random random(25);
  const DeviceTensor factor(b, HostTensor::OfFloats({0.3f}));
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    const HostTensor x = HostTensor::Of(type, rows, cols, random);
    const DeviceTensor scaled(b, x);
    b.ops().rows.ScaleBy(scaled, factor);
    Matrix expected = x.matrix();
    for (double& value : expected) value *= 0.3f;
    ExpectNear(scaled.Get(), expected, RoundingOf(type), {0});
  }
}

inline void CheckGrowAngles(kernels::Device& b) {
  Random random(24);
  const std::vector<int32_t> positions = {0, 15, 16, 48, 100000};
  const HostTensor angles = HostTensor::Of(kernels::DType::kF32, 5, 10, random);
  const DeviceTensor in(b, angles), at(b, HostTensor::OfInts(positions)),
      out(b, HostTensor::Poisoned(kernels::DType::kF32, 5, 10));
  for (const int64_t offset : {0, 1}) {
    const kernels::QueryGrowth growth = {0.1, 16, offset};
    b.ops().attention.GrowAngles(out, in, at, growth);
    ExpectNear(out.Get(), ReferenceGrowAngles(angles.matrix(), positions, growth), 2 * 0x1p-24,
               {0});
  }
}

// Checks functions alone against those with a factor of 1.
inline void CheckPlainGates(kernels::Device& b, int64_t rows, const std::vector<int64_t>& widths) {
  Random random(25);
  for (const kernels::DType type : kActivations) {
    for (const int64_t cols : widths) {
      HostTensor ones(type, rows, cols);
      for (int64_t i = 0; i < rows * cols; ++i) ones.Set(i, 1.0f);
      const DeviceTensor gate(b, HostTensor::Of(type, rows, cols, random, 3.0f)), up(b, ones),
          out(b, HostTensor::Poisoned(type, rows, cols));
      for (const auto function : {kernels::GateFunction::kSilu, kernels::GateFunction::kGelu}) {
        b.ops().rows.GateMul(function, out, gate, up);
        const HostTensor expected = out.Get();
        b.ops().rows.GateMul(function, out, gate, kernels::Tensor());
        EXPECT_TRUE(out.Get().SameBits(expected));
      }
    }
  }
}

// Computes AddSum to the bit.
inline Matrix WithSum(kernels::DType type, const HostTensor& x, const HostTensor& sum,
                      const Matrix& bias) {
  Matrix all = x.matrix();
  const Matrix sums = sum.matrix();
  for (size_t i = 0; i < all.size(); ++i) {
    float addend = static_cast<float>(sums[i]);
    if (!bias.empty()) addend += static_cast<float>(bias[i % bias.size()]);
    all[i] = RoundedTo(type, static_cast<float>(all[i]) + RoundedTo(type, addend));
  }
  return all;
}

// Checks AddSum, then AddSumNorm of the same, which has to have the bits of the single ops as well.
inline void CheckAddSum(kernels::Device& b, int64_t rows, const std::vector<int64_t>& widths) {
  Random random(3);
  for (const kernels::DType type : kActivations) {
    for (const bool with_bias : {false, true}) {
      for (const int64_t cols : widths) {
        SCOPED_TRACE(::testing::Message() << NameOf(type) << ' ' << rows << " x " << cols);
        const HostTensor x = HostTensor::Of(type, rows, cols, random);
        const HostTensor sum = HostTensor::Of(kernels::DType::kF32, rows, cols, random, 0.37f);
        const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, cols, random, 0.11f);
        const HostTensor gain = HostTensor::Of(kernels::DType::kF32, 1, cols, random);
        const DeviceTensor to(b, x), sums(b, sum), biases(b, bias), gains(b, gain);
        const kernels::Tensor added = with_bias ? kernels::Tensor(biases) : kernels::Tensor();
        const Matrix expected = WithSum(type, x, sum, with_bias ? bias.matrix() : Matrix());
        b.ops().rows.AddSum(to, sums, added);
        EXPECT_TRUE(to.Get().matrix() == expected);
        const DeviceTensor stream(b, x), out(b, HostTensor::Poisoned(type, rows, cols));
        const DeviceTensor normed(b, HostTensor::Poisoned(type, rows, cols));
        b.ops().rows.AddSumNorm(out, stream, sums, added, gains, 1e-5f);
        EXPECT_TRUE(stream.Get().matrix() == expected);
        const HostTensor got = out.Get();
        ExpectNear(got, ReferenceRmsNorm(expected, gain.matrix(), 1e-5f),
                   RmsNormError(cols) + RoundingOf(type), {1e-30});
        b.ops().rows.RmsNorm(normed, to, gains, 1e-5f);
        EXPECT_TRUE(got.SameBits(normed.Get()));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

inline void CheckRopeAngles(kernels::Device& b, const std::vector<int32_t>& positions,
                            const std::vector<float>& values, float scale) {
  const auto rows = static_cast<int64_t>(positions.size());
  const auto n = static_cast<int64_t>(values.size());
  HostTensor frequencies(kernels::DType::kF32, 1, n);
  for (int64_t i = 0; i < n; ++i) frequencies.Set(i, values[static_cast<size_t>(i)]);
  const DeviceTensor p(b, HostTensor::OfInts(positions)), f(b, frequencies);
  const DeviceTensor angles(b, HostTensor::Poisoned(kernels::DType::kF32, rows, 2 * n));
  b.ops().attention.RopeAngles(angles, p, f, scale);
  ExpectNear(angles.Get(), ReferenceRopeAngles(positions, frequencies.matrix(), scale), 0,
             {0x1.1p-23});
}

// `n` is the number of frequencies.
inline void CheckRope(kernels::Device& b, int64_t rows, int64_t heads, int64_t head_dim,
                      int64_t n) {
  SCOPED_TRACE(::testing::Message() << rows << " rows, " << heads << " heads of " << head_dim);
  Random random(5);
  for (const kernels::DType type : kActivations) {
    const HostTensor x = HostTensor::Of(type, rows, heads * head_dim, random);
    const HostTensor angles = HostTensor::Of(kernels::DType::kF32, rows, 2 * n, random, 0.5f);
    const DeviceTensor to(b, x), by(b, angles);
    b.ops().attention.Rope(to, by, static_cast<int>(head_dim));
    ExpectNear(to.Get(),
               ReferenceRope(x.matrix(), angles.matrix(), rows, heads * head_dim, head_dim),
               RoundingOf(type), {3 * 4 * 0x1p-24});
  }
}

inline void CheckRopes(kernels::Device& b) {
  CheckRopeAngles(b, {0, 1, 2, 77, 4095, 131071, 1000003}, {1.0f, 0.1f, 0.0123f, 1e-4f, 2.5e-6f},
                  1.25f);
  for (const int64_t n : {1, 3, 37, 64}) {
    for (const int64_t rest : {0, 5}) CheckRope(b, 4, 3, 2 * n + rest, n);
  }
}

// Gates lose this beside the rounding of the result, relative to its size and absolutely. Silu: an
// exponential within 2 ulp, of an argument within 4, then a sum, a quotient, a product. Gelu: the
// argument of its exponential is up to 90 where the result matters; there an error of 2^-22 of it
// is one of 2^-15 of the exponential, and the reference loses 2^-52 of 24 in 1 + tanh. The clamped
// one: an argument of up to 41, of which the slope and the product lose 2^-24 each; 1 + up may be
// next to nothing.
inline void ExpectGated(const HostTensor& actual, kernels::GateFunction function,
                        const Matrix& gate, const Matrix& up) {
  if (function == kernels::GateFunction::kClampedSwiglu) {
    ExpectNear(actual, ReferenceClampedSwiglu(gate, up),
               RoundingOf(actual.tensor().dtype) * 1.01 + (3 * 41 + 8) * 0x1p-24, {1e-5});
    return;
  }
  if (function == kernels::GateFunction::kReluSquared) {
    Matrix expected(gate.size());
    for (size_t i = 0; i < gate.size(); ++i) {
      expected[i] = gate[i] < 0 ? 0 : gate[i] * gate[i] * up[i];
    }
    ExpectNear(actual, expected, RoundingOf(actual.tensor().dtype) * 1.01 + 3 * 0x1p-24, {1e-30});
    return;
  }
  if (function == kernels::GateFunction::kProduct || function == kernels::GateFunction::kSigmoid) {
    const bool is_product = function == kernels::GateFunction::kProduct;
    Matrix expected(gate.size());
    for (size_t i = 0; i < gate.size(); ++i) {
      expected[i] = (is_product ? gate[i] : 1 / (1 + std::exp(-gate[i]))) * up[i];
    }
    ExpectNear(actual, expected, RoundingOf(actual.tensor().dtype) * 1.01 + 7 * 0x1p-24, {1e-30});
    return;
  }
  const bool is_silu = function == kernels::GateFunction::kSilu;
  ExpectNear(actual, is_silu ? ReferenceSiluMul(gate, up) : ReferenceGeluMul(gate, up),
             RoundingOf(actual.tensor().dtype) * 1.01 + (is_silu ? 7 * 0x1p-24 : 0x1p-15),
             {is_silu ? 1e-30 : 0x1p-46});
}

// Gates have outputs of their own, or the place of either factor.
inline void CheckGates(kernels::Device& b, int64_t rows, const std::vector<int64_t>& widths) {
  Random random(6);
  for (const kernels::DType type : kActivations) {
    for (const int64_t n : widths) {
      SCOPED_TRACE(::testing::Message() << NameOf(type) << ' ' << rows << " x " << n);
      const HostTensor gate = HostTensor::Of(type, rows, n, random, 12);
      const HostTensor up = HostTensor::Of(type, rows, n, random);
      const Matrix gate_values = gate.matrix(), up_values = up.matrix();
      for (const kernels::GateFunction function :
           {kernels::GateFunction::kSilu, kernels::GateFunction::kGelu,
            kernels::GateFunction::kClampedSwiglu, kernels::GateFunction::kReluSquared,
            kernels::GateFunction::kProduct, kernels::GateFunction::kSigmoid}) {
        const auto call = [&](kernels::Tensor to, kernels::Tensor by_gate, kernels::Tensor by_up) {
          b.ops().rows.GateMul(function, to, by_gate, by_up);
        };
        const DeviceTensor gates(b, gate), ups(b, up), out(b, HostTensor::Poisoned(type, rows, n));
        call(out, gates, ups);
        const HostTensor got = out.Get();
        ExpectGated(got, function, gate_values, up_values);
        call(gates, gates, ups);
        EXPECT_TRUE(gates.Get().SameBits(got)) << "in place of the gate";
        const DeviceTensor gates_again(b, gate);
        call(ups, gates_again, ups);
        EXPECT_TRUE(ups.Get().SameBits(got)) << "in place of the other factor";
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Copies of heads' parts have the CPU's bits.
inline void CheckCopyHeads(kernels::Device& b, kernels::Device& cpu, int64_t rows) {
  Random random(18);
  for (const kernels::DType type : kNumbers) {
    const HostTensor x = HostTensor::Of(type, rows, 70, random);
    const HostTensor expected = HostTensor::Of(type, rows, 96, random);
    const DeviceTensor from(b, x), to(b, expected);
    for (const kernels::HeadPlaces& places :
         {kernels::HeadPlaces{.num_heads = 4, .count = 8, .out_stride = 24, .x_begin = 3},
          kernels::HeadPlaces{
              .num_heads = 4, .count = 16, .out_stride = 24, .out_begin = 8, .x_stride = 17}}) {
      b.ops().rows.CopyHeads(to, from, places);
      // The CPU computes no f16, whose elements are as wide as those of bf16.
      kernels::Tensor host_to = expected, host_from = x;
      host_to.dtype = host_from.dtype = kernels::DType::kBF16;
      cpu.ops().rows.CopyHeads(host_to, host_from, places);
    }
    EXPECT_TRUE(to.Get().SameBits(expected)) << NameOf(type);
  }
}

inline void CheckSoftCap(kernels::Device& b, int64_t rows, int64_t cols) {
  Random random(14);
  const HostTensor x = HostTensor::Of(kernels::DType::kF32, rows, cols, random, 40);
  for (const float cap : {0.5f, 30.0f}) {
    const DeviceTensor to(b, x);
    b.ops().rows.SoftCap(to, cap);
    ExpectNear(to.Get(), ReferenceSoftCap(x.matrix(), cap), 4 * 0x1p-23, {1e-30});
  }
}

// Some rows are gathered twice.
inline void CheckGatherRows(kernels::Device& b, int64_t from_rows, int64_t cols, int64_t num_rows) {
  Random random(7);
  std::vector<int32_t> rows = {static_cast<int32_t>(from_rows) - 1, 0, 0};
  while (static_cast<int64_t>(rows.size()) < num_rows) {
    rows.push_back(random.Below(static_cast<int>(from_rows)));
  }
  const auto n = static_cast<int64_t>(rows.size());
  for (const kernels::DType type : kActivations) {
    const HostTensor x = HostTensor::Of(type, from_rows, cols, random);
    const DeviceTensor from(b, x), which(b, HostTensor::OfInts(rows));
    const DeviceTensor out(b, HostTensor::Poisoned(type, n, cols));
    b.ops().rows.GatherRows(out, from, which);
    EXPECT_TRUE(out.Get().SameBits(RowsOf(x, {rows.begin(), rows.end()})));
  }
}

}  // namespace continuo::testing
