// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 for every ARMv8-A.

#include <arm_neon.h>

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

// Two products in 16 bits hold 2 · 127 · 128.
INLINE int32x4_t AddProducts(int32x4_t acc, int8x16_t w, int8x16_t x) {
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  const int32x4_t high = vpaddlq_s16(vmull_high_s8(w, x));
  return vaddq_s32(acc, vpaddq_s32(low, high));
}

#include "kernels/cpu/isa/arm/neon_panel_matmul-inl.h"

}  // namespace

void NeonInt8(const PanelBlock& block) { Panels<QuantTile<8, false>>(block); }
void NeonInt4(const PanelBlock& block) { Int4Panels<QuantTile>(block); }

}  // namespace continuo::kernels::cpu
