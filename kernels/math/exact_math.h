// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace continuo::kernels {

// Elementary functions with the same bits in every build and on every machine (exactness:
// no-borrowed-bits): additions, multiplications and divisions of IEEE doubles in a written order,
// no libm, no fused multiply-add. Compile with -ffp-contract=off. Bounds are in units in the last
// place of the result's type, measured against long double by tests/kernels/exact_math_test.cc.
//
// Series are the Taylor series about 0, cut where the next term is below the last place.

namespace exact_math_internal {

// ln 2 and π/2 as sums of parts with few bits, so that small integers times a part are exact.
inline constexpr double kLn2Hi = 0x1.62e42fefa3800p-1;  // 42 bits
inline constexpr double kLn2Lo = 0x1.ef35793c76730p-45;
inline constexpr double kInvLn2 = 0x1.71547652b82fep+0;
inline constexpr double kHalfPi1 = 0x1.921fb54p+0;  // 27 bits each
inline constexpr double kHalfPi2 = 0x1.10b461p-30;
inline constexpr double kHalfPi3 = 0x1.a62633p-58;
inline constexpr double kHalfPi4 = 0x1.45c06e0e68948p-86;
inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Adding and subtracting this rounds |x| < 2^51 to the nearest integer, ties to even.
inline constexpr double kRoundShift = 0x1.8p+52;

// 2^n for a normal result: -1022 <= n <= 1023.
constexpr double PowerOfTwo(int n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

}  // namespace exact_math_internal

// e^x, within 1 ulp. 0 below the smallest subnormal, infinity above the largest number.
constexpr double ExactExp(double x) {
  using namespace exact_math_internal;
  if (x != x) return x;
  if (x > 710.0) return std::numeric_limits<double>::infinity();
  if (x < -746.0) return 0.0;
  const double k = (x * kInvLn2 + kRoundShift) - kRoundShift;
  const double hi = x - k * kLn2Hi;
  const double lo = k * kLn2Lo;
  const double r = hi - lo;           // |r| <= 0.3466
  const double rest = (hi - r) - lo;  // what r lost
  double p = 1.0 / 6227020800.0;      // 1/13!
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  const double y = 1.0 + (r + (r * r * p + rest));
  // It is multiplied by two factors, since 2^k itself may be no normal number.
  const int n = static_cast<int>(k);
  const int half = n / 2;
  return y * PowerOfTwo(half) * PowerOfTwo(n - half);
}

// e^x, within 0.51 ulp. Subnormal results are computed, not flushed.
constexpr float ExactExp(float value) {
  using namespace exact_math_internal;
  const double x = static_cast<double>(value);
  if (x != x) return value;
  if (x > 89.0) return std::numeric_limits<float>::infinity();
  if (x < -104.0) return 0.0f;
  const double k = (x * kInvLn2 + kRoundShift) - kRoundShift;
  const double r = (x - k * kLn2Hi) - k * kLn2Lo;
  double p = 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return static_cast<float>(p * PowerOfTwo(static_cast<int>(k)));
}

// ln x, within 1 ulp. -infinity at 0, NaN below.
constexpr double ExactLog(double x) {
  using namespace exact_math_internal;
  if (x != x || x == std::numeric_limits<double>::infinity()) return x;
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (x < 0.0) return std::numeric_limits<double>::quiet_NaN();
  int exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  double m = std::bit_cast<double>(bits);
  if (m > 0x1.6a09e667f3bcdp+0) {  // sqrt(2): m ends up in [sqrt(1/2), sqrt(2)]
    m *= 0.5;
    exponent += 1;
  }
  // ln(1+f) = 2 atanh(s) with s = f / (2+f); 2s = f - s·f keeps f, which is exact, in front.
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double s2 = s * s;
  double p = 1.0 / 23.0;
  p = p * s2 + 1.0 / 21.0;
  p = p * s2 + 1.0 / 19.0;
  p = p * s2 + 1.0 / 17.0;
  p = p * s2 + 1.0 / 15.0;
  p = p * s2 + 1.0 / 13.0;
  p = p * s2 + 1.0 / 11.0;
  p = p * s2 + 1.0 / 9.0;
  p = p * s2 + 1.0 / 7.0;
  p = p * s2 + 1.0 / 5.0;
  p = p * s2 + 1.0 / 3.0;
  const double tail = 2.0 * s2 * p;
  const double e = static_cast<double>(exponent);
  return e * kLn2Hi + (f - (s * (f - tail) - e * kLn2Lo));
}

// ln x, within 0.51 ulp.
constexpr float ExactLog(float x) { return static_cast<float>(ExactLog(static_cast<double>(x))); }

// ln(1 + e^x), within 2^-50 of it.
constexpr double ExactSoftplus(double x) {
  if (x > 40.0) return x;
  const double t = ExactExp(x);
  // 1 + t would lose places of a small t.
  if (t < 1e-4) return t * (1.0 - t * (0.5 - t * (1.0 / 3.0 - t * 0.25)));
  return ExactLog(1.0 + t);
}

// base^exponent for base > 0, within 2 + 2·|exponent · ln base| ulp.
constexpr double ExactPow(double base, double exponent) {
  if (exponent == 0.0) return 1.0;
  if (exponent == 1.0) return base;
  return ExactExp(exponent * ExactLog(base));
}

// 1 + growth · ln(1 + ⌊position / period⌋), computed in f64: how queries grow with their position
// (AttentionOps::GrowAngles).
constexpr float GrowthAt(int64_t position, double growth, int64_t period) {
  return static_cast<float>(1.0 + growth * ExactLog(1.0 + static_cast<double>(position / period)));
}

struct SinCosResult {
  double sin = 0;
  double cos = 0;
};

// Sine and cosine of x radians, each within 2^-52 of the true value. NaN for |x| > 2^26, where the
// reduction would no longer be exact.
constexpr SinCosResult SinCos(double x) {
  using namespace exact_math_internal;
  if (!(x >= -0x1p26 && x <= 0x1p26)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, nan};
  }
  const double k = (x * kTwoOverPi + kRoundShift) - kRoundShift;
  const double a = x - k * kHalfPi1;  // exact
  const double p2 = k * kHalfPi2;     // exact
  const double b = a - p2;
  const double lost_b = (a - b) - p2;
  const double p3 = k * kHalfPi3;  // exact
  const double c = b - p3;
  const double lost_c = (b - c) - p3;
  const double rest = (lost_b + lost_c) - k * kHalfPi4;
  const double r = c + rest;           // |r| <= π/4
  const double r_lo = (c - r) + rest;  // what r lost
  const double r2 = r * r;

  double ps = 1.0 / 355687428096000.0;  // 1/17!
  ps = ps * r2 - 1.0 / 1307674368000.0;
  ps = ps * r2 + 1.0 / 6227020800.0;
  ps = ps * r2 - 1.0 / 39916800.0;
  ps = ps * r2 + 1.0 / 362880.0;
  ps = ps * r2 - 1.0 / 5040.0;
  ps = ps * r2 + 1.0 / 120.0;
  ps = ps * r2 - 1.0 / 6.0;
  const double sine = r + (r * r2 * ps + r_lo);

  double pc = -1.0 / 6402373705728000.0;  // 1/18!
  pc = pc * r2 + 1.0 / 20922789888000.0;
  pc = pc * r2 - 1.0 / 87178291200.0;
  pc = pc * r2 + 1.0 / 479001600.0;
  pc = pc * r2 - 1.0 / 3628800.0;
  pc = pc * r2 + 1.0 / 40320.0;
  pc = pc * r2 - 1.0 / 720.0;
  pc = pc * r2 + 1.0 / 24.0;
  const double half = 0.5 * r2;
  const double one_less = 1.0 - half;
  const double cosine = one_less + (((1.0 - one_less) - half) + (r2 * r2 * pc - r * r_lo));

  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace continuo::kernels
