// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/runtime/cpu_context.h"
#include "kernels/host/scratch.h"
#include "kernels/matmul_ops.h"

namespace continuo::kernels::cpu {

// Products with dense weights, which stay [out, in] row-major. Each output is a dot product, in
// lanes over k, of a row of x and a row of w. Rows of x are widened to f32 once, and ordered for
// the weights' type; a work item is a block of output columns for all rows.
//
// Up to about 16 rows the time is that of reading the weights from memory once
// (out · in · bytes per weight / bandwidth), beyond that of the multiply-adds.
class DenseMatMul {
 public:
  // `context` outlives this.
  explicit DenseMatMul(CpuContext& context) : context_(context), kernels_(context.kernels()) {}

  // Computes the product with x, in the K splits of split_begin. `x_rows` names the row of x that
  // each row of the output belongs to; null: as they come.
  void Run(const Product& product, Tensor x, std::span<const int64_t> split_begin,
           const int32_t* x_rows);

 private:
  CpuContext& context_;
  const KernelTable& kernels_;
  host::Scratch packed_;  // rows of x
};

}  // namespace continuo::kernels::cpu
