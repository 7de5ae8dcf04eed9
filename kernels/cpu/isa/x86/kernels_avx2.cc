// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2 -mfma -mf16c.

#include <immintrin.h>

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

using Vec = __m256;
constexpr size_t kLanes = 8;
constexpr size_t kRowTile = 4;
constexpr size_t kColTile = 2;
constexpr size_t kColTile1 = 8;
constexpr size_t kFloatRows = 6, kFloatPanels = 1, kFloatSmallM = 1;
constexpr size_t kQueryTile = 6;
constexpr size_t kPanelTile = 2;
constexpr size_t kDecodeAccumulators = 8;

INLINE Vec Zero() { return _mm256_setzero_ps(); }
INLINE Vec Set(float x) { return _mm256_set1_ps(x); }
INLINE Vec Load(const float* p) { return _mm256_loadu_ps(p); }
INLINE Vec LoadWords(const void* p) {
  return _mm256_castsi256_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
INLINE Vec Keep(Vec v) {
  asm("" : "+x"(v));
  return v;
}
INLINE void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
INLINE Vec InOrder(Vec v) {  // undoes the halves that shuffle_ps keeps apart
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
INLINE Vec Evens(Vec a, Vec b) { return InOrder(_mm256_shuffle_ps(a, b, 0x88)); }
INLINE Vec Odds(Vec a, Vec b) { return InOrder(_mm256_shuffle_ps(a, b, 0xdd)); }
INLINE Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
INLINE Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
INLINE Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
INLINE Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
INLINE Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
INLINE Vec MulAdd(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE Vec IfLess(Vec a, Vec b, Vec yes, Vec no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
INLINE Vec PowerOfTwo(Vec z) {
  const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(z), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f800000)));
}
INLINE float Sum(Vec v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The steps of Sum for two vectors at a time: the halves of a and of b added, and so on.
INLINE Vec FoldHalves(Vec a, Vec b) {
  return Add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
INLINE Vec FoldPairs(Vec a, Vec b) {
  return Add(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
INLINE Vec FoldNeighbours(Vec a, Vec b) {
  return Add(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
template <size_t n>
INLINE void SumEach(float* out, const Vec* v) {
  UNROLL for (size_t at = 0; at < n; at += 8) {
    const auto in = [&](size_t i) { return v[at + i < n ? at + i : at]; };
    const Vec sums = FoldNeighbours(FoldPairs(FoldHalves(in(0), in(4)), FoldHalves(in(1), in(5))),
                                    FoldPairs(FoldHalves(in(2), in(6)), FoldHalves(in(3), in(7))));
    if (at + 8 <= n) {
      Store(out + at, sums);
    } else {
      float part[8];
      Store(part, sums);
      memcpy(out + at, part, (n - at) * sizeof(float));
    }
  }
}
// 8 × 8 words: first inside halves of the vectors, then the halves themselves.
INLINE void Transpose(Vec* v) {
  Vec pairs[8], fours[8];
  UNROLL for (size_t i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  UNROLL for (size_t i = 0; i < 8; i += 4) {
    UNROLL for (size_t j = 0; j < 2; ++j) {
      fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0x44);
      fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0xee);
    }
  }
  UNROLL for (size_t i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(fours[i], fours[4 + i], 0x20);
    v[4 + i] = _mm256_permute2f128_ps(fours[i], fours[4 + i], 0x31);
  }
}
INLINE float MaxOf(Vec v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

INLINE __m256i LoadBits(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
INLINE __m128i LoadHalves(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
INLINE Vec LoadBF16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadHalves(p)), 16));
}
INLINE Vec LoadBF16Even(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(LoadBits(p), 16));
}
INLINE Vec LoadBF16Odd(const uint16_t* p) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm256_castsi256_ps(_mm256_and_si256(LoadBits(p), high));
}
INLINE Vec BF16Even(Vec pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
INLINE Vec BF16Odd(Vec pairs) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(pairs), high));
}
INLINE Vec LoadI8(const int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
template <size_t i>
INLINE Vec I8Part(Vec words) {
  const __m256i high = _mm256_slli_epi32(_mm256_castps_si256(words), 24 - 8 * i);
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(high, 24));
}
INLINE Vec LoadF16(const uint16_t* p) { return _mm256_cvtph_ps(LoadHalves(p)); }

// Round to nearest, ties to even; a NaN stays one.
INLINE void StoreBF16(uint16_t* p, Vec v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(halves));
}

#include "kernels/cpu/isa/kernels-inl.h"

}  // namespace

constinit const KernelTable kAvx2Kernels =
    MakeTable("avx2", {nullptr, nullptr, Avx2Int8, Avx2Int4});

}  // namespace continuo::kernels::cpu
