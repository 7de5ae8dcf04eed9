// SPDX-License-Identifier: Apache-2.0
// The words of NumbersOf (panel_matmul-inl.h) for AVX-512. Included inside an instruction set's
// unnamed namespace; no include guard: not a header.

struct Words {
  INLINE static __m512 Halves(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  INLINE static void Widen(float* out, const uint8_t* halves) {
    _mm512_storeu_ps(out, Halves(halves));
  }
  INLINE static void Multiply(float* out, const uint8_t* bytes, const uint8_t* halves) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    const __m512 whole = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    _mm512_storeu_ps(out, _mm512_mul_ps(whole, Halves(halves)));
  }
};
