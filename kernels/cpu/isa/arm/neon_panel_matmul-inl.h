// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 for ARMv8-A. Included inside an unnamed namespace, after
//
//   AddProducts(acc, w, x)    acc[i] + the four products of bytes 4i to 4i + 3 of w and x, exact
//
// No include guard: not a header.

#include "kernels/cpu/isa/panel_matmul-inl.h"

struct Words {
  INLINE static float32x4_t Halves(const uint8_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
  }
  INLINE static void Widen(float* out, const uint8_t* halves) {
    UNROLL for (size_t i = 0; i < 4; ++i) vst1q_f32(out + 4 * i, Halves(halves + 8 * i));
  }
  INLINE static void Multiply(float* out, const uint8_t* bytes, const uint8_t* halves) {
    const int8x16_t codes = vreinterpretq_s8_u8(vld1q_u8(bytes));
    const int16x8_t low = vmovl_s8(vget_low_s8(codes)), high = vmovl_high_s8(codes);
    const int32x4_t whole[4] = {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                                vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
    UNROLL for (size_t i = 0; i < 4; ++i) {
      vst1q_f32(out + 4 * i, vmulq_f32(vcvtq_f32_s32(whole[i]), Halves(halves + 8 * i)));
    }
  }
};

// Four vectors of four outputs are a panel. kTable: four bits stand for an integer of the groups'
// table.
template <int kBits, bool kTable>
struct QuantTile : QuantLayout<kBits, 1024> {
  using Layout = QuantLayout<kBits, 1024>;
  using Layout::kRun;
  static constexpr size_t kRows = 4, kPanels = 1, kSmallM = 4, kSmallMPanels = 1;

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    const bool has_minimum = t.groups->format.has_minimum;
    const int32_t offset = kBits == 8 || kTable || has_minimum ? 0 : 8;
    const uint8x16_t table = vld1q_u8(t.groups->table);
    const auto widen = [table](uint8x16_t codes) {
      return kTable ? veorq_u8(vqtbl1q_u8(table, codes), vdupq_n_u8(128)) : codes;
    };
    ForGroups<kRun>(t, [&](size_t group, size_t k, size_t size, const uint8_t* unit, size_t in_unit,
                           const uint8_t* w) {
      float room[2 * kPanelColumns];
      const GroupNumbers numbers = NumbersOf<Words>(*t.groups, unit, in_unit, room);
      int32x4_t acc[kM][4];
      UNROLL for (size_t i = 0; i < kM; ++i) {
        const int32_t start = -offset * t.x_sums[group * t.group_stride + i];
        UNROLL for (size_t quarter = 0; quarter < 4; ++quarter) acc[i][quarter] =
            vdupq_n_s32(start);
      }
      const uint8_t* x = t.x + k;
      for (size_t run = 0; run < size; run += kRun, w += 64) {
        PrefetchL2(w, t.ahead);
        int8x16_t four[kM], next_four[kM];
        UNROLL for (size_t i = 0; i < kM; ++i) {
          int32_t words[2] = {};
          memcpy(words, x + i * t.x_stride + run, kRun);
          four[i] = vreinterpretq_s8_s32(vdupq_n_s32(words[0]));
          next_four[i] = vreinterpretq_s8_s32(vdupq_n_s32(words[1]));
        }
        UNROLL for (size_t quarter = 0; quarter < 4; ++quarter) {
          const uint8x16_t bytes = vld1q_u8(w + 16 * quarter);
          const int8x16_t low =
              vreinterpretq_s8_u8(kBits == 8 ? veorq_u8(bytes, vdupq_n_u8(128))
                                             : widen(vandq_u8(bytes, vdupq_n_u8(15))));
          const int8x16_t high = vreinterpretq_s8_u8(widen(vshrq_n_u8(bytes, 4)));
          UNROLL for (size_t i = 0; i < kM; ++i) {
            acc[i][quarter] = AddProducts(acc[i][quarter], low, four[i]);
            if (kBits == 4) acc[i][quarter] = AddProducts(acc[i][quarter], high, next_four[i]);
          }
        }
      }
      const bool first = t.first && group == 0;
      UNROLL for (size_t quarter = 0; quarter < 4; ++quarter) {
        const float32x4_t scales = vld1q_f32(numbers.scales + 4 * quarter);
        UNROLL for (size_t i = 0; i < kM; ++i) {
          float* out = t.out + i * t.out_stride + 4 * quarter;
          const float x_scale = t.x_scales[group * t.group_stride + i];
          float32x4_t product =
              vmulq_f32(vmulq_f32(vcvtq_f32_s32(acc[i][quarter]), scales), vdupq_n_f32(x_scale));
          if (has_minimum) {
            const float sum = t.x_scaled_sums[group * t.group_stride + i];
            const float32x4_t minima = vld1q_f32(numbers.minima + 4 * quarter);
            product = vaddq_f32(product, vmulq_f32(minima, vdupq_n_f32(sum)));
          }
          vst1q_f32(out, first ? product : vaddq_f32(vld1q_f32(out), product));
        }
      }
    });
  }
};
