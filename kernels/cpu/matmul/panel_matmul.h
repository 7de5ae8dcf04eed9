// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/matmul/panel_layout.h"
#include "kernels/cpu/matmul/panel_plan.h"
#include "kernels/cpu/runtime/cpu_context.h"
#include "kernels/host/scratch.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cpu {

// Products with packed weights. Rows of x become what the format multiplies (f32, bf16, or int8
// with a scale for each group) once for all products; a PanelPlan divides the rest among the
// threads.
class PanelMatMul {
 public:
  // `context` outlives this.
  explicit PanelMatMul(CpuContext& context) : context_(context), kernels_(context.kernels()) {}

  // Products with matrices of one packed format and one GroupFormat. They count num_rows rows, and
  // x_rows names the row of x that each of those is; null: as they come.
  void Run(std::span<const PanelProduct> products, Tensor x, const int32_t* x_rows,
           int64_t num_rows, std::span<const int64_t> split_begin);

 private:
  PackedRows RoomForRows(const PanelLayout& layout, int64_t rows);
  // Packs rows [first, first + rows).
  void PackX(const PanelLayout& layout, Tensor x, const int32_t* x_rows, int64_t first,
             int64_t rows, const PackedRows& packed);
  // The same for formats that have groups.
  void QuantiseX(const PanelLayout& layout, Tensor x, const int32_t* x_rows, int64_t first,
                 int64_t rows, const PackedRows& packed);
  // `next_weights` is what the thread likely reads next, or null.
  void Multiply(const PanelLayout& layout, const PackedRows& packed, const PanelItem& item,
                const uint8_t* next_weights, int thread);
  // Adds biases to the item's products `gates` and `ups`, [num_rows, stride] each, applies its
  // gate, and writes the first num_columns to out. Behind `ups` is room for as much; all of it is
  // scratch afterwards.
  void FinishGated(const PanelItem& item, int64_t num_columns, int64_t stride, float* gates,
                   float* ups);

  CpuContext& context_;
  const KernelTable& kernels_;
  host::Scratch packed_;  // rows of x
  PanelPlan plan_;        // of the current rows
};

}  // namespace continuo::kernels::cpu
