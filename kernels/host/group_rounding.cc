// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/group_rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/math/bfloat16.h"

namespace continuo::kernels::host {
namespace {

// Rounds |x| < 2^22, ties to even.
int32_t NearestInteger(float x) {
  return std::bit_cast<int32_t>(x + kRoundShift) - std::bit_cast<int32_t>(kRoundShift);
}

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
  for (int64_t i = 0; i < n; ++i) {
    rounded[i] = std::clamp(NearestInteger(x[i] * inverse), lowest, highest);
  }
  return top / largest;
}

// Among fewer elements a scale could be chance.
constexpr int64_t kFewestOfScale = 16;
// An element that is an integer times a scale has been rounded to bf16 or finer, and so has the
// element that tells the scale: their quotient is off by less than this part of the integer.
constexpr float kOffPerInteger = 0x1.02p-8f;
// Integers up to this are told apart by a scale that one element gives.
constexpr float kFewIntegers = 16;

// Returns a scale of elements that are small integers times about `rough`, 0 where one is not. It
// is exact where one of the integers is a power of two, whose product is not rounded.
float RefineScale(const float* x, int64_t n, float rough) {
  float exact = 0, sum = 0, sum_integers = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float size = std::fabs(x[i]), ratio = size / rough;
    if (ratio > kFewIntegers + 0.5f) continue;
    const float integer = std::nearbyint(ratio);
    if (std::fabs(ratio - integer) > kOffPerInteger * integer) return 0;
    const auto whole = static_cast<uint32_t>(integer);
    if (exact == 0 && std::has_single_bit(whole)) exact = size / integer;
    sum += size;
    sum_integers += integer;
  }
  return exact != 0 ? exact : sum / sum_integers;
}

// Finds the scale of a group whose elements are integers times it, as those of quantised
// checkpoints are, and the integers. 0 where there is none.
float FindScale(const float* x, int64_t n, int32_t lowest, int32_t highest, int32_t* integers) {
  float smallest = std::numeric_limits<float>::infinity(), largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float size = std::fabs(x[i]);
    if (!(size <= std::numeric_limits<float>::max())) return 0;
    if (size > 0) smallest = std::min(smallest, size);
    largest = std::max(largest, size);
  }
  if (n < kFewestOfScale || largest < kSmallestScaled) return 0;
  // The smallest element is 1, 2, … times the scale.
  for (float integer = 1; integer <= std::min(kFewIntegers, static_cast<float>(highest));
       ++integer) {
    const float rough = smallest / integer;
    if (largest > rough * static_cast<float>(1 - lowest)) return 0;  // and by others still more
    const float scale = RefineScale(x, n, rough);
    if (scale == 0) continue;
    bool fits = true;
    for (int64_t i = 0; fits && i < n; ++i) {
      const float ratio = x[i] / scale, whole = std::nearbyint(ratio);
      integers[i] = static_cast<int32_t>(whole);
      fits = integers[i] >= lowest && integers[i] <= highest &&
             std::fabs(ratio - whole) <= kOffPerInteger * std::fabs(whole);
    }
    if (fits) return scale;
  }
  return 0;
}

constexpr int32_t kHighestCode = 15;

ScaleAndMinimum AsF16(double scale, double minimum) {
  const auto rounded = [](double value) { return FromF16(ToF16(static_cast<float>(value))); };
  const ScaleAndMinimum numbers = {rounded(scale), rounded(minimum)};
  if (std::isinf(numbers.scale) || std::isinf(numbers.minimum)) {
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  return numbers;
}

// The scale and minimum with the least sum of squared errors of these codes, which differ.
ScaleAndMinimum FitLine(const float* x, int64_t n, const int32_t* codes) {
  int64_t sum = 0, squares = 0;
  double sum_x = 0, products = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += codes[i];
    squares += codes[i] * codes[i];
    sum_x += x[i];
    products += double{x[i]} * codes[i];
  }
  const auto count = static_cast<double>(n), codes_sum = static_cast<double>(sum);
  const auto spread = static_cast<double>(n * squares - sum * sum);
  return AsF16((count * products - codes_sum * sum_x) / spread,
               (static_cast<double>(squares) * sum_x - codes_sum * products) / spread);
}

}  // namespace

ScaleAndMinimum RoundGroupAboveMinimum(const float* x, int64_t n, int32_t* rounded) {
  const float found = FindScale(x, n, -kHighestCode, kHighestCode, rounded);
  if (found != 0) {
    const auto [least, most] = std::minmax_element(rounded, rounded + n);
    if (const int32_t lowest = *least; *most - lowest <= kHighestCode) {
      for (int64_t i = 0; i < n; ++i) rounded[i] -= lowest;
      return AsF16(found, double{found} * lowest);
    }
  }
  std::fill_n(rounded, n, 0);
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (int64_t i = 0; i < n; ++i) {
    if (!(std::fabs(x[i]) <= std::numeric_limits<float>::max())) {
      return {std::numeric_limits<float>::quiet_NaN(), 0};
    }
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const float range = high - low;
  if (!(range >= kSmallestScaled)) return AsF16(0, low);
  const float inverse = kHighestCode / range;
  for (int64_t i = 0; i < n; ++i) {
    rounded[i] = std::clamp(NearestInteger((x[i] - low) * inverse), 0, kHighestCode);
  }
  return FitLine(x, n, rounded);
}

float RoundGroup(WeightFormat format, const float* x, int64_t n, int32_t* rounded) {
  const bool is_int4 = format == WeightFormat::kInt4Panels;
  const int32_t lowest = is_int4 ? -8 : -127, highest = is_int4 ? 7 : 127;
  const float found = FindScale(x, n, lowest, highest, rounded);
  if (found != 0) return found;
  return Round(x, n, is_int4 ? -8 : 127, lowest, highest, rounded);
}

int64_t GroupSize(WeightFormat format) {
  if (format == WeightFormat::kInt8Panels) return kInt8Group;
  if (format == WeightFormat::kInt4Panels) return kInt4Group;
  return 0;
}

}  // namespace continuo::kernels::host
