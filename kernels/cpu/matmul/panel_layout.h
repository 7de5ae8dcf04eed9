// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/math/arithmetic.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cpu {

// Returns the least multiple of `unit` that is not below n.
inline int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The layout of a packed matrix [out, in] in memory: panels of kPanelColumns outputs, filled up
// with zeros; in a panel the K splits of `in`, one after another; in a split groups of GroupSize
// elements, the last perhaps shorter; in a group kPanelColumns f32 scales (not in bf16), then for
// every 2 (bf16), 4 (int8) or 8 (int4) elements of `in` kPanelColumns runs of them. A group is
// padded with zeros to whole runs. The bytes are the same on every instruction set.
//
// int8: an element is its byte less 128, times the scale. int4: its nibble less 8, times the scale;
// the low nibbles of a run's 4 bytes are its first four elements.
struct PanelLayout {
  // `split_begin` as MatMulOps takes it; it outlives this.
  PanelLayout(WeightFormat format, std::span<const int64_t> split_begin);

  int64_t num_splits() const { return static_cast<int64_t>(split_begin.size()) - 1; }
  int64_t split_size(int64_t i) const { return split_begin[i + 1] - split_begin[i]; }

  WeightFormat format;
  std::span<const int64_t> split_begin;
  int64_t panel_bytes = 0;
  // Where each split begins, and the end: bytes in a panel; bytes and groups of a packed row of x.
  int64_t weight_offset[kNumSplits + 1] = {};
  int64_t x_offset[kNumSplits + 1] = {};
  int64_t group_offset[kNumSplits + 1] = {};
};

// Rows of x in the form that a layout multiplies: bytes `stride` apart; of each group its scale and
// the sum of its elements, num_groups a row.
struct PackedRows {
  uint8_t* bytes;
  int64_t stride;
  float* scales;
  int32_t* sums;
  int64_t num_groups;
};

inline int64_t NumPanels(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

// Packs n ≤ kPanelColumns rows of a matrix to a panel, each `layout`'s columns long and `stride`
// floats from the next.
void PackPanel(const PanelLayout& layout, const float* rows, int64_t stride, int64_t n,
               uint8_t* panel);

// Unpacks row `row` of a panel.
void UnpackRow(const PanelLayout& layout, const uint8_t* panel, int64_t row, float* out);

}  // namespace continuo::kernels::cpu
