// SPDX-License-Identifier: Apache-2.0
// Compares GateMul's functions with their float64 definitions.
#include <cmath>
#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {
namespace {

using GatesTest = IsaTest;
INSTANTIATE_FOR_ISAS(GatesTest);

constexpr kernels::DType kGateTypes[] = {kernels::DType::kF32, kernels::DType::kBF16};

TEST_P(GatesTest, SiluMulMatchesReference) {
  Random random(8);
  for (const kernels::DType type : kGateTypes) {
    for (const int64_t cols : {1, 15, 16, 1000, 2500}) {
      HostTensor gate = HostTensor::Of(type, 3, cols, random, 12.0f);
      const HostTensor up = HostTensor::Of(type, 3, cols, random);
      HostTensor out = HostTensor::Poisoned(type, 3, cols);
      const Matrix expected = ReferenceSiluMul(gate.matrix(), up.matrix());
      ops().rows.GateMul(kernels::GateFunction::kSilu, out, gate, up);
      // The bound is the exponential's 2 ulp and three roundings.
      ExpectNear(out, expected, 5 * 0x1p-23 + RoundingOf(type), {1e-30});
      ops().rows.GateMul(kernels::GateFunction::kSilu, gate, gate, up);
      EXPECT_TRUE(gate.SameBits(out)) << "in place";
    }
  }
}

TEST_P(GatesTest, GeluMulMatchesReference) {
  Random random(11);
  for (const kernels::DType type : kGateTypes) {
    for (const int64_t cols : {1, 15, 16, 1000, 2500}) {
      HostTensor gate = HostTensor::Of(type, 3, cols, random, 3.0f);
      const HostTensor up = HostTensor::Of(type, 3, cols, random);
      HostTensor out = HostTensor::Poisoned(type, 3, cols);
      const Matrix expected = ReferenceGeluMul(gate.matrix(), up.matrix());
      ops().rows.GateMul(kernels::GateFunction::kGelu, out, gate, up);
      // Below 0 the rounding of the exponent counts, about twice 2^-24 of |u| < 24, and the
      // exponential's 2 ulp.
      ExpectNear(out, expected, (3 * 24 + 6) * 0x1p-24 + RoundingOf(type), {1e-12});
      ops().rows.GateMul(kernels::GateFunction::kGelu, gate, gate, up);
      EXPECT_TRUE(gate.SameBits(out)) << "in place";
    }
  }
}

TEST_P(GatesTest, GeluByTheErrorFunctionMatchesReference) {
  Random random(27);
  for (const kernels::DType type : kGateTypes) {
    for (const int64_t cols : {1, 15, 16, 1000, 2500}) {
      HostTensor gate = HostTensor::Of(type, 3, cols, random, 3.0f);
      const HostTensor up = HostTensor::Of(type, 3, cols, random);
      HostTensor out = HostTensor::Poisoned(type, 3, cols);
      const Matrix gates = gate.matrix(), ups = up.matrix();
      Matrix expected(gates.size());
      for (size_t i = 0; i < gates.size(); ++i) {
        expected[i] = gates[i] * std::erfc(-gates[i] / std::sqrt(2.0)) / 2 * ups[i];
      }
      ops().rows.GateMul(kernels::GateFunction::kGeluErf, out, gate, up);
      // The formula errs by 1e-7 of the distribution, and gates are at most 6, factors at most 2.
      ExpectNear(out, expected, 4 * 0x1p-23 + RoundingOf(type), {12 * 2e-7});
      ops().rows.GateMul(kernels::GateFunction::kGeluErf, gate, gate, up);
      EXPECT_TRUE(gate.SameBits(out)) << "in place";
    }
  }
  constexpr float kFar = 1e30f;
  const HostTensor gate = HostTensor::OfFloats({-kFar, -40.0f, 0.0f, 40.0f, kFar});
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 5, 1);
  ops().rows.GateMul(kernels::GateFunction::kGeluErf, out, gate, kernels::Tensor());
  EXPECT_EQ(out.matrix(), (Matrix{0, 0, 0, 40, kFar}));
}

TEST_P(GatesTest, ProductsAndSigmoidGatesMatchTheirFormulas) {
  Random random(26);
  for (const kernels::DType type : kGateTypes) {
    for (const int64_t cols : {1, 15, 16, 1000, 2500}) {
      HostTensor gate = HostTensor::Of(type, 3, cols, random, 12.0f);
      HostTensor up = HostTensor::Of(type, 3, cols, random);
      HostTensor out = HostTensor::Poisoned(type, 3, cols);
      const Matrix gates = gate.matrix(), ups = up.matrix();
      Matrix product(gates.size()), gated(gates.size());
      for (size_t i = 0; i < gates.size(); ++i) {
        product[i] = gates[i] * ups[i];
        gated[i] = ups[i] / (1 + std::exp(-gates[i]));
      }
      ops().rows.GateMul(kernels::GateFunction::kProduct, out, gate, up);
      ExpectNear(out, product, 0x1p-24 + RoundingOf(type), {1e-30});
      ops().rows.GateMul(kernels::GateFunction::kSigmoid, out, gate, up);
      ExpectNear(out, gated, 5 * 0x1p-23 + RoundingOf(type), {1e-30});
      ops().rows.GateMul(kernels::GateFunction::kSigmoid, gate, gate, up);
      EXPECT_TRUE(gate.SameBits(out)) << "in place";
    }
  }
}

TEST_P(GatesTest, WithoutAFactorGateMulIsTheFunctionAlone) {
  Random random(25);
  for (const kernels::DType type : kGateTypes) {
    for (const int64_t cols : {1, 16, 2500}) {
      for (const auto function : {kernels::GateFunction::kSilu, kernels::GateFunction::kGelu}) {
        HostTensor gate = HostTensor::Of(type, 3, cols, random, 3.0f), ones(type, 3, cols);
        for (int64_t i = 0; i < 3 * cols; ++i) ones.Set(i, 1.0f);
        HostTensor out = HostTensor::Poisoned(type, 3, cols);
        ops().rows.GateMul(function, out, gate, ones);
        ops().rows.GateMul(function, gate, gate, kernels::Tensor());
        EXPECT_TRUE(gate.SameBits(out));
      }
    }
  }
}

TEST_P(GatesTest, ClampedSwigluMatchesReference) {
  Random random(12);
  for (const kernels::DType type : kGateTypes) {
    for (const int64_t cols : {1, 15, 16, 1000, 2500}) {
      // Up to 16, so that both factors are clamped on all sides.
      HostTensor gate = HostTensor::Of(type, 3, cols, random, 8.0f);
      const HostTensor up = HostTensor::Of(type, 3, cols, random, 8.0f);
      HostTensor out = HostTensor::Poisoned(type, 3, cols);
      const Matrix expected = ReferenceClampedSwiglu(gate.matrix(), up.matrix());
      ops().rows.GateMul(kernels::GateFunction::kClampedSwiglu, out, gate, up);
      // The slope as a float and the product with it lose 2^-24 of 1.702 g each, up to 28.
      ExpectNear(out, expected, (3 * 28 + 8) * 0x1p-24 + RoundingOf(type), {1e-6});
      ops().rows.GateMul(kernels::GateFunction::kClampedSwiglu, gate, gate, up);
      EXPECT_TRUE(gate.SameBits(out)) << "in place";
    }
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [g, u] : {std::pair{kNan, 1.0f}, std::pair{1.0f, kNan}}) {
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 1, 1);
    ops().rows.GateMul(kernels::GateFunction::kClampedSwiglu, out, HostTensor::OfFloats({g}),
                       HostTensor::OfFloats({u}));
    EXPECT_TRUE(std::isnan(out.matrix()[0]));
  }
}

TEST_P(GatesTest, ReluSquaredIsTheSquareOfWhatIsNotNegative) {
  Random random(14);
  for (const kernels::DType type : kGateTypes) {
    for (const int64_t cols : {1, 15, 16, 1000, 2500}) {
      HostTensor gate = HostTensor::Of(type, 3, cols, random, 8.0f);
      HostTensor out = HostTensor::Poisoned(type, 3, cols);
      Matrix expected = gate.matrix();
      for (double& g : expected) g = g < 0 ? 0 : g * g;
      ops().rows.GateMul(kernels::GateFunction::kReluSquared, out, gate, kernels::Tensor());
      ExpectNear(out, expected, 0x1p-24 * 1.01 + RoundingOf(type), {1e-30});
      ops().rows.GateMul(kernels::GateFunction::kReluSquared, gate, gate, kernels::Tensor());
      EXPECT_TRUE(gate.SameBits(out)) << "in place";
    }
  }
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 1, 2);
  ops().rows.GateMul(kernels::GateFunction::kReluSquared, out,
                     HostTensor::OfFloats({std::numeric_limits<float>::quiet_NaN(), -3}),
                     HostTensor::OfFloats({1, 2}));
  EXPECT_TRUE(std::isnan(out.matrix()[0]));
  EXPECT_EQ(out.matrix()[1], 0);
}

TEST_P(GatesTest, ProductIsRoundedOnce) {
  Random random(13);
  for (const kernels::DType type : kGateTypes) {
    for (const int64_t cols : {1, 15, 16, 1000, 2500}) {
      HostTensor x = HostTensor::Of(type, 3, cols, random);
      const HostTensor y = HostTensor::Of(type, 3, cols, random);
      HostTensor out = HostTensor::Poisoned(type, 3, cols);
      Matrix expected = x.matrix();
      const Matrix factors = y.matrix();
      for (size_t i = 0; i < expected.size(); ++i) expected[i] *= factors[i];
      ops().rows.GateMul(kernels::GateFunction::kProduct, out, x, y);
      // A product of floats is rounded to a float, and that to the type.
      ExpectNear(out, expected, 0x1p-24 * 1.01 + RoundingOf(type), {1e-30});
      ops().rows.GateMul(kernels::GateFunction::kProduct, x, x, y);
      EXPECT_TRUE(x.SameBits(out)) << "in place";
    }
  }
}

TEST_P(GatesTest, SiluMulOfExtremes) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float gates[] = {0.0f, -0.0f, 90.0f, -90.0f, -200.0f, 3e38f, -3e38f, kInf, -100.0f};
  HostTensor gate(kernels::DType::kF32, 1, 9), up(kernels::DType::kF32, 1, 9);
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 1, 9);
  for (int i = 0; i < 9; ++i) {
    gate.Set(i, gates[i]);
    up.Set(i, 1.0f);
  }
  ops().rows.GateMul(kernels::GateFunction::kSilu, out, gate, up);
  const double expected[] = {0, 0, 90, 0, 0, 3e38f, 0, kInf, 0};
  for (int i = 0; i < 9; ++i) {
    const double got = out.matrix()[i];
    EXPECT_TRUE(got == expected[i] || std::fabs(got - expected[i]) < 1e-30) << gates[i];
  }
  gate.Set(0, std::numeric_limits<float>::quiet_NaN());
  ops().rows.GateMul(kernels::GateFunction::kSilu, out, gate, up);
  EXPECT_TRUE(std::isnan(out.matrix()[0]));
}

}  // namespace
}  // namespace continuo::testing
