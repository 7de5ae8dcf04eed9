// SPDX-License-Identifier: Apache-2.0
// Packed bf16 by vdpbf16ps: per output and pair of elements of k, the odd product and then the even
// one are added to the accumulator; subnormals count as zeros. Compiled with AVX-512 and
// -mavx512bf16.

#include <immintrin.h>

#include "kernels/cpu/kernel_words.h"

namespace continuo::cpu {
namespace {

#include "kernels/cpu/panels-inl.h"

struct PairsTile {
  static constexpr size_t kRows = 12, kPanels = 2, kFewRows = 6, kFewPanels = 4;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kGroup = 0;
  static constexpr size_t kChunk = 512;
  static constexpr size_t kChunkBytes = kChunk / 2 * 64;

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    const uint8_t* w[kP];
    UNROLL for (size_t p = 0; p < kP; ++p) w[p] = t.w + p * t.panel_stride;
    __m512 acc[kM][kP];
    UNROLL for (size_t i = 0; i < kM; ++i) {
      UNROLL for (size_t p = 0; p < kP; ++p) {
        acc[i][p] = t.first ? _mm512_setzero_ps()
                            : _mm512_loadu_ps(t.out + i * t.out_stride + p * kPanelColumns);
      }
    }
    const size_t pairs = (t.k + 1) / 2;
    for (size_t pair = 0; pair < pairs; ++pair) {
      AskAhead(t, w, pair * 64);
      __m512bh ws[kP];
      UNROLL for (size_t p = 0; p < kP; ++p) {
        ws[p] = (__m512bh)_mm512_loadu_si512(w[p] + pair * 64);
      }
      UNROLL for (size_t i = 0; i < kM; ++i) {
        int32_t two;
        memcpy(&two, t.x + i * t.x_stride + pair * 4, 4);
        const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
        UNROLL for (size_t p = 0; p < kP; ++p) acc[i][p] = _mm512_dpbf16_ps(acc[i][p], ws[p], x);
      }
    }
    UNROLL for (size_t i = 0; i < kM; ++i) {
      UNROLL for (size_t p = 0; p < kP; ++p) {
        _mm512_storeu_ps(t.out + i * t.out_stride + p * kPanelColumns, acc[i][p]);
      }
    }
  }
};

}  // namespace

void Avx512Bf16(const PanelBlock& block) { Panels<PairsTile>(block); }

}  // namespace continuo::cpu
