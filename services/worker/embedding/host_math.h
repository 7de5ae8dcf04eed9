// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace continuo::embedding {

// Arithmetic of heads on the host: additions and multiplications of doubles in a written order
// (exactness: no-borrowed-bits). Pure functions.

// Σ a[i] · b[i]: lane l of 8 sums the products of i = l, l + 8, …; the lanes are added in pairs.
// Both have the same size.
double Dot(std::span<const float> a, std::span<const float> b);

// tanh x, within 4e-16 of it.
double Tanh(double x);

// 1 / (1 + e^-x), within 4e-16 of it.
double Sigmoid(double x);

// The error function, within 4e-15 of it.
double Erf(double x);

// x/2 · (1 + erf(x/√2)), and its approximation x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))
// (https://arxiv.org/abs/1606.08415).
double Gelu(double x);
double GeluTanh(double x);

// Σ values[i], and Σ (values[i] - mean)², in the order of Dot.
double Sum(std::span<const float> values);
double SumOfSquares(std::span<const float> values, double mean);

}  // namespace continuo::embedding
