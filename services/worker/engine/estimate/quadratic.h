// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace continuo::engine {

// The function xᵀ a x − 2 bᵀ x. The matrix is symmetric and positive definite; only its lower
// triangle is stored.
template <size_t kSize>
struct Quadratic {
  std::array<std::array<double, kSize>, kSize> a = {};
  std::array<double, kSize> b = {};
};

// Returns the minimum among the x that are 0 outside the set `terms`, by Cholesky decomposition.
// Rows and columns outside the set are taken from the unit matrix.
template <size_t kSize>
std::array<double, kSize> MinimiseOver(unsigned terms, const Quadratic<kSize>& q) {
  std::array<std::array<double, kSize>, kSize> l;
  std::array<double, kSize> inverse, x;  // inverse: of the diagonal of l
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

// Returns whether `x`, the minimum over `terms`, is that of all x ≥ 0: its terms are not negative,
// and raising another one would not lower the quadratic (the Karush-Kuhn-Tucker conditions).
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

// Sets `x` to the minimum among all x ≥ 0. The minimum is unique, and there are few sets of terms:
// the set of the last solution, which mostly is also the next one, is tried first, then all others.
// `x` does not change if rounding leaves no set that satisfies IsLeast.
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
