// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/kernel_stream.h"
#include "kernels/cuda/runtime/scratch_layout.h"

// 8-bit floats with a scale for each row of a factor. Weights are rounded when they are loaded,
// activations in front of each product. The scale maps a row's largest element to the largest e4m3
// number.
namespace continuo::kernels::cuda {

// e4m3 has a sign, four bits of exponent with bias 7 and three of fraction. It has no infinity, and
// 0x7f is NaN (OCP 8-bit Floating Point Specification 1.0, 2023; Micikevicius et al., "FP8 Formats
// for Deep Learning", 2022).
inline constexpr float kLargestE4M3 = 448;

// Rounds to nearest, ties to even, and saturates at the largest number, infinity too. NaN becomes
// 0x7f.
CONTINUO_HOST_DEVICE inline uint8_t RoundToE4M3(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return 0x7f;
  float size = 0;
  std::memcpy(&size, &bits, sizeof(size));
  if (size >= kLargestE4M3) return static_cast<uint8_t>(sign | 0x7e);
  if (size < 0x1p-6f) {
    // The magnitude is counted in units of 2^-9; adding 2^23 rounds it to an integer. Eight units
    // are the smallest normal number.
    const float units = (size * 0x1p9f + 0x1p23f) - 0x1p23f;
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(units));
  }
  bits += 0x7ffffu + (bits >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((bits >> 20) - (uint32_t{127 - 7} << 3)));
}

// Rounds two numbers in this way and packs them, the first in the low byte. Compute capability 8.9
// and newer have an instruction for it (PTX ISA, cvt.rn.satfinite.e4m3x2.f32).
CONTINUO_HOST_DEVICE inline uint16_t ToE4M3Pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t pair = 0;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return static_cast<uint16_t>(RoundToE4M3(low) | RoundToE4M3(high) << 8);
#endif
}
CONTINUO_HOST_DEVICE inline uint8_t ToE4M3(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return static_cast<uint8_t>(ToE4M3Pair(value, 0));
#else
  return RoundToE4M3(value);
#endif
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

// A row's elements are multiplied by `factor` before they are rounded, and by `scale` afterwards.
// Both are 0 where `largest`, the largest magnitude of the row, is tiny. `strange` is NaN if an
// element is NaN or infinite, which makes the whole row NaN, and otherwise 0.
struct Fp8Scale {
  float factor, scale;
};
CONTINUO_HOST_DEVICE inline Fp8Scale Fp8ScaleOf(float largest, float strange) {
  constexpr float kTiny = 0x1p-100f;  // rows with no larger element become zeros
  if (!(largest > kTiny)) return {0 + strange, 0 + strange};
  return {kLargestE4M3 / largest + strange, largest / kLargestE4M3 + strange};
}

// Layout of a matrix [columns, k] in WeightFormat::kFp8Rows: rows of e4m3, whose number and length
// are filled up with zeros to multiples of 16 as tensor cores need them, followed by one f32 scale
// for each row.
struct Fp8Layout {
  static constexpr int64_t kUnit = 16;

  int64_t columns, k;

  CONTINUO_HOST_DEVICE static int64_t Padded(int64_t n) { return (n + kUnit - 1) / kUnit * kUnit; }
  int64_t ScaleOffset() const { return (Padded(columns) * Padded(k) + 255) / 256 * 256; }
  int64_t Bytes() const {
    return ScaleOffset() + Padded(columns) * static_cast<int64_t>(sizeof(float));
  }
};

// Activations in e4m3: numbers [rows, Padded(k)], 16-byte aligned, and one f32 scale for each row
// [rows].
struct Fp8Rows {
  uint8_t* numbers = nullptr;
  float* scales = nullptr;
};

// Reserves such rows for x [rows, k].
inline Fp8Rows AddFp8Rows(ScratchLayout& layout, int64_t rows, int64_t k) {
  return {.numbers = layout.Add<uint8_t>(static_cast<size_t>(rows * Fp8Layout::Padded(k))),
          .scales = layout.Add<float>(static_cast<size_t>(rows))};
}

// MatMulInput::prepared of x [rows, k]: the memory that it needs, and what lies there.
inline size_t PreparedFp8Bytes(int64_t rows, int64_t k) {
  ScratchLayout counted;
  AddFp8Rows(counted, rows, k);
  return counted.bytes();
}
inline Fp8Rows PreparedFp8Rows(void* memory, int64_t rows, int64_t k) {
  ScratchLayout layout(memory);
  return AddFp8Rows(layout, rows, k);
}

// Rounds x [rows, k], bf16, to e4m3. Returns the launch's error.
cudaError_t QuantiseRows(const Fp8Rows& out, const uint16_t* x, int64_t rows, int64_t k,
                         KernelStream stream);

// out = sum · w_scale · x_scale + bias, rounded to T, which is float or uint16_t (bf16). It applies
// the scales of x's rows [rows] and of w's rows [cols] where cuBLASLt has no algorithm that does.
// bias is f32 [cols] or null; rows of `sum` are `stride` elements apart. Every row's bits depend on
// that row alone. Returns the launch's error.
template <typename T>
cudaError_t ScaleRows(T* out, const float* sum, int64_t stride, const float* x_scales,
                      const float* w_scales, const float* bias, int64_t rows, int64_t cols,
                      KernelStream stream);

}  // namespace continuo::kernels::cuda
