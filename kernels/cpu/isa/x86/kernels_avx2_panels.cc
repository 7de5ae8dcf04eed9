// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 by vpmaddubsw. Compiled with -mavx2 -mf16c.

#include <immintrin.h>

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

#include "kernels/cpu/isa/panel_matmul-inl.h"

INLINE __m256i Load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

struct Words {
  INLINE static __m256 Halves(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  INLINE static void Widen(float* out, const uint8_t* halves) {
    UNROLL for (size_t i = 0; i < 2; ++i) _mm256_storeu_ps(out + 8 * i, Halves(halves + 16 * i));
  }
  INLINE static void Multiply(float* out, const uint8_t* bytes, const uint8_t* halves) {
    UNROLL for (size_t i = 0; i < 2; ++i) {
      const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + 8 * i));
      const __m256 whole = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
      _mm256_storeu_ps(out + 8 * i, _mm256_mul_ps(whole, Halves(halves + 16 * i)));
    }
  }
};

// Two vectors of eight outputs are a panel. kTable: four bits stand for an integer of the groups'
// table.
template <int kBits, bool kTable>
struct QuantTile : QuantLayout<kBits, 1024> {
  using Layout = QuantLayout<kBits, 1024>;
  using Layout::kRun;
  static constexpr size_t kRows = 4, kPanels = 1, kSmallM = 4, kSmallMPanels = 1;

  static constexpr bool kSigned = kBits == 8 || kTable;

  // Sums of four products, exact: vpmaddubsw adds two in 16 bits, which holds 2 · 127 · 127 but
  // not 2 · 255 · 127. So integers of eight bits lose their offset and give their sign to x.
  INLINE static __m256i FourProducts(__m256i w, __m256i x) {
    const __m256i pairs = kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                                  : _mm256_maddubs_epi16(w, x);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    const bool has_minimum = t.groups->format.has_minimum;
    const int32_t offset = kSigned || has_minimum ? 0 : 8;
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(t.groups->table)));
    const auto widen = [table](__m256i codes) {
      return kTable ? _mm256_xor_si256(_mm256_shuffle_epi8(table, codes), _mm256_set1_epi8(-128))
                    : codes;
    };
    ForGroups<kRun>(t, [&](size_t group, size_t k, size_t size, const uint8_t* unit, size_t in_unit,
                           const uint8_t* w) {
      float room[2 * kPanelColumns];
      const GroupNumbers numbers = NumbersOf<Words>(*t.groups, unit, in_unit, room);
      __m256i acc[kM][2];
      UNROLL for (size_t i = 0; i < kM; ++i) {
        const int32_t start = -offset * t.x_sums[group * t.group_stride + i];
        acc[i][0] = acc[i][1] = _mm256_set1_epi32(start);
      }
      const uint8_t* x = t.x + k;
      for (size_t run = 0; run < size; run += kRun, w += 64) {
        PrefetchL2(w, t.ahead);
        UNROLL for (size_t half = 0; half < 2; ++half) {
          const __m256i bytes = Load(w + 32 * half);
          const __m256i mask = _mm256_set1_epi8(15);
          const __m256i low = kBits == 8 ? _mm256_xor_si256(bytes, _mm256_set1_epi8(-128))
                                         : widen(_mm256_and_si256(bytes, mask));
          const __m256i high = widen(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask));
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
        const __m256 scales = _mm256_loadu_ps(numbers.scales + 8 * half);
        UNROLL for (size_t i = 0; i < kM; ++i) {
          float* out = t.out + i * t.out_stride + 8 * half;
          const float x_scale = t.x_scales[group * t.group_stride + i];
          __m256 product = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc[i][half]), scales),
                                         _mm256_set1_ps(x_scale));
          if (has_minimum) {
            const float sum = t.x_scaled_sums[group * t.group_stride + i];
            const __m256 minima = _mm256_loadu_ps(numbers.minima + 8 * half);
            product = _mm256_add_ps(product, _mm256_mul_ps(minima, _mm256_set1_ps(sum)));
          }
          _mm256_storeu_ps(out, first ? product : _mm256_add_ps(_mm256_loadu_ps(out), product));
        }
      }
    });
  }
};

}  // namespace

void Avx2Int8(const PanelBlock& block) { Panels<QuantTile<8, false>>(block); }
void Avx2Int4(const PanelBlock& block) { Int4Panels<QuantTile>(block); }

}  // namespace continuo::kernels::cpu
