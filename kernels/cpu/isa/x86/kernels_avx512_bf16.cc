// SPDX-License-Identifier: Apache-2.0
// Packed bf16 and attention over bf16 by vdpbf16ps: per output and pair of elements of k, the odd
// product and then the even one are added to the accumulator; subnormals count as zeros. Compiled
// with AVX-512 and -mavx512bf16.

#include "kernels/cpu/isa/x86/avx512_products.h"

namespace continuo::kernels::cpu {
namespace {

#include "kernels/cpu/isa/x86/avx512_words-inl.h"
// They need the words above.
#include "kernels/cpu/isa/panel_matmul-inl.h"
#include "kernels/cpu/isa/vector_math-inl.h"
// It needs both.
#include "kernels/cpu/isa/attention-inl.h"

DEFINE_ADD_PRODUCTS(__m512, "vdpbf16ps")

struct PairsTile {
  static constexpr size_t kRows = 12, kPanels = 2, kSmallM = 6, kSmallMPanels = 4;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kChunk = 256;

  INLINE static PanelUnit UnitOf(const PanelBlock&) {
    return {.elements = 32, .bytes = 32 / 2 * 64, .groups = 0};
  }

  template <size_t kM, size_t kP, bool kPrefetch = true>
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
        if (kPrefetch) PrefetchL2(w[p] + at, t.ahead);
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

// Attention's products, in tiles of PairsTile.
struct PairsChunkTile {
  static constexpr size_t kRows = kQueryTile, kPanels = kPanelTile;

  template <size_t kM, size_t kP>
  static void Tile(const ChunkTile& t) {
    TileArgs args = {};
    args.out = t.out;
    args.out_stride = t.out_stride;
    args.x = reinterpret_cast<const uint8_t*>(t.x);
    args.x_stride = t.x_stride;
    args.w = reinterpret_cast<const uint8_t*>(t.w);
    args.panel_stride = t.panel_stride;
    args.k = 2 * t.steps;
    args.first = t.first;
    PairsTile::Tile<kM, kP, false>(args);
  }
};

typedef float FloatBits __attribute__((may_alias));

struct PairsAttention {
  static constexpr bool kScaled = false;
  using Elements = BF16;
  using T = uint16_t;
  using Tile = PairsChunkTile;
  static constexpr size_t kStep = 2;

  static void PackKeys(const KvChunkArgs& a, size_t begin, size_t end, Prefetcher& prefetcher) {
    char* const panels = reinterpret_cast<char*>(a.key_panels);
    const size_t panel_bytes = KeyPanelBytes(a, kStep);
    PackKeyPanels<BF16>(a, begin, end, prefetcher, [&](size_t panel, size_t d, Vec word) {
      Store(reinterpret_cast<float*>(panels + panel * panel_bytes + d / 2 * sizeof(Vec)), word);
    });
  }

  INLINE static Vec AddPair(Vec acc, const void* x, Vec pairs) {
    const __m512 both = _mm512_set1_ps(*static_cast<const FloatBits*>(x));
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(both),
                            reinterpret_cast<__m512bh>(pairs));
  }
  INLINE static Vec AddWord(Vec acc, const char* q, Vec word) { return AddPair(acc, q, word); }
  static constexpr size_t kWordBytes = 2 * sizeof(uint16_t);
  INLINE static Vec AddStep(Vec acc, const float* weights, Vec values) {
    return AddPair(acc, weights, values);
  }

  // Elements [d, d + 32) of the value at p, zeros beyond the head; null: zeros.
  INLINE static __m512i Row(const KvChunkArgs& a, const void* p, size_t d) {
    if (p == nullptr || d >= a.head_dim) return _mm512_setzero_si512();
    const uint16_t* at = static_cast<const uint16_t*>(p) + d;
    if (d + 32 <= a.head_dim) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi16((uint32_t{1} << (a.head_dim - d)) - 1, at);
  }
  // Two vectors, element by element in turn.
  INLINE static void Turns(__m512i x, __m512i y, Vec* out) {
    const __m512i turns = _mm512_add_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_slli_epi32(
            _mm512_setr_epi32(32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47), 16));
    out[0] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(x, turns, y));
    const __m512i second = _mm512_add_epi16(turns, _mm512_set1_epi16(16));
    out[1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(x, second, y));
  }
  // kD panels of two positions from element d on.
  template <size_t kD>
  INLINE static void LoadValues(const KvChunkArgs& a, const void* even, const void* odd, size_t d,
                                Vec* out) {
    static_assert(kD % 2 == 0);
    UNROLL for (size_t i = 0; i < kD; i += 2, d += 2 * kLanes) {
      Turns(Row(a, even, d), Row(a, odd, d), out + i);
    }
  }
  template <size_t kD>
  INLINE static void LoadWholeValues(const char* even, const char* odd, Vec* out) {
    UNROLL for (size_t i = 0; i < kD; i += 2) {
      Turns(_mm512_loadu_si512(even + 32 * i), _mm512_loadu_si512(odd + 32 * i), out + i);
    }
  }
  // The panels of one pair, the first of them at `out`. They reach to a.stride, as panels have
  // room.
  INLINE static void PackPair(const KvChunkArgs& a, const void* even, const void* odd, char* out,
                              size_t panel_bytes) {
    for (size_t d = 0; d < a.head_dim; d += 2 * kLanes, out += 2 * panel_bytes) {
      Vec values[2];
      LoadValues<2>(a, even, odd, d, values);
      Store(reinterpret_cast<float*>(out), values[0]);
      Store(reinterpret_cast<float*>(out + panel_bytes), values[1]);
    }
  }
  static void PackValues(const KvChunkArgs& a, size_t begin, size_t end, Prefetcher& prefetcher) {
    char* const panels = reinterpret_cast<char*>(a.value_panels);
    for (size_t j = begin / 2 * 2; j < end; j += 2) {
      prefetcher.NextSome((a.head_dim * sizeof(T) + 63) / 64 * 2);
      PackPair(a, j < begin ? nullptr : a.values[j], j + 1 < end ? a.values[j + 1] : nullptr,
               panels + j / 2 * sizeof(Vec), ValuePanelBytes(kStep));
    }
  }
  static void PackStep(const KvChunkArgs& a, size_t j) {
    const void* const value = a.values[j];
    PackPair(a, j % 2 == 0 ? value : nullptr, j % 2 == 0 ? nullptr : value,
             reinterpret_cast<char*>(a.step_panels), sizeof(Vec));
  }
  // The weights overwrite the scores that they come from, since a row is read from its start on.
  INLINE static void StoreWeights(float* row, size_t j, Vec weights) {
    const __m256bh halves = _mm512_cvtneps_pbh(weights);
    memcpy(reinterpret_cast<char*>(row) + 2 * j, &halves, sizeof(halves));
  }
};

}  // namespace

void Avx512AttendPairs(const KvChunkArgs& args) { AttendChunk<PairsAttention>(args); }

void Avx512Bf16(const PanelBlock& block) { Panels<PairsTile>(block); }

}  // namespace continuo::kernels::cpu
