// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 by vpdpbusd. Compiled with AVX-512 and -mavx512vnni.

#include "kernels/cpu/isa/avx512_products.h"

namespace continuo::kernels::cpu {
namespace {

#include "kernels/cpu/isa/panel_matmul-inl.h"

DEFINE_ADD_PRODUCTS(__m512i, "vpdpbusd")

// Weights are unsigned with an offset, x is signed: Σ (w + offset) x - offset Σ x.
template <int kBits>
struct QuantTile : QuantLayout<kBits, 512> {
  using Layout = QuantLayout<kBits, 512>;
  using Layout::kGroup, Layout::kRun, Layout::kGroupBytes;
  static constexpr size_t kRows = 12, kPanels = 2, kSmallM = 6, kSmallMPanels = 4;

  // Computes the integer sums of one group, then adds them to `out`, scaled. It is a function of
  // its own, since GCC 12 copies the accumulators if a loop over groups is around it.
  template <size_t kM, size_t kP, bool kFirst>
  __attribute__((noinline)) static void AddGroup(const TileArgs& t, const uint8_t* group_w,
                                                 const uint8_t* group_x, size_t group,
                                                 size_t bytes) {
    const uint8_t* w[kP];
    UNROLL for (size_t p = 0; p < kP; ++p) w[p] = group_w + p * t.panel_stride;
    XRows<kM> x(group_x, t.x_stride);
    __m512i acc[kM][kP];
    UNROLL for (size_t i = 0; i < kM; ++i) {
      const int32_t sum = t.x_sums[i * t.group_stride + group];
      const __m512i start = _mm512_set1_epi32(-(kBits == 8 ? 128 : 8) * sum);
      UNROLL for (size_t p = 0; p < kP; ++p) acc[i][p] = start;
    }
    const size_t ahead = t.ahead;
    for (size_t at = 64; at < bytes; at += 64, x.Advance(kRun)) {
      __m512i low[kP], high[kP];
      UNROLL for (size_t p = 0; p < kP; ++p) {
        low[p] = _mm512_loadu_si512(w[p] + at);
        PrefetchL2(w[p] + at, ahead);
        if (kBits == 4) {
          const __m512i mask = _mm512_set1_epi8(15);
          high[p] = _mm512_and_si512(_mm512_srli_epi16(low[p], 4), mask);
          low[p] = _mm512_and_si512(low[p], mask);
        }
      }
      UNROLL for (size_t i = 0; i < kM; ++i) {
        AddProducts<kP>(acc[i], low, x.Row(i));
        if (kBits == 4) AddProducts<kP>(acc[i], high, x.Row(i) + 4);
      }
    }
    const float* x_scales = t.x_scales + group;
    float* out = t.out;
    UNROLL for (size_t i = 0; i < kM; ++i, x_scales += t.group_stride, out += t.out_stride) {
      const __m512 x_scale = _mm512_set1_ps(*x_scales);
      UNROLL for (size_t p = 0; p < kP; ++p) {
        const __m512 scales = _mm512_loadu_ps(reinterpret_cast<const float*>(w[p]));
        const __m512 product =
            _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc[i][p]), scales), x_scale);
        float* const to = out + p * kPanelColumns;
        _mm512_storeu_ps(to, kFirst ? product : _mm512_add_ps(_mm512_loadu_ps(to), product));
      }
    }
  }

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    const uint8_t* w = t.w;
    size_t group = 0;
    for (size_t k = 0; k < t.k; k += kGroup, ++group, w += kGroupBytes) {
      const size_t size = t.k - k < kGroup ? t.k - k : kGroup;
      const size_t bytes = 64 + (size + kRun - 1) / kRun * 64;
      if (t.first && group == 0) {
        AddGroup<kM, kP, true>(t, w, t.x + k, group, bytes);
      } else {
        AddGroup<kM, kP, false>(t, w, t.x + k, group, bytes);
      }
    }
  }
};

}  // namespace

void Avx512VnniInt8(const PanelBlock& block) { Panels<QuantTile<8>>(block); }
void Avx512VnniInt4(const PanelBlock& block) { Panels<QuantTile<4>>(block); }

}  // namespace continuo::kernels::cpu
