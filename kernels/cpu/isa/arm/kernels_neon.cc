// SPDX-License-Identifier: Apache-2.0
// For ARMv8-A. Eight lanes in two registers, so the orders of sums and the bits are avx2's.

#include <arm_neon.h>

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

struct Vec {
  float32x4_t a, b;
};
constexpr size_t kLanes = 8;
constexpr size_t kRowTile = 4;
constexpr size_t kColTile = 2;
constexpr size_t kColTile1 = 8;
constexpr size_t kFloatRows = 6, kFloatPanels = 1, kFloatSmallM = 1;
constexpr size_t kQueryTile = 4;
constexpr size_t kPanelTile = 2;
constexpr size_t kDecodeAccumulators = 8;

INLINE uint32x4_t BitsOf(float32x4_t v) { return vreinterpretq_u32_f32(v); }
INLINE float32x4_t FloatsOf(uint32x4_t v) { return vreinterpretq_f32_u32(v); }

INLINE Vec Set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
INLINE Vec Zero() { return Set(0); }
INLINE Vec Load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
INLINE Vec LoadWords(const void* p) {
  const uint8_t* bytes = static_cast<const uint8_t*>(p);
  return {vreinterpretq_f32_u8(vld1q_u8(bytes)), vreinterpretq_f32_u8(vld1q_u8(bytes + 16))};
}
INLINE Vec Keep(Vec v) {
  asm("" : "+w"(v.a), "+w"(v.b));
  return v;
}
INLINE void Store(float* p, Vec v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
}
INLINE Vec Evens(Vec x, Vec y) { return {vuzp1q_f32(x.a, x.b), vuzp1q_f32(y.a, y.b)}; }
INLINE Vec Odds(Vec x, Vec y) { return {vuzp2q_f32(x.a, x.b), vuzp2q_f32(y.a, y.b)}; }
INLINE Vec Add(Vec x, Vec y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
INLINE Vec Sub(Vec x, Vec y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
INLINE Vec Mul(Vec x, Vec y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
INLINE Vec Div(Vec x, Vec y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
INLINE Vec MulAdd(Vec x, Vec y, Vec z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)};
}
// Returns the second of two zeros, and where one is NaN; the instruction for it does not.
INLINE float32x4_t Max4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
INLINE Vec Max(Vec x, Vec y) { return {Max4(x.a, y.a), Max4(x.b, y.b)}; }
INLINE Vec IfLess(Vec x, Vec y, Vec yes, Vec no) {
  return {vbslq_f32(vcltq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcltq_f32(x.b, y.b), yes.b, no.b)};
}
INLINE Vec PowerOfTwo(Vec z) {
  const uint32x4_t one = vdupq_n_u32(0x3f800000);
  return {FloatsOf(vaddq_u32(vshlq_n_u32(BitsOf(z.a), 23), one)),
          FloatsOf(vaddq_u32(vshlq_n_u32(BitsOf(z.b), 23), one))};
}
INLINE float Sum(Vec v) {
  const float32x4_t fours = vaddq_f32(v.a, v.b);
  const float32x2_t pairs = vadd_f32(vget_low_f32(fours), vget_high_f32(fours));
  return vget_lane_f32(pairs, 0) + vget_lane_f32(pairs, 1);
}

INLINE float32x4_t LowPairs(float32x4_t x, float32x4_t y) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y)));
}
INLINE float32x4_t HighPairs(float32x4_t x, float32x4_t y) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y)));
}
// The steps of Sum for four vectors at a time.
template <size_t n>
INLINE void SumEach(float* out, const Vec* v) {
  UNROLL for (size_t at = 0; at < n; at += 4) {
    const auto fours = [&](size_t i) {
      const Vec x = v[at + i < n ? at + i : at];
      return vaddq_f32(x.a, x.b);
    };
    const auto pairs = [&](size_t i) {
      const float32x4_t x = fours(i), y = fours(i + 1);
      return vaddq_f32(LowPairs(x, y), HighPairs(x, y));
    };
    const float32x4_t x = pairs(0), y = pairs(2);
    const float32x4_t sums = vaddq_f32(vuzp1q_f32(x, y), vuzp2q_f32(x, y));
    if (at + 4 <= n) {
      vst1q_f32(out + at, sums);
    } else {
      float part[4];
      vst1q_f32(part, sums);
      memcpy(out + at, part, (n - at) * sizeof(float));
    }
  }
}

INLINE void Transpose4(float32x4_t& a, float32x4_t& b, float32x4_t& c, float32x4_t& d) {
  const float32x4_t ab = vtrn1q_f32(a, b), ba = vtrn2q_f32(a, b);
  const float32x4_t cd = vtrn1q_f32(c, d), dc = vtrn2q_f32(c, d);
  a = LowPairs(ab, cd);
  b = LowPairs(ba, dc);
  c = HighPairs(ab, cd);
  d = HighPairs(ba, dc);
}
// 8 × 8 words: the quarters each, and two of them change places.
INLINE void Transpose(Vec* v) {
  Transpose4(v[0].a, v[1].a, v[2].a, v[3].a);
  Transpose4(v[0].b, v[1].b, v[2].b, v[3].b);
  Transpose4(v[4].a, v[5].a, v[6].a, v[7].a);
  Transpose4(v[4].b, v[5].b, v[6].b, v[7].b);
  UNROLL for (size_t i = 0; i < 4; ++i) {
    const float32x4_t upper = v[i].b;
    v[i].b = v[4 + i].a;
    v[4 + i].a = upper;
  }
}
INLINE float MaxOf(Vec v) {
  const float32x4_t fours = Max4(v.a, v.b);
  const float32x4_t pairs = Max4(fours, vextq_f32(fours, fours, 2));
  return vgetq_lane_f32(Max4(pairs, vextq_f32(pairs, pairs, 1)), 0);
}

INLINE Vec LoadBF16(const uint16_t* p) {
  const uint16x8_t h = vld1q_u16(p);
  return {FloatsOf(vshll_n_u16(vget_low_u16(h), 16)), FloatsOf(vshll_high_n_u16(h, 16))};
}
INLINE Vec BF16Even(Vec pairs) {
  return {FloatsOf(vshlq_n_u32(BitsOf(pairs.a), 16)), FloatsOf(vshlq_n_u32(BitsOf(pairs.b), 16))};
}
INLINE Vec BF16Odd(Vec pairs) {
  const uint32x4_t high = vdupq_n_u32(0xffff0000u);
  return {FloatsOf(vandq_u32(BitsOf(pairs.a), high)), FloatsOf(vandq_u32(BitsOf(pairs.b), high))};
}
INLINE Vec LoadBF16Even(const uint16_t* p) { return BF16Even(LoadWords(p)); }
INLINE Vec LoadBF16Odd(const uint16_t* p) { return BF16Odd(LoadWords(p)); }
INLINE Vec LoadF16(const uint16_t* p) {
  const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
  return {vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
INLINE Vec LoadI8(const int8_t* p) {
  const int16x8_t wide = vmovl_s8(vld1_s8(p));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
}
template <size_t i>
INLINE Vec I8Part(Vec words) {
  const auto part = [](float32x4_t v) {
    return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(vreinterpretq_s32_f32(v), 24 - 8 * i), 24));
  };
  return {part(words.a), part(words.b)};
}

// Round to nearest, ties to even; a NaN stays one.
INLINE uint16x4_t RoundBF16(float32x4_t v) {
  const uint32x4_t bits = BitsOf(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16);
}
INLINE void StoreBF16(uint16_t* p, Vec v) {
  vst1q_u16(p, vcombine_u16(RoundBF16(v.a), RoundBF16(v.b)));
}

// It needs the words above.
#include "kernels/cpu/isa/kernels-inl.h"

}  // namespace

constinit const KernelTable kNeonKernels =
    MakeTable("neon", {nullptr, nullptr, NeonInt8, NeonInt4});
constinit const KernelTable kNeonDotKernels =
    MakeTable("neon", {nullptr, nullptr, NeonDotInt8, NeonDotInt4});

}  // namespace continuo::kernels::cpu
