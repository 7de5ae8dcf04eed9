// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/panels.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cpu {

// What a gate and its factor become, n floats of each; in place allowed.
using GateLoop = void (*)(float* out, const float* gate, const float* up, size_t n);

// Rows [x_row, x_row + out.rows()) of x times a packed matrix.
struct PanelProduct {
  Tensor out;
  Weight w;
  Tensor bias;  // f32 [columns], may be empty
  int64_t x_row;
  // Where it is set, out = gate(x · wᵀ + bias, x · upᵀ + up_bias), both rounded to out's type
  // before; up has w's shape and format.
  GateLoop gate = nullptr;
  Weight up;
  Tensor up_bias;
};

// A block of a product's columns for a block of its rows: what a thread computes at once.
struct PanelPart {
  const PanelProduct* product;
  const uint8_t* weights;  // the first panel
  const uint8_t* up;       // of product->up, where it is gated
  int64_t panel, num_panels;
  int64_t row, num_rows;  // among the packed ones
  int64_t out_row;
};

// The division of products with packed matrices into parts, at least one for each thread where
// there are panels enough. Weights are read from memory once for a block of rows (240) and bound
// the time below about a dozen of them; from there on the products do. Parts of one product follow
// one another column by column, so that each thread knows what it reads next. Steady use allocates
// nothing. One thread at a time may Make; At is for all.
class PanelParts {
 public:
  // The parts, for so many threads, of what `products`, of one layout, need of the rows
  // [first, first + rows) of x, which are packed; their number. `products` has to stay.
  int64_t Make(const PanelLayout& layout, std::span<const PanelProduct> products, int64_t first,
               int64_t rows, int num_threads);

  PanelPart At(int64_t part) const;

 private:
  // A product's parts.
  struct Run {
    const PanelProduct* product;
    int64_t first_part;
    int64_t row, num_rows, out_row;
    int64_t panel_block, num_row_blocks;
  };

  int64_t panel_bytes_ = 0;
  std::vector<Run> runs_;
};

}  // namespace continuo::kernels::cpu
