// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cpu {

// How a packed matrix [out, in] lies in memory: panels of kPanelColumns outputs, zeros beyond the
// last; in a panel the pieces of `in` that MatMulPieces adds up, one after another; in a piece
// groups of GroupSize elements, the last perhaps shorter; in a group kPanelColumns f32 scales (not
// in bf16), then for every 2 (bf16), 4 (int8) or 8 (int4) elements of `in` kPanelColumns runs of
// them. A group is padded with zeros to whole runs. Bytes are the same on every instruction set.
//
// int8: an element is its byte less 128, times the scale. int4: its nibble less 8, times the scale;
// the low nibbles of a run's 4 bytes are its first four elements.
struct PanelLayout {
  // `piece_begin` as Backend::MatMulPieces takes it.
  PanelLayout(WeightFormat format, std::span<const int64_t> piece_begin);

  int64_t num_pieces() const { return static_cast<int64_t>(piece_begin.size()) - 1; }
  int64_t piece_size(int64_t i) const { return piece_begin[i + 1] - piece_begin[i]; }

  WeightFormat format;
  std::span<const int64_t> piece_begin;
  int64_t panel_bytes = 0;
  // Of each piece, and their ends: bytes in a panel; bytes and groups of a packed row of x.
  static constexpr int kMaxPieces = 8;
  int64_t weight_offset[kMaxPieces + 1] = {};
  int64_t x_offset[kMaxPieces + 1] = {};
  int64_t group_offset[kMaxPieces + 1] = {};
};

// Rows of x as a layout multiplies them: bytes `stride` apart; of each group its scale and the sum
// of its elements, num_groups a row.
struct PackedRows {
  uint8_t* bytes;
  int64_t stride;
  float* scales;
  int32_t* sums;
  int64_t num_groups;
};

inline int64_t NumPanels(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

// Packs rows [16 panel, 16 panel + n) of a matrix, n ≤ kPanelColumns, each `layout`'s columns long
// and `stride` floats from the next.
void PackPanel(const PanelLayout& layout, const float* rows, int64_t stride, int64_t n,
               uint8_t* panel);

// What row `row` of its panel stands for.
void UnpackRow(const PanelLayout& layout, const uint8_t* panel, int64_t row, float* out);

}  // namespace continuo::kernels::cpu
