// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/group_rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace continuo::kernels::host {
namespace {

// Rounds n elements to integers, with a scale that makes the largest `largest`.
float Round(const float* x, int64_t n, float largest, int32_t lowest, int32_t highest,
            int32_t* rounded) {
  std::fill_n(rounded, n, 0);
  float high = 0, low = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    high = std::max(high, x[i]);
    low = std::min(low, x[i]);
    finite = finite && std::fabs(x[i]) <= std::numeric_limits<float>::max();
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  const float size = std::max(high, -low);
  // Where the two signs have different ranges, the first of the largest elements decides.
  const bool same_sides = lowest == -highest;
  const float top =
      same_sides ? size : *std::find_if(x, x + n, [size](float v) { return std::fabs(v) == size; });
  if (std::fabs(top) < kSmallestScaled) return 0;
  const float inverse = largest / top;
  constexpr int32_t kShiftBits = std::bit_cast<int32_t>(kRoundShift);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t value = std::bit_cast<int32_t>(x[i] * inverse + kRoundShift) - kShiftBits;
    rounded[i] = std::clamp(value, lowest, highest);
  }
  return top / largest;
}

}  // namespace

float RoundGroup(WeightFormat format, const float* x, int64_t n, int32_t* rounded) {
  return format == WeightFormat::kInt4Panels ? Round(x, n, -8, -8, 7, rounded)
                                             : Round(x, n, 127, -127, 127, rounded);
}

int64_t GroupSize(WeightFormat format) {
  if (format == WeightFormat::kInt8Panels) return kInt8Group;
  if (format == WeightFormat::kInt4Panels) return kInt4Group;
  return 0;
}

}  // namespace continuo::kernels::host
