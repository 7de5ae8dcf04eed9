// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/host_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace continuo::embedding {
namespace {

TEST(HostMathTest, FunctionsAreThoseOfLibm) {
  for (int i = -8000; i <= 8000; ++i) {
    const double x = i / 1000.0;
    EXPECT_NEAR(Erf(x), std::erf(x), 4e-15) << x;
    EXPECT_NEAR(Tanh(x), std::tanh(x), 4e-16) << x;
    EXPECT_NEAR(Sigmoid(x), 1 / (1 + std::exp(-x)), 4e-16) << x;
    EXPECT_NEAR(Gelu(x), x / 2 * (1 + std::erf(x / std::sqrt(2.0))), 4e-14) << x;
    const double inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(GeluTanh(x), x / 2 * (1 + std::tanh(inner)), 1e-14) << x;
  }
}

TEST(HostMathTest, TheErrorFunctionHasItsLimits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Erf(0), 0);
  EXPECT_EQ(Erf(6), 1);
  EXPECT_EQ(Erf(-kInfinity), -1);
  EXPECT_TRUE(std::isnan(Erf(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(Gelu(kInfinity), kInfinity);
  for (const double x : {1e-300, 1e-20, 0.3, 2.0, 5.9}) EXPECT_EQ(Erf(-x), -Erf(x)) << x;
}

TEST(HostMathTest, SumsAreOfEveryElement) {
  std::vector<float> values;
  double sum = 0, squares = 0;
  for (int i = 0; i < 29; ++i) {
    EXPECT_EQ(Sum(values), sum);
    EXPECT_EQ(SumOfSquares(values, 2), squares);
    EXPECT_EQ(Dot(values, values), squares + 4 * sum - 4 * i);
    values.push_back(static_cast<float>(i * i % 11));
    sum += static_cast<double>(values.back());
    squares += std::pow(static_cast<double>(values.back()) - 2, 2);
  }
}

}  // namespace
}  // namespace continuo::embedding
