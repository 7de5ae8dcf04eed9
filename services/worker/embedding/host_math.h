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

}  // namespace continuo::embedding
