// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 by sdot. Compiled with -march=armv8.2-a+dotprod.

#include <arm_neon.h>

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

INLINE int32x4_t AddProducts(int32x4_t acc, int8x16_t w, int8x16_t x) {
  return vdotq_s32(acc, w, x);
}

#include "kernels/cpu/isa/arm/neon_panel_matmul-inl.h"

}  // namespace

void NeonDotInt8(const PanelBlock& block) { Panels<QuantTile<8, false>>(block); }
void NeonDotInt4(const PanelBlock& block) { Int4Panels<QuantTile>(block); }

}  // namespace continuo::kernels::cpu
