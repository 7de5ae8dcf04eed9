// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/math/arithmetic.h"
#include "kernels/matmul_ops.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cpu {

// Returns the least multiple of `unit` that is not below n.
inline int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The layout of a packed matrix [out, in] in memory: panels of kPanelColumns outputs, filled up
// with zeros; in a panel the K splits of `in`, one after another; in a split (not of f32 and bf16)
// units of GroupFormat::unit elements, the last perhaps shorter; in a unit the scales of its
// groups, then for every 1 (f32), 2 (bf16), 4 (int8) or 8 (int4) elements of `in` kPanelColumns
// runs of them. A group is padded with zeros to whole runs. The bytes are the same on every
// instruction set.
//
// Scales of a unit, each kPanelColumns numbers: of kF32 and kF16 those of a group, then its minima,
// group by group; of kShared the f16 of all groups, those of their minima, then likewise a byte for
// each. Zeros fill them up to a multiple of 64 bytes.
//
// int8: an integer is its byte less 128. int4: its nibble, less 8 where there is no minimum; the
// low nibbles of a run's 4 bytes are its first four elements.
struct PanelLayout {
  // `split_begin` as MatMulOps takes it; it outlives this. `groups` as Weight has them.
  PanelLayout(WeightFormat format, std::span<const int64_t> split_begin,
              const GroupFormat& groups = {});

  int64_t num_splits() const { return static_cast<int64_t>(split_begin.size()) - 1; }
  int64_t split_size(int64_t i) const { return split_begin[i + 1] - split_begin[i]; }

  WeightFormat format;
  std::span<const int64_t> split_begin;
  PanelGroups groups = {};  // of int8 and int4
  int64_t panel_bytes = 0;
  // Where each split begins, and the end: bytes in a panel; bytes and groups of a packed row of x.
  int64_t weight_offset[kNumSplits + 1] = {};
  int64_t x_offset[kNumSplits + 1] = {};
  int64_t group_offset[kNumSplits + 1] = {};
};

// Rows of x in the form that a layout multiplies: bytes `stride` apart; of each group the
// scale, the sum of the elements, and that sum times the scale, [groups, num_rows] each.
struct PackedRows {
  uint8_t* bytes;
  int64_t stride;
  float* scales;
  int32_t* sums;
  float* scaled_sums;
  int64_t num_rows;
};

inline int64_t NumPanels(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

// Packs n ≤ kPanelColumns rows of a matrix to a panel, each `layout`'s columns long and `stride`
// floats from the next.
void PackPanel(const PanelLayout& layout, const float* rows, int64_t stride, int64_t n,
               uint8_t* panel);

// Packs rows [first, first + n) of `rows` to a panel of int8 or int4, n ≤ kPanelColumns, as
// MatMulOps::PackGroups does.
void PackGroupsPanel(const PanelLayout& layout, const GroupedRows& rows, int64_t first, int64_t n,
                     uint8_t* panel);

// Unpacks row `row` of a panel. An element of a group is the product rounded, then the sum.
void UnpackRow(const PanelLayout& layout, const uint8_t* panel, int64_t row, float* out);

}  // namespace continuo::kernels::cpu
