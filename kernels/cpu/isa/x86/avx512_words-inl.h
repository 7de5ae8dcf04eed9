// SPDX-License-Identifier: Apache-2.0
// The words of kernels-inl.h in AVX-512 (f, bw, vl, dq). Included inside an instruction set's
// unnamed namespace. No include guard: not a header.

using Vec = __m512;
constexpr size_t kLanes = 16;
constexpr size_t kRowTile = 4;
constexpr size_t kColTile = 6;
constexpr size_t kColTile1 = 8;
constexpr size_t kFloatRows = 12, kFloatPanels = 2, kFloatSmallM = 6;
constexpr size_t kQueryTile = 6;
constexpr size_t kPanelTile = 4;
constexpr size_t kDecodeAccumulators = 16;

INLINE Vec Zero() { return _mm512_setzero_ps(); }
INLINE Vec Set(float x) { return _mm512_set1_ps(x); }
INLINE Vec Load(const float* p) { return _mm512_loadu_ps(p); }
INLINE Vec LoadWords(const void* p) { return _mm512_loadu_ps(p); }
INLINE Vec Keep(Vec v) {
  asm("" : "+v"(v));
  return v;
}
INLINE void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
INLINE __m512i EveryOther(int first) {
  return _mm512_add_epi32(
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
      _mm512_set1_epi32(first));
}
INLINE Vec Evens(Vec a, Vec b) { return _mm512_permutex2var_ps(a, EveryOther(0), b); }
INLINE Vec Odds(Vec a, Vec b) { return _mm512_permutex2var_ps(a, EveryOther(1), b); }
INLINE Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
INLINE Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
INLINE Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
INLINE Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
INLINE Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
INLINE Vec MulAdd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Vec IfLess(Vec a, Vec b, Vec yes, Vec no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
INLINE Vec PowerOfTwo(Vec z) {
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(z), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f800000)));
}
INLINE float Sum(Vec v) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The steps of Sum for two vectors at a time: the halves of a and of b added, and so on.
INLINE Vec FoldHalves(Vec a, Vec b) {
  return Add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
INLINE Vec FoldQuarters(Vec a, Vec b) {
  return Add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
INLINE Vec FoldPairs(Vec a, Vec b) {
  return Add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}
INLINE Vec FoldNeighbours(Vec a, Vec b) {
  return Add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
template <size_t n>
INLINE void SumEach(float* out, const Vec* v) {
  UNROLL for (size_t at = 0; at < n; at += 16) {
    const auto in = [&](size_t i) { return v[at + i < n ? at + i : at]; };
    const auto four = [&](size_t i) {
      return FoldQuarters(FoldHalves(in(i), in(4 + i)), FoldHalves(in(8 + i), in(12 + i)));
    };
    const Vec sums = FoldNeighbours(FoldPairs(four(0), four(1)), FoldPairs(four(2), four(3)));
    const size_t left = n - at < 16 ? n - at : 16;
    _mm512_mask_storeu_ps(out + at, static_cast<__mmask16>((1u << left) - 1), sums);
  }
}
// 16 × 16 words: first inside quarters of the vectors, then the quarters themselves.
INLINE void Transpose(Vec* v) {
  Vec pairs[16], fours[16];
  UNROLL for (size_t i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  UNROLL for (size_t i = 0; i < 16; i += 4) {
    UNROLL for (size_t j = 0; j < 2; ++j) {
      const __m512d a = _mm512_castps_pd(pairs[i + j]), b = _mm512_castps_pd(pairs[i + j + 2]);
      fours[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      fours[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  UNROLL for (size_t i = 0; i < 4; ++i) {
    const Vec a = _mm512_shuffle_f32x4(fours[i], fours[4 + i], 0x88);
    const Vec b = _mm512_shuffle_f32x4(fours[8 + i], fours[12 + i], 0x88);
    const Vec c = _mm512_shuffle_f32x4(fours[i], fours[4 + i], 0xdd);
    const Vec d = _mm512_shuffle_f32x4(fours[8 + i], fours[12 + i], 0xdd);
    v[i] = _mm512_shuffle_f32x4(a, b, 0x88);
    v[4 + i] = _mm512_shuffle_f32x4(c, d, 0x88);
    v[8 + i] = _mm512_shuffle_f32x4(a, b, 0xdd);
    v[12 + i] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
}
INLINE float MaxOf(Vec v) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

INLINE __m256i LoadHalves(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
INLINE Vec LoadBF16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadHalves(p)), 16));
}
INLINE Vec LoadBF16Even(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
INLINE Vec LoadBF16Odd(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(0xaaaaaaaa, p));
}
INLINE Vec BF16Even(Vec pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
INLINE Vec BF16Odd(Vec pairs) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), high));
}
INLINE Vec LoadI8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
template <size_t i>
INLINE Vec I8Part(Vec words) {
  const __m512i high = _mm512_slli_epi32(_mm512_castps_si512(words), 24 - 8 * i);
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(high, 24));
}
INLINE Vec LoadF16(const uint16_t* p) { return _mm512_cvtph_ps(LoadHalves(p)); }

// Round to nearest, ties to even; a NaN stays one.
INLINE void StoreBF16(uint16_t* p, Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i high = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(high));
}
