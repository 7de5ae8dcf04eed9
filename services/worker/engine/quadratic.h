// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace continuo::engine {

// xᵀ a x − 2 bᵀ x, for a symmetric positive definite matrix of which the lower triangle is given.
template <size_t kSize>
struct Quadratic {
  std::array<std::array<double, kSize>, kSize> a = {};
  std::array<double, kSize> b = {};
};

// Where the quadratic is least among the x that are 0 outside the set `terms`, by Cholesky's
// factors. Rows and columns outside the set are those of the unit matrix.
template <size_t kSize>
std::array<double, kSize> MinimiseOver(unsigned terms, const Quadratic<kSize>& q) {
  std::array<std::array<double, kSize>, kSize> l;
  std::array<double, kSize> inverse, x;  // of l's diagonal
  for (size_t i = 0; i < kSize; ++i) {
    const bool is_in = terms >> i & 1;
    double rest = is_in ? q.b[i] : 0, square = is_in ? q.a[i][i] : 1;
    for (size_t j = 0; j < i; ++j) {
      double product = is_in && (terms >> j & 1) ? q.a[i][j] : 0;
      for (size_t k = 0; k < j; ++k) product -= l[i][k] * l[j][k];
      l[i][j] = product * inverse[j];
      square -= l[i][j] * l[i][j];
      rest -= l[i][j] * x[j];
    }
    inverse[i] = 1 / std::sqrt(square);
    x[i] = rest * inverse[i];
  }
  for (size_t i = kSize; i-- > 0;) {
    for (size_t j = i + 1; j < kSize; ++j) x[i] -= l[j][i] * x[j];
    x[i] *= inverse[i];
  }
  return x;
}

// Whether `x`, the least over `terms`, is the least of all x ≥ 0: its terms are not negative, and
// to raise another would not lower the quadratic (the conditions of Karush, Kuhn and Tucker).
template <size_t kSize>
bool IsLeast(unsigned terms, const std::array<double, kSize>& x, const Quadratic<kSize>& q) {
  for (size_t i = 0; i < kSize; ++i) {
    if (terms >> i & 1) {
      if (!(x[i] >= 0)) return false;
      continue;
    }
    double slope = -q.b[i];
    for (size_t j = 0; j < kSize; ++j) slope += q.a[std::max(i, j)][std::min(i, j)] * x[j];
    if (!(slope >= 0)) return false;
  }
  return true;
}

// Moves `x` to where the quadratic is least among all x ≥ 0. There is one such place, and few sets
// of terms: the set of the last solution, which mostly is that of the next one, comes first, then
// all others. `x` stays where rounding leaves none that is exactly least.
template <size_t kSize>
void MinimiseNonNegative(const Quadratic<kSize>& q, std::array<double, kSize>& x) {
  constexpr unsigned kAll = (1u << kSize) - 1;
  unsigned last = 0;
  for (size_t i = 0; i < kSize; ++i) last |= static_cast<unsigned>(x[i] > 0) << i;
  for (unsigned n = 0; n <= kAll; ++n) {
    const unsigned terms = last ^ n;
    const std::array<double, kSize> y = MinimiseOver(terms, q);
    if (!IsLeast(terms, y, q)) continue;
    x = y;
    return;
  }
}

}  // namespace continuo::engine
