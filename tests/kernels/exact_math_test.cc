// SPDX-License-Identifier: Apache-2.0
#include "kernels/math/exact_math.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::kernels {
namespace {

using testing::Random;

// A random number in [-1, 1] of 53 bits.
double Unit(Random& random) {
  return static_cast<double>(static_cast<int64_t>(random.Next()) >> 10) * 0x1p-53;
}

template <typename T>
double Ulps(T actual, long double expected) {
  const T rounded = static_cast<T>(expected);
  const T next = std::nextafter(std::fabs(rounded), std::numeric_limits<T>::infinity());
  const long double ulp = static_cast<long double>(next) - std::fabs(rounded);
  return static_cast<double>(std::fabs((static_cast<long double>(actual) - expected) / ulp));
}

constexpr int kCount = 300000;
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(ExactMathTest, ExpIsWithinItsBound) {
  Random random(1);
  double worst = 0, worst_float = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = i % 2 == 0 ? Unit(random) * 700 : Unit(random);
    worst = std::max(worst, Ulps(ExactExp(x), std::exp(static_cast<long double>(x))));
    const float f = static_cast<float>(i % 2 == 0 ? Unit(random) * 87 : Unit(random));
    worst_float = std::max(worst_float, Ulps(ExactExp(f), std::exp(static_cast<long double>(f))));
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_LE(worst_float, 0.51);
  RecordProperty("exp_f64_ulps", std::to_string(worst));
  RecordProperty("exp_f32_ulps", std::to_string(worst_float));
}

TEST(ExactMathTest, ExpAtTheEdges) {
  EXPECT_EQ(ExactExp(0.0), 1.0);
  EXPECT_EQ(ExactExp(-kInf), 0.0);
  EXPECT_EQ(ExactExp(kInf), kInf);
  EXPECT_EQ(ExactExp(709.79), kInf);
  EXPECT_LT(ExactExp(709.78), kInf);
  EXPECT_EQ(ExactExp(-745.0), 0x1p-1074);
  EXPECT_EQ(ExactExp(-745.2), 0.0);
  EXPECT_TRUE(std::isnan(ExactExp(std::nan(""))));
  EXPECT_EQ(ExactExp(0.0f), 1.0f);
  EXPECT_EQ(ExactExp(-104.0f), 0.0f);
  EXPECT_EQ(ExactExp(-103.0f), 0x1p-149f);
  EXPECT_EQ(ExactExp(88.73f), std::numeric_limits<float>::infinity());
  EXPECT_LT(ExactExp(88.72f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(ExactExp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(ExactExp(std::nanf(""))));
}

TEST(ExactMathTest, LogIsWithinItsBound) {
  Random random(2);
  double worst = 0, worst_float = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = i % 3 == 0   ? 1.0 + Unit(random) * 0.5
                     : i % 3 == 1 ? std::fabs(Unit(random)) + 1e-300
                                  : std::bit_cast<double>(random.Next() >> 2);
    if (!(x > 0 && x < kInf)) continue;
    worst = std::max(worst, Ulps(ExactLog(x), std::log(static_cast<long double>(x))));
    const float f = static_cast<float>(x);
    if (f > 0 && f < std::numeric_limits<float>::infinity()) {
      worst_float = std::max(worst_float, Ulps(ExactLog(f), std::log(static_cast<long double>(f))));
    }
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_LE(worst_float, 0.51);
}

TEST(ExactMathTest, LogAtTheEdges) {
  EXPECT_EQ(ExactLog(1.0), 0.0);
  EXPECT_EQ(ExactLog(0.0), -kInf);
  EXPECT_EQ(ExactLog(-0.0), -kInf);
  EXPECT_EQ(ExactLog(kInf), kInf);
  EXPECT_TRUE(std::isnan(ExactLog(-1.0)));
  EXPECT_TRUE(std::isnan(ExactLog(std::nan(""))));
  EXPECT_LE(Ulps(ExactLog(0x1p-1074), std::log(0x1p-1074L)), 1.0);
  EXPECT_LE(Ulps(ExactLog(std::numeric_limits<double>::max()),
                 std::log(static_cast<long double>(std::numeric_limits<double>::max()))),
            1.0);
}

TEST(ExactMathTest, PowIsWithinItsBound) {
  Random random(3);
  for (int i = 0; i < kCount / 10; ++i) {
    const double base = 1 + std::fabs(Unit(random)) * (i % 2 == 0 ? 1e6 : 1.0);
    const double exponent = Unit(random) * 3;
    const double bound = 2 + 2 * std::fabs(exponent * std::log(base));
    ASSERT_LE(Ulps(ExactPow(base, exponent),
                   std::pow(static_cast<long double>(base), static_cast<long double>(exponent))),
              bound)
        << base << "^" << exponent;
  }
  EXPECT_EQ(ExactPow(10.0, 0.0), 1.0);
  EXPECT_EQ(ExactPow(10.0, 1.0), 10.0);
}

TEST(ExactMathTest, SinCosAreWithinTheirBound) {
  Random random(4);
  double worst = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = Unit(random) * (i % 4 == 0   ? 0x1p26
                                     : i % 4 == 1 ? 131072
                                     : i % 4 == 2 ? 10
                                                  : 1);
    const SinCosResult r = SinCos(x);
    const long double exact = x;
    worst = std::max<double>(worst, std::fabs(static_cast<double>(r.sin - std::sin(exact))));
    worst = std::max<double>(worst, std::fabs(static_cast<double>(r.cos - std::cos(exact))));
  }
  EXPECT_LE(worst, 0x1p-52);
}

TEST(ExactMathTest, SinCosAtTheEdges) {
  EXPECT_EQ(SinCos(0.0).sin, 0.0);
  EXPECT_EQ(SinCos(0.0).cos, 1.0);
  EXPECT_NEAR(SinCos(1.5707963267948966).cos, 6.123233995736766e-17, 1e-30);
  EXPECT_NEAR(SinCos(3.141592653589793).sin, 1.2246467991473532e-16, 1e-30);
  EXPECT_TRUE(std::isnan(SinCos(1e9).sin));
  EXPECT_TRUE(std::isnan(SinCos(kInf).cos));
  EXPECT_TRUE(std::isnan(SinCos(std::nan("")).cos));
}

// The compiler evaluates these in its own arithmetic. The bits at run time are the same, whatever
// the flags.
TEST(ExactMathTest, TheCompilerGetsTheSameBits) {
  constexpr double kX[] = {0.1, -3.7, 12.25, 700.5, -700.5, 1e-8};
  constexpr double kExp[] = {ExactExp(kX[0]), ExactExp(kX[1]), ExactExp(kX[2]),
                             ExactExp(kX[3]), ExactExp(kX[4]), ExactExp(kX[5])};
  constexpr double kSin[] = {SinCos(kX[0]).sin, SinCos(kX[1]).sin, SinCos(kX[2]).sin,
                             SinCos(kX[3]).sin, SinCos(kX[4]).sin, SinCos(kX[5]).sin};
  constexpr double kLog[] = {ExactLog(0.1), ExactLog(3.7), ExactLog(12.25)};
  for (int i = 0; i < 6; ++i) {
    volatile double x = kX[i];
    EXPECT_EQ(ExactExp(x), kExp[i]);
    EXPECT_EQ(SinCos(x).sin, kSin[i]);
  }
  volatile double y[] = {0.1, 3.7, 12.25};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ExactLog(y[i]), kLog[i]);
}

}  // namespace
}  // namespace continuo::kernels
