// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/group_rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {
namespace {

using kernels::host::RoundGroupAboveMinimum;
using kernels::host::ScaleAndMinimum;

float AsF16(float value) { return kernels::FromF16(kernels::ToF16(value)); }

// Rounds a group and returns the values that its integers stand for.
std::vector<float> Meant(const std::vector<float>& x) {
  std::vector<int32_t> codes(x.size(), -1);
  const ScaleAndMinimum group =
      RoundGroupAboveMinimum(x.data(), static_cast<int64_t>(x.size()), codes.data());
  std::vector<float> meant;
  for (const int32_t code : codes) {
    EXPECT_GE(code, 0);
    EXPECT_LE(code, 15);
    meant.push_back(group.scale * static_cast<float>(code) + group.minimum);
  }
  return meant;
}

double SquaredErrors(const std::vector<float>& x, const std::vector<float>& meant) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::pow(double{x[i]} - meant[i], 2);
  return sum;
}

std::vector<float> Numbers(size_t count, Random& random) {
  std::vector<float> x(count);
  for (float& v : x) v = random.Value();
  return x;
}

// Integers with a zero point, as AWQ and GPTQ store them; not every group has the outermost ones.
// Elements are off by what f16 loses of the minimum.
TEST(GroupRoundingTest, IntegersWithAZeroPointAreKept) {
  Random random(1);
  for (int zero = 0; zero <= 15; ++zero) {
    for (const int highest : {15, 9}) {
      const float scale = AsF16(0.01f + 0.01f * std::fabs(random.Value()));
      std::vector<float> x(32);
      for (float& v : x) v = scale * static_cast<float>(random.Below(highest + 1) - zero);
      const std::vector<float> meant = Meant(x);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(meant[i], x[i], scale * static_cast<float>(zero) * 0x1p-11f);
      }
    }
  }
}

// Integers above a minimum that is no multiple of the scale, as Q4_1 has them.
TEST(GroupRoundingTest, IntegersAboveAMinimumAreKept) {
  Random random(2);
  for (int i = 0; i < 50; ++i) {
    const float scale = AsF16(0.01f + 0.01f * std::fabs(random.Value())),
                minimum = AsF16(random.Value());
    std::vector<float> x(32);
    for (float& v : x) v = scale * static_cast<float>(random.Below(16)) + minimum;
    x[3] = minimum;
    x[9] = scale * 15 + minimum;
    EXPECT_EQ(Meant(x), x);
  }
}

TEST(GroupRoundingTest, OthersLoseLessThanByEvenStepsBetweenTheOutermost) {
  Random random(3);
  double fitted = 0, even = 0;
  for (int i = 0; i < 200; ++i) {
    const std::vector<float> x = Numbers(static_cast<size_t>(random.Below(32)) + 1, random);
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const float step = (*high - *low) / 15;
    std::vector<float> steps;
    for (const float v : x) {
      steps.push_back(step == 0 ? *low : std::nearbyint((v - *low) / step) * step + *low);
    }
    fitted += SquaredErrors(x, Meant(x));
    even += SquaredErrors(x, steps);
  }
  EXPECT_GT(fitted, 0);
  EXPECT_LT(fitted, 0.95 * even);
}

TEST(GroupRoundingTest, EqualElementsAreTheMinimum) {
  EXPECT_EQ(Meant(std::vector<float>(32, 0.375f)), std::vector<float>(32, 0.375f));
  EXPECT_EQ(Meant(std::vector<float>(32, 0.0f)), std::vector<float>(32, 0.0f));
  EXPECT_EQ(Meant({-0.25f}), std::vector<float>{-0.25f});
}

TEST(GroupRoundingTest, WhatF16DoesNotHoldMakesTheGroupNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const std::vector<float>& bad : {std::vector<float>{1, kInfinity},
                                        {-kInfinity, 0},
                                        {std::nanf(""), 1},
                                        {1, std::nanf("")},
                                        {-kLargest, kLargest},
                                        {-1e5f, -9e4f},
                                        {0, 1e7f},
                                        {1e6f, 1e6f}}) {
    std::vector<float> x(32, 0.5f);
    std::copy(bad.begin(), bad.end(), x.begin() + 7);
    if (bad[0] == bad[1]) x = {1e6f};
    for (const float v : Meant(x)) EXPECT_TRUE(std::isnan(v)) << bad[0] << " " << bad[1];
  }
}

}  // namespace
}  // namespace continuo::testing
