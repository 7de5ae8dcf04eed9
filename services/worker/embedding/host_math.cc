// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/host_math.h"

#include <array>
#include <cstddef>

#include "kernels/math/exact_math.h"
#include "services/base/check.h"

namespace continuo::embedding {

namespace {

// Σ term(i): lane l of 8 sums the terms of i = l, l + 8, …; the lanes are added in pairs.
template <typename Term>
double SumOf(size_t size, Term term) {
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> sums = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
  }
  for (size_t lane = 0; i < size; ++i, ++lane) sums[lane] += term(i);
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

}  // namespace

double Dot(std::span<const float> a, std::span<const float> b) {
  CONTINUO_CHECK(a.size() == b.size());
  return SumOf(a.size(),
               [&](size_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
}

double Sum(std::span<const float> values) {
  return SumOf(values.size(), [&](size_t i) { return static_cast<double>(values[i]); });
}

double SumOfSquares(std::span<const float> values, double mean) {
  return SumOf(values.size(), [&](size_t i) {
    const double deviation = static_cast<double>(values[i]) - mean;
    return deviation * deviation;
  });
}

double Tanh(double x) { return 1 - 2 / (kernels::ExactExp(2 * x) + 1); }

double Sigmoid(double x) { return 1 / (1 + kernels::ExactExp(-x)); }

// erf x = 2/√π e^(-x²) Σ 2ⁿ x^(2n+1) / (1·3·…·(2n+1)), whose terms have one sign (DLMF 7.6.2).
double Erf(double x) {
  constexpr double kTwoOverRootPi = 1.1283791670955126, kWhole = 6;  // from there on it is ±1
  if (x != x) return x;
  if (x >= kWhole) return 1;
  if (x <= -kWhole) return -1;
  double term = x, sum = 0;
  for (int n = 1; sum + term != sum; ++n) {
    sum += term;
    term *= 2 * x * x / (2 * n + 1);
  }
  return kTwoOverRootPi * kernels::ExactExp(-x * x) * sum;
}

double Gelu(double x) { return x / 2 * (1 + Erf(x * 0.7071067811865476)); }

double GeluTanh(double x) {
  return x / 2 * (1 + Tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

}  // namespace continuo::embedding
