// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 by vpdpbusd. Compiled with AVX-512 and -mavx512vnni.

#include "kernels/cpu/isa/x86/avx512_products.h"

namespace continuo::kernels::cpu {
namespace {

#include "kernels/cpu/isa/panel_matmul-inl.h"
#include "kernels/cpu/isa/x86/avx512_numbers-inl.h"

DEFINE_ADD_PRODUCTS(__m512i, "vpdpbusd")

// Weights are unsigned with an offset, x is signed: Σ (w + offset) x - offset Σ x. kTable: four
// bits stand for an integer of the groups' table.
template <int kBits, bool kTable>
struct QuantTile : QuantLayout<kBits, 512> {
  using Layout = QuantLayout<kBits, 512>;
  using Layout::kRun;
  static constexpr size_t kRows = 12, kPanels = 2, kSmallM = 6, kSmallMPanels = 4;

  // Computes the integer sums of one group, then adds them to `out`, scaled. It is a function of
  // its own, since GCC 12 copies the accumulators if a loop over groups is around it.
  template <size_t kM, size_t kP, bool kFirst, bool kMinimum>
  __attribute__((noinline)) static void AddGroup(const TileArgs& t, const GroupNumbers* numbers,
                                                 const uint8_t* runs, const uint8_t* group_x,
                                                 size_t group, size_t bytes) {
    const uint8_t* w[kP];
    UNROLL for (size_t p = 0; p < kP; ++p) w[p] = runs + p * t.panel_stride;
    XRows<kM> x(group_x, t.x_stride);
    __m512i acc[kM][kP];
    constexpr int32_t kOffset = kBits == 8 || kTable ? 128 : kMinimum ? 0 : 8;
    const int32_t* const x_sums = t.x_sums + group * t.group_stride;
    UNROLL for (size_t i = 0; i < kM; ++i) {
      const __m512i start =
          kOffset == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(-kOffset * x_sums[i]);
      UNROLL for (size_t p = 0; p < kP; ++p) acc[i][p] = start;
    }
    const size_t ahead = t.ahead;
    __m512i table = {};
    if (kTable) {
      table = _mm512_broadcast_i32x4(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(t.groups->table)));
    }
    for (size_t at = 0; at < bytes; at += 64, x.Advance(kRun)) {
      __m512i low[kP], high[kP];
      UNROLL for (size_t p = 0; p < kP; ++p) {
        low[p] = _mm512_loadu_si512(w[p] + at);
        PrefetchL2(w[p] + at, ahead);
        if (kBits == 4) {
          const __m512i mask = _mm512_set1_epi8(15);
          high[p] = _mm512_and_si512(_mm512_srli_epi16(low[p], 4), mask);
          low[p] = _mm512_and_si512(low[p], mask);
        }
        if (kTable) {
          high[p] = _mm512_shuffle_epi8(table, high[p]);
          low[p] = _mm512_shuffle_epi8(table, low[p]);
        }
      }
      UNROLL for (size_t i = 0; i < kM; ++i) {
        AddProducts<kP>(acc[i], low, x.Row(i));
        if (kBits == 4) AddProducts<kP>(acc[i], high, x.Row(i) + 4);
      }
    }
    Finish<kM, kP, kFirst, kMinimum>(t, numbers, group, acc);
  }

  template <size_t kM, size_t kP, bool kFirst, bool kMinimum>
  INLINE static void Finish(const TileArgs& t, const GroupNumbers* numbers, size_t group,
                            const __m512i (&acc)[kM][kP]) {
    // Scales and minima are loaded before `out` is written, since the compiler has to assume that a
    // store changes them.
    const float* const x_scales = t.x_scales + group * t.group_stride;
    const float* const x_sums = t.x_scaled_sums + group * t.group_stride;
    __m512 scales[kP], minima[kP];
    UNROLL for (size_t p = 0; p < kP; ++p) {
      scales[p] = _mm512_loadu_ps(numbers[p].scales);
      minima[p] = kMinimum ? _mm512_loadu_ps(numbers[p].minima) : _mm512_setzero_ps();
    }
    float* out = t.out;
    const size_t out_stride = t.out_stride;
    UNROLL for (size_t i = 0; i < kM; ++i, out += out_stride) {
      const __m512 x_scale = _mm512_set1_ps(x_scales[i]);
      const __m512 x_sum = _mm512_set1_ps(x_sums[i]);
      UNROLL for (size_t p = 0; p < kP; ++p) {
        __m512 product =
            _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc[i][p]), scales[p]), x_scale);
        if (kMinimum) product = _mm512_add_ps(product, _mm512_mul_ps(minima[p], x_sum));
        float* const to = out + p * kPanelColumns;
        _mm512_storeu_ps(to, kFirst ? product : _mm512_add_ps(_mm512_loadu_ps(to), product));
      }
    }
  }

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    if (t.groups->format.has_minimum) return AddGroups<kM, kP, true>(t);
    AddGroups<kM, kP, false>(t);
  }

  template <size_t kM, size_t kP, bool kMinimum>
  static void AddGroups(const TileArgs& t) {
    ForGroups<kRun>(t, [&](size_t group, size_t k, size_t size, const uint8_t* unit, size_t in_unit,
                           const uint8_t* runs) {
      alignas(64) float room[kP][2 * kPanelColumns];
      GroupNumbers numbers[kP];
      UNROLL for (size_t p = 0; p < kP; ++p) {
        numbers[p] = NumbersOf<Words>(*t.groups, unit + p * t.panel_stride, in_unit, room[p]);
      }
      const size_t bytes = (size + kRun - 1) / kRun * 64;
      if (t.first && group == 0) {
        AddGroup<kM, kP, true, kMinimum>(t, numbers, runs, t.x + k, group, bytes);
      } else {
        AddGroup<kM, kP, false, kMinimum>(t, numbers, runs, t.x + k, group, bytes);
      }
    });
  }
};

}  // namespace

void Avx512VnniInt8(const PanelBlock& block) { Panels<QuantTile<8, false>>(block); }
void Avx512VnniInt4(const PanelBlock& block) { Int4Panels<QuantTile>(block); }

}  // namespace continuo::kernels::cpu
