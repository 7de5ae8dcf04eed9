// SPDX-License-Identifier: Apache-2.0
// Packed f32, in the words that kernels-inl.h names: an output is one accumulator over k in
// ascending order. Included inside an instruction set's unnamed namespace. No include guard: not a
// header.

#include "kernels/cpu/isa/panel_matmul-inl.h"

struct FloatPanelTile {
  static constexpr size_t kElementBytes = sizeof(float);
  static constexpr size_t kChunk = 384;  // 24 KiB of a panel
  static constexpr size_t kRows = kFloatRows, kPanels = kFloatPanels;
  static constexpr size_t kSmallM = kFloatSmallM, kSmallMPanels = 4;
  static constexpr size_t kStep = kPanelColumns * sizeof(float);  // bytes of one k in a panel
  static constexpr size_t kVecs = kPanelColumns / kLanes;

  INLINE static PanelUnit UnitOf(const PanelBlock&) { return {1, kStep, 0}; }

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    Vec acc[kM][kP * kVecs];
    UNROLL for (size_t i = 0; i < kM; ++i) {
      UNROLL for (size_t p = 0; p < kP * kVecs; ++p) {
        acc[i][p] = t.first ? Zero() : Load(t.out + i * t.out_stride + p * kLanes);
      }
    }
    XRows<kM> x(t.x, t.x_stride);
    const uint8_t* w = t.w;
    for (size_t k = 0; k < t.k; ++k, w += kStep) {
      Vec ws[kP * kVecs];
      UNROLL for (size_t p = 0; p < kP; ++p) {
        const uint8_t* const step = w + p * t.panel_stride;
        PrefetchL2(step, t.ahead);
        UNROLL for (size_t v = 0; v < kVecs; ++v) {
          ws[p * kVecs + v] = Load(reinterpret_cast<const float*>(step) + v * kLanes);
        }
      }
      UNROLL for (size_t i = 0; i < kM; ++i) {
        const Vec value = Keep(Set(*reinterpret_cast<const float*>(x.Row(i))));
        UNROLL for (size_t p = 0; p < kP * kVecs; ++p) {
          acc[i][p] = MulAdd(value, ws[p], acc[i][p]);
        }
      }
      x.Advance(sizeof(float));
    }
    UNROLL for (size_t i = 0; i < kM; ++i) {
      UNROLL for (size_t p = 0; p < kP * kVecs; ++p) {
        Store(t.out + i * t.out_stride + p * kLanes, acc[i][p]);
      }
    }
  }
};
