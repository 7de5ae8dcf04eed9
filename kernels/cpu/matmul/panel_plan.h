// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/matmul/panel_layout.h"
#include "kernels/cpu/runtime/rows.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cpu {

// The product of rows [x_row, x_row + out.rows()) of x and a packed matrix.
struct PanelProduct {
  Tensor out;
  Weight w;
  Tensor bias;  // f32 [columns], may be empty
  int64_t x_row;
  // Where it is set, out = gate(x · wᵀ + bias, x · upᵀ + up_bias), both rounded to out's type
  // first; `up` has w's shape and format.
  GateLoop gate = nullptr;
  Weight up;
  Tensor up_bias;
  // Where it is set, and gate is not, out = activation(x · wᵀ + bias, 1); out is f32.
  GateLoop activation = nullptr;
};

// A work item: a block of a product's columns for a block of its rows, which a thread computes at
// once.
struct PanelItem {
  const PanelProduct* product;
  const uint8_t* weights;  // the first panel
  const uint8_t* up;       // of product->up, where it is gated
  int64_t panel, num_panels;
  int64_t row, num_rows;  // among the packed rows
  int64_t out_row;
};

// Divides products with packed matrices into work items, at least one for each thread where there
// are enough panels. Weights are read from memory once for a block of 240 rows (96 of f32),
// which bounds the time below about a dozen rows; beyond that the products do. The items of one
// product follow one another column by column, so that each thread knows what it reads next. Steady
// use allocates nothing. One thread at a time may call Make; At is for all threads.
class PanelPlan {
 public:
  // Plans, for so many threads, what `products`, of one layout, need of the rows
  // [first, first + rows) of x, which are packed. Returns the number of work items. `products` has
  // to stay until the next call.
  int64_t Make(const PanelLayout& layout, std::span<const PanelProduct> products, int64_t first,
               int64_t rows, int num_threads);

  PanelItem At(int64_t item) const;

 private:
  // The work items of one product.
  struct Run {
    const PanelProduct* product;
    int64_t first_item;
    int64_t row, num_rows, out_row;
    int64_t panel_block, num_row_blocks;
  };

  int64_t panel_bytes_ = 0;
  int64_t row_block_ = 0;
  std::vector<Run> runs_;
};

}  // namespace continuo::kernels::cpu
