// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 by vpdpbusd. Compiled with AVX-512 and -mavx512vnni.

#include <immintrin.h>

#include "kernels/cpu/kernel_words.h"

namespace continuo::cpu {
namespace {

#include "kernels/cpu/panels-inl.h"

INLINE __m512i Load(const uint8_t* p) { return _mm512_loadu_si512(p); }

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

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    size_t group = 0;
    const uint8_t* w[kP];
    UNROLL for (size_t p = 0; p < kP; ++p) w[p] = t.w + p * t.panel_stride;
    for (size_t k = 0; k < t.k; k += kGroup, ++group) {
      const size_t size = t.k - k < kGroup ? t.k - k : kGroup;
      __m512i acc[kM][kP];
      UNROLL for (size_t i = 0; i < kM; ++i) {
        const int32_t sum = t.x_sums[i * t.group_stride + group];
        UNROLL for (size_t p = 0; p < kP; ++p) {
          acc[i][p] = _mm512_set1_epi32(-(kBits == 8 ? 128 : 8) * sum);
        }
      }
      const uint8_t* x = t.x + k;
      size_t at = 64;
      AskAhead(t, w, 0);
      for (size_t run = 0; run < size; run += kRun, at += 64) {
        AskAhead(t, w, at);
        __m512i low[kP], high[kP];
        UNROLL for (size_t p = 0; p < kP; ++p) {
          low[p] = Load(w[p] + at);
          if (kBits == 4) {
            const __m512i mask = _mm512_set1_epi8(15);
            high[p] = _mm512_and_si512(_mm512_srli_epi16(low[p], 4), mask);
            low[p] = _mm512_and_si512(low[p], mask);
          }
        }
        UNROLL for (size_t i = 0; i < kM; ++i) {
          int32_t four[2];
          memcpy(four, x + i * t.x_stride + run, kRun);
          const __m512i first = _mm512_set1_epi32(four[0]);
          UNROLL for (size_t p = 0; p < kP; ++p) {
            acc[i][p] = _mm512_dpbusd_epi32(acc[i][p], low[p], first);
          }
          if (kBits == 4) {
            const __m512i second = _mm512_set1_epi32(four[1]);
            UNROLL for (size_t p = 0; p < kP; ++p) {
              acc[i][p] = _mm512_dpbusd_epi32(acc[i][p], high[p], second);
            }
          }
        }
      }
      const bool first = t.first && group == 0;
      UNROLL for (size_t p = 0; p < kP; ++p) {
        const __m512 scales = _mm512_loadu_ps(reinterpret_cast<const float*>(w[p]));
        UNROLL for (size_t i = 0; i < kM; ++i) {
          float* out = t.out + i * t.out_stride + p * kPanelColumns;
          const __m512 x_scale = _mm512_set1_ps(t.x_scales[i * t.group_stride + group]);
          const __m512 product =
              _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc[i][p]), scales), x_scale);
          _mm512_storeu_ps(out, first ? product : _mm512_add_ps(_mm512_loadu_ps(out), product));
        }
        w[p] += kGroupBytes;
      }
    }
  }
};

}  // namespace

void Avx512VnniInt8(const PanelBlock& block) { Panels<QuantTile<8>>(block); }
void Avx512VnniInt4(const PanelBlock& block) { Panels<QuantTile<4>>(block); }

}  // namespace continuo::cpu
