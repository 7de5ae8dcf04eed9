// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/estimate/quadratic.h"

#include <gmock/gmock.h>

#include <random>

namespace continuo::engine {
namespace {

using Vector = std::array<double, 4>;

double At(const Quadratic<4>& q, const Vector& x) {
  double value = 0;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) value += q.a[std::max(i, j)][std::min(i, j)] * x[i] * x[j];
    value -= 2 * q.b[i] * x[i];
  }
  return value;
}

// Returns rᵀ r + 0.1 for a random r.
Quadratic<4> RandomQuadratic(std::mt19937& rng) {
  std::normal_distribution<double> normal;
  std::array<Vector, 4> r;
  for (Vector& row : r) {
    for (double& x : row) x = normal(rng);
  }
  Quadratic<4> q;
  for (int i = 0; i < 4; ++i) {
    q.b[i] = normal(rng);
    for (int j = 0; j <= i; ++j) {
      for (int k = 0; k < 4; ++k) q.a[i][j] += r[k][i] * r[k][j];
    }
    q.a[i][i] += 0.1;
  }
  return q;
}

// The slow and obvious way: moves one coordinate after the other to its minimum, until none moves.
Vector Descend(const Quadratic<4>& q) {
  Vector x = {};
  for (int sweep = 0; sweep < 20000; ++sweep) {
    for (int i = 0; i < 4; ++i) {
      double rest = q.b[i];
      for (int j = 0; j < 4; ++j) {
        if (j != i) rest -= q.a[std::max(i, j)][std::min(i, j)] * x[j];
      }
      x[i] = std::max(0.0, rest / q.a[i][i]);
    }
  }
  return x;
}

TEST(QuadraticTest, TheLeastPlaceIsFoundFromEveryStart) {
  std::mt19937 rng(1);
  int num_on_an_edge = 0;
  for (int n = 0; n < 100; ++n) {
    const Quadratic<4> q = RandomQuadratic(rng);
    const Vector want = Descend(q);
    num_on_an_edge += std::ranges::count(want, 0.0) > 0;
    for (unsigned start = 0; start < 16; ++start) {
      Vector x = {};
      for (int i = 0; i < 4; ++i) x[i] = start >> i & 1;
      MinimiseNonNegative(q, x);
      for (int i = 0; i < 4; ++i) EXPECT_NEAR(x[i], want[i], 1e-6);
    }
  }
  EXPECT_GT(num_on_an_edge, 50);
}

TEST(QuadraticTest, NothingNearTheLeastPlaceIsLess) {
  std::mt19937 rng(2);
  std::uniform_real_distribution<double> step(-0.1, 0.1);
  for (int n = 0; n < 200; ++n) {
    const Quadratic<4> q = RandomQuadratic(rng);
    Vector x = {};
    MinimiseNonNegative(q, x);
    for (int k = 0; k < 50; ++k) {
      Vector y = x;
      for (double& v : y) v = std::max(0.0, v + step(rng));
      EXPECT_GE(At(q, y), At(q, x) - 1e-12);
    }
  }
}

TEST(QuadraticTest, AMatrixThatIsNotPositiveDefiniteLeavesThePlaceOrStaysFinite) {
  Quadratic<4> q;  // zeros: no minimum is unique
  q.b = {1, 1, 1, 1};
  Vector x = {1, 2, 3, 4};
  MinimiseNonNegative(q, x);
  EXPECT_EQ(x, (Vector{1, 2, 3, 4}));
}

}  // namespace
}  // namespace continuo::engine
