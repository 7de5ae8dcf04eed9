// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 by vpmaddubsw. Compiled with -mavx2.

#include <immintrin.h>

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

#include "kernels/cpu/isa/panel_matmul-inl.h"

INLINE __m256i Load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Two vectors of eight outputs are a panel.
template <int kBits>
struct QuantTile : QuantLayout<kBits, 1024> {
  using Layout = QuantLayout<kBits, 1024>;
  using Layout::kGroup, Layout::kRun, Layout::kGroupBytes;
  static constexpr size_t kRows = 4, kPanels = 1, kSmallM = 4, kSmallMPanels = 1;

  // Sums of four products, exact: vpmaddubsw adds two in 16 bits, which holds 2 · 127 · 127 but
  // not 2 · 255 · 127. So int8 weights lose their offset and give their sign to x.
  INLINE static __m256i FourProducts(__m256i w, __m256i x) {
    const __m256i pairs = kBits == 8
                              ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                              : _mm256_maddubs_epi16(w, x);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    const uint8_t* w = t.w;
    size_t group = 0;
    for (size_t k = 0; k < t.k; k += kGroup, ++group, w += kGroupBytes) {
      const size_t size = t.k - k < kGroup ? t.k - k : kGroup;
      __m256i acc[kM][2];
      UNROLL for (size_t i = 0; i < kM; ++i) {
        const int32_t start = kBits == 8 ? 0 : -8 * t.x_sums[i * t.group_stride + group];
        acc[i][0] = acc[i][1] = _mm256_set1_epi32(start);
      }
      const uint8_t* x = t.x + k;
      size_t at = 64;
      for (size_t run = 0; run < size; run += kRun, at += 64) {
        PrefetchL2(w + at, t.ahead);
        UNROLL for (size_t half = 0; half < 2; ++half) {
          const __m256i bytes = Load(w + at + 32 * half);
          const __m256i mask = _mm256_set1_epi8(15);
          const __m256i low = kBits == 8 ? _mm256_xor_si256(bytes, _mm256_set1_epi8(-128))
                                         : _mm256_and_si256(bytes, mask);
          const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
          UNROLL for (size_t i = 0; i < kM; ++i) {
            int32_t four[2];
            memcpy(four, x + i * t.x_stride + run, kRun);
            acc[i][half] =
                _mm256_add_epi32(acc[i][half], FourProducts(low, _mm256_set1_epi32(four[0])));
            if (kBits == 4) {
              acc[i][half] =
                  _mm256_add_epi32(acc[i][half], FourProducts(high, _mm256_set1_epi32(four[1])));
            }
          }
        }
      }
      const bool first = t.first && group == 0;
      UNROLL for (size_t half = 0; half < 2; ++half) {
        const __m256 scales = _mm256_loadu_ps(reinterpret_cast<const float*>(w) + 8 * half);
        UNROLL for (size_t i = 0; i < kM; ++i) {
          float* out = t.out + i * t.out_stride + 8 * half;
          const __m256 x_scale = _mm256_set1_ps(t.x_scales[i * t.group_stride + group]);
          const __m256 product =
              _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc[i][half]), scales), x_scale);
          _mm256_storeu_ps(out, first ? product : _mm256_add_ps(_mm256_loadu_ps(out), product));
        }
      }
    }
  }
};

}  // namespace

void Avx2Int8(const PanelBlock& block) { Panels<QuantTile<8>>(block); }
void Avx2Int4(const PanelBlock& block) { Panels<QuantTile<4>>(block); }

}  // namespace continuo::kernels::cpu
