// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/host_math.h"

#include <array>
#include <cstddef>

#include "kernels/math/exact_math.h"
#include "services/base/check.h"

namespace continuo::embedding {

double Dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kLanes = 8;
  CONTINUO_CHECK(a.size() == b.size());
  std::array<double, kLanes> sums = {};
  size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  for (size_t lane = 0; i < a.size(); ++i, ++lane) {
    sums[lane] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

double Tanh(double x) { return 1 - 2 / (kernels::ExactExp(2 * x) + 1); }

double Sigmoid(double x) { return 1 / (1 + kernels::ExactExp(-x)); }

}  // namespace continuo::embedding
