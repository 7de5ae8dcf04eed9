// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/host_device.h"

// Numbers of 8 bits with a scale for each row of a factor: weights are made so when they are
// loaded, activations in each product. A row's scale makes its largest element the largest number
// there is.
namespace continuo::kernels::cuda {

// e4m3: a sign, four bits of exponent with bias 7, three of fraction; no infinity, and 0x7f is NaN
// (OCP 8-bit Floating Point Specification 1.0, 2023; Micikevicius et al., "FP8 Formats for Deep
// Learning", 2022).
inline constexpr float kLargestE4M3 = 448;

// Rounds to nearest, ties to even; beyond the largest number that, with the sign.
CONTINUO_HOST_DEVICE inline uint8_t ToE4M3(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7f);
  float size = 0;
  std::memcpy(&size, &bits, sizeof(size));
  if (size >= kLargestE4M3) return static_cast<uint8_t>(sign | 0x7e);
  if (size < 0x1p-6f) {
    // In units of 2^-9; adding 2^23 rounds to an integer. Eight of them are the least normal
    // number.
    const float units = (size * 0x1p9f + 0x1p23f) - 0x1p23f;
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(units));
  }
  bits += 0x7ffffu + (bits >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((bits >> 20) - (uint32_t{127 - 7} << 3)));
}

CONTINUO_HOST_DEVICE inline float FromE4M3(uint8_t bits) {
  const uint32_t exponent = bits >> 3 & 15u, fraction = bits & 7u;
  uint32_t wide = 0x7fc00000u;  // NaN
  if ((bits & 0x7f) != 0x7f) {
    if (exponent == 0) {
      const float size = static_cast<float>(fraction) * 0x1p-9f;
      return (bits & 0x80) != 0 ? -size : size;
    }
    wide = (exponent + 127 - 7) << 23 | fraction << 20;
  }
  wide |= static_cast<uint32_t>(bits & 0x80) << 24;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// What a row's elements are multiplied with, and what its numbers are multiplied with afterwards,
// by the largest size of its elements; both 0 where that is 0. `strange`: NaN where an element is
// NaN or infinite, which makes the row NaN, else 0.
struct Fp8Scale {
  float factor, scale;
};
CONTINUO_HOST_DEVICE inline Fp8Scale Fp8ScaleOf(float largest, float strange) {
  constexpr float kTiny = 0x1p-100f;  // no larger: zeros
  if (!(largest > kTiny)) return {0 + strange, 0 + strange};
  return {kLargestE4M3 / largest + strange, largest / kLargestE4M3 + strange};
}

// A matrix [columns, k] in kFp8Rows: rows of e4m3, their number and length filled up with zeros to
// multiples of 16, as tensor cores want them; behind them a scale, f32, for each.
struct Fp8Layout {
  static constexpr int64_t kUnit = 16;

  int64_t columns, k;

  CONTINUO_HOST_DEVICE static int64_t Padded(int64_t n) { return (n + kUnit - 1) / kUnit * kUnit; }
  int64_t ScaleOffset() const { return (Padded(columns) * Padded(k) + 255) / 256 * 256; }
  int64_t Bytes() const {
    return ScaleOffset() + Padded(columns) * static_cast<int64_t>(sizeof(float));
  }
};

// Activations in e4m3: numbers [rows, Padded(k)] at 16 bytes, a scale for each row [rows].
struct Fp8Rows {
  uint8_t* numbers = nullptr;
  float* scales = nullptr;
};

// Makes them of x [rows, k], bf16. Returns the launch's error.
cudaError_t QuantiseRows(const Fp8Rows& out, const uint16_t* x, int64_t rows, int64_t k,
                         cudaStream_t stream);

// out = sum · w_scale · x_scale + bias (f32 [cols] or null), rounded to T, float or uint16_t
// (bf16): what a product does where cuBLASLt leaves out the scales, those of x's rows [rows] and of
// w's [cols]. Rows of `sum` are `stride` apart. Every row's bits depend on that row alone.
template <typename T>
cudaError_t ScaleRows(T* out, const float* sum, int64_t stride, const float* x_scales,
                      const float* w_scales, const float* bias, int64_t rows, int64_t cols,
                      cudaStream_t stream);

}  // namespace continuo::kernels::cuda
