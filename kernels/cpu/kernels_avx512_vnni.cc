// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 by vpdpbusd. Compiled with AVX-512 and -mavx512vnni.

#include "kernels/cpu/avx512_products.h"

namespace continuo::cpu {
namespace {

#include "kernels/cpu/panels-inl.h"

DEFINE_ADD_PRODUCTS(__m512i, "vpdpbusd")

// Weights are unsigned with an offset, x is signed: Σ (w + offset) x - offset Σ x.
template <int kBits>
struct QuantTile {
  static constexpr size_t kRows = 12, kPanels = 2, kFewRows = 6, kFewPanels = 4;
  static constexpr size_t kElementBytes = 1;
  static constexpr size_t kGroup = kBits == 8 ? kInt8Group : kInt4Group;
  static constexpr size_t kRun = kBits == 8 ? 4 : 8;
  static constexpr size_t kGroupBytes = (kGroup / kRun + 1) * 64;
  static constexpr size_t kChunk = kBits == 8 ? 1024 : 2048;
  static constexpr size_t kChunkBytes = kChunk / kGroup * kGroupBytes;

  // The integer sums of one group. A function of its own, with all its accumulators in registers:
  // GCC 12 copies them about where the conversion to floats follows in the same one.
  template <size_t kM, size_t kP>
  __attribute__((noinline)) static void AddGroup(const TileArgs& t, const uint8_t* group_w,
                                                 const uint8_t* group_x, const int32_t* x_sums,
                                                 size_t bytes, int32_t* sums) {
    const uint8_t* w[kP];
    UNROLL for (size_t p = 0; p < kP; ++p) w[p] = group_w + p * t.panel_stride;
    XRows<kM> x(group_x, t.x_stride);
    __m512i acc[kM][kP];
    UNROLL for (size_t i = 0; i < kM; ++i) {
      const __m512i start = _mm512_set1_epi32(-(kBits == 8 ? 128 : 8) * x_sums[i * t.group_stride]);
      UNROLL for (size_t p = 0; p < kP; ++p) acc[i][p] = start;
    }
    const size_t ahead = t.ahead;
    for (size_t at = 0; at < bytes; at += 64, x.Advance(kRun)) {
      __m512i low[kP], high[kP];
      UNROLL for (size_t p = 0; p < kP; ++p) {
        low[p] = _mm512_loadu_si512(w[p] + at);
        AskAhead(w[p] + at, ahead);
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
    UNROLL for (size_t i = 0; i < kM; ++i) {
      UNROLL for (size_t p = 0; p < kP; ++p) {
        _mm512_storeu_si512(sums + (i * kP + p) * kPanelColumns, acc[i][p]);
      }
    }
  }

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    alignas(64) int32_t sums[kM * kP * kPanelColumns];
    const uint8_t* w = t.w;
    size_t group = 0;
    for (size_t k = 0; k < t.k; k += kGroup, ++group, w += kGroupBytes) {
      const size_t size = t.k - k < kGroup ? t.k - k : kGroup;
      AddGroup<kM, kP>(t, w + 64, t.x + k, t.x_sums + group, (size + kRun - 1) / kRun * 64, sums);
      const bool first = t.first && group == 0;
      for (size_t p = 0; p < kP; ++p) {
        const __m512 scales =
            _mm512_loadu_ps(reinterpret_cast<const float*>(w + p * t.panel_stride));
        for (size_t i = 0; i < kM; ++i) {
          float* out = t.out + i * t.out_stride + p * kPanelColumns;
          const __m512 x_scale = _mm512_set1_ps(t.x_scales[i * t.group_stride + group]);
          const __m512 sum =
              _mm512_cvtepi32_ps(_mm512_load_si512(sums + (i * kP + p) * kPanelColumns));
          const __m512 product = _mm512_mul_ps(_mm512_mul_ps(sum, scales), x_scale);
          _mm512_storeu_ps(out, first ? product : _mm512_add_ps(_mm512_loadu_ps(out), product));
        }
      }
    }
  }
};

}  // namespace

void Avx512VnniInt8(const PanelBlock& block) { Panels<QuantTile<8>>(block); }
void Avx512VnniInt4(const PanelBlock& block) { Panels<QuantTile<4>>(block); }

}  // namespace continuo::cpu
