// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 for ARMv8-A. Included inside an unnamed namespace, after
//
//   AddProducts(acc, w, x)    acc[i] + the four products of bytes 4i to 4i + 3 of w and x, exact
//
// No include guard: not a header.

#include "kernels/cpu/isa/panel_matmul-inl.h"

// Four vectors of four outputs are a panel.
template <int kBits>
struct QuantTile : QuantLayout<kBits, 1024> {
  using Layout = QuantLayout<kBits, 1024>;
  using Layout::kGroup, Layout::kRun, Layout::kGroupBytes;
  static constexpr size_t kRows = 4, kPanels = 1, kSmallM = 4, kSmallMPanels = 1;

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    const uint8_t* w = t.w;
    size_t group = 0;
    for (size_t k = 0; k < t.k; k += kGroup, ++group, w += kGroupBytes) {
      const size_t size = t.k - k < kGroup ? t.k - k : kGroup;
      int32x4_t acc[kM][4];
      UNROLL for (size_t i = 0; i < kM; ++i) {
        const int32_t start = kBits == 8 ? 0 : -8 * t.x_sums[i * t.group_stride + group];
        UNROLL for (size_t quarter = 0; quarter < 4; ++quarter) acc[i][quarter] =
            vdupq_n_s32(start);
      }
      const uint8_t* x = t.x + k;
      size_t at = 64;
      for (size_t run = 0; run < size; run += kRun, at += 64) {
        PrefetchL2(w + at, t.ahead);
        int8x16_t four[kM], next_four[kM];
        UNROLL for (size_t i = 0; i < kM; ++i) {
          int32_t words[2] = {};
          memcpy(words, x + i * t.x_stride + run, kRun);
          four[i] = vreinterpretq_s8_s32(vdupq_n_s32(words[0]));
          next_four[i] = vreinterpretq_s8_s32(vdupq_n_s32(words[1]));
        }
        UNROLL for (size_t quarter = 0; quarter < 4; ++quarter) {
          const uint8x16_t bytes = vld1q_u8(w + at + 16 * quarter);
          const int8x16_t low = vreinterpretq_s8_u8(kBits == 8 ? veorq_u8(bytes, vdupq_n_u8(128))
                                                               : vandq_u8(bytes, vdupq_n_u8(15)));
          const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4));
          UNROLL for (size_t i = 0; i < kM; ++i) {
            acc[i][quarter] = AddProducts(acc[i][quarter], low, four[i]);
            if (kBits == 4) acc[i][quarter] = AddProducts(acc[i][quarter], high, next_four[i]);
          }
        }
      }
      const bool first = t.first && group == 0;
      UNROLL for (size_t quarter = 0; quarter < 4; ++quarter) {
        const float32x4_t scales = vld1q_f32(reinterpret_cast<const float*>(w) + 4 * quarter);
        UNROLL for (size_t i = 0; i < kM; ++i) {
          float* out = t.out + i * t.out_stride + 4 * quarter;
          const float32x4_t x_scale = vdupq_n_f32(t.x_scales[i * t.group_stride + group]);
          const float32x4_t product =
              vmulq_f32(vmulq_f32(vcvtq_f32_s32(acc[i][quarter]), scales), x_scale);
          vst1q_f32(out, first ? product : vaddq_f32(vld1q_f32(out), product));
        }
      }
    }
  }
};
