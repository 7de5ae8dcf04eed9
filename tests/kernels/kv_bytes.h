// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/tensor.h"

// The bytes of a head's row in 8-bit caches, and the values that they stand for, by plain
// definitions.
namespace continuo::testing {

// Returns the number of a byte of e4m3: a sign, four bits of exponent with bias 7, three of
// fraction (OCP 8-bit Floating Point Specification 1.0).
inline double E4M3Value(uint8_t byte) {
  const int exponent = byte >> 3 & 15, fraction = byte & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  const double size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (byte & 0x80) != 0 ? -size : size;
}

// Returns the byte of e4m3 whose number is nearest to x, which is no NaN, of two the even one.
inline uint8_t NearestE4M3(double x) {
  static const std::vector<double> numbers = [] {
    std::vector<double> all;
    for (uint8_t byte = 0; byte < 0x7f; ++byte) all.push_back(E4M3Value(byte));
    return all;  // ascending
  }();
  const double size = std::fabs(x);
  const auto above = std::ranges::lower_bound(numbers, size);
  auto byte = static_cast<size_t>(above - numbers.begin());
  if (byte == numbers.size()) {
    --byte;
  } else if (byte > 0) {
    const double to_below = size - numbers[byte - 1], to_above = numbers[byte] - size;
    if (to_below < to_above || (to_below == to_above && byte % 2 == 1)) --byte;
  }
  return static_cast<uint8_t>(byte | (std::signbit(x) ? 0x80 : 0));
}

struct KvBytes {
  std::vector<uint8_t> bytes;
  float scale = 0;
  std::vector<double> values;  // that they stand for
};

// `type`: kI8 or kF8.
inline KvBytes ToKvBytes(kernels::DType type, std::span<const float> row) {
  const float largest = type == kernels::DType::kI8 ? 127 : 448;
  float top = 0;
  bool finite = true;
  for (const float x : row) {
    finite = finite && std::isfinite(x);
    top = std::max(top, std::fabs(x));
  }
  const bool zero = !finite || top < 0x1p-100f;
  KvBytes kept;
  kept.scale = !finite ? NAN : zero ? 0 : top / largest;
  for (const float x : row) {
    const float scaled = zero ? 0 : x * (largest / top);
    double number = std::nearbyint(scaled);
    uint8_t byte = static_cast<uint8_t>(static_cast<int>(number));
    if (type == kernels::DType::kF8) {
      byte = NearestE4M3(scaled);
      number = E4M3Value(byte);
    }
    kept.bytes.push_back(byte);
    kept.values.push_back(number * static_cast<double>(kept.scale));
  }
  return kept;
}

}  // namespace continuo::testing
