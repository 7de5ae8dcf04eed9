// SPDX-License-Identifier: Apache-2.0
// Packed bf16 by vdpbf16ps: per output and pair of elements of k, the odd product and then the even
// one are added to the accumulator; subnormals count as zeros. Compiled with AVX-512 and
// -mavx512bf16.

#include "kernels/cpu/avx512_products.h"

namespace continuo::cpu {
namespace {

#include "kernels/cpu/panels-inl.h"

DEFINE_ADD_PRODUCTS(__m512, "vdpbf16ps")

struct PairsTile {
  static constexpr size_t kRows = 12, kPanels = 2, kFewRows = 6, kFewPanels = 4;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kGroup = 0;
  static constexpr size_t kChunk = 256;
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
    XRows<kM> x(t.x, t.x_stride);
    const size_t bytes = (t.k + 1) / 2 * 64;
    for (size_t at = 0; at < bytes; at += 64, x.Advance(4)) {
      __m512i ws[kP];
      UNROLL for (size_t p = 0; p < kP; ++p) {
        ws[p] = _mm512_loadu_si512(w[p] + at);
        AskAhead(w[p] + at, t.ahead);
      }
      UNROLL for (size_t i = 0; i < kM; ++i) { AddProducts<kP>(acc[i], ws, x.Row(i)); }
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
