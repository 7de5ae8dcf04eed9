// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/panel_parts.h"

#include <algorithm>

namespace continuo::kernels::cpu {
namespace {

constexpr int64_t kRowBlock = 240;        // rows of one part
constexpr int64_t kWeightBytes = 131072;  // of a matrix in one part
constexpr int64_t kResults = 1 << 17;     // floats that a part holds before they are rounded
// As the tiles of panels-inl.h are: up to so many rows they are kMaxPanels wide, else half of it.
constexpr int64_t kFewRows = 6;
constexpr int64_t kMaxPanels = 4;

// Panels of one part, of each of `num_matrices`; `share`: those that each thread would get, all of
// them together.
int64_t PanelsOfPart(const PanelLayout& layout, int64_t rows, int64_t num_matrices, int64_t share) {
  const int64_t by_weights = kWeightBytes / std::max<int64_t>(1, layout.panel_bytes);
  const int64_t row_block = std::min(rows, kRowBlock);
  const int64_t by_results =
      kResults / (kPanelColumns * layout.num_pieces() * row_block * num_matrices);
  // Long panels are many parts' worth of bytes already: the last parts should be short.
  const int64_t unit = rows <= kFewRows && by_weights >= kMaxPanels ? kMaxPanels : kMaxPanels / 2;
  const int64_t panels = std::clamp<int64_t>(std::min(by_weights, by_results), 1, 16);
  const int64_t whole = (panels + unit - 1) / unit * unit;
  return std::min(whole, share >= unit ? share / unit * unit : share);
}

int64_t RowBlocks(int64_t rows) { return (rows + kRowBlock - 1) / kRowBlock; }

}  // namespace

int64_t PanelParts::Make(const PanelLayout& layout, std::span<const PanelProduct> products,
                         int64_t first, int64_t rows, int num_threads) {
  panel_bytes_ = layout.panel_bytes;
  runs_.clear();
  int64_t all_panels = 0;
  for (const PanelProduct& product : products) {
    const int64_t begin = std::max(first, product.x_row);
    const int64_t end = std::min(first + rows, product.x_row + product.out.rows());
    if (begin >= end) continue;
    runs_.push_back({.product = &product,
                     .row = begin - first,
                     .num_rows = end - begin,
                     .out_row = begin - product.x_row,
                     .num_row_blocks = RowBlocks(end - begin)});
    all_panels += NumPanels(product.out.cols()) * runs_.back().num_row_blocks;
  }
  const int64_t share = std::max<int64_t>(1, all_panels / num_threads);
  int64_t num_parts = 0;
  for (Run& run : runs_) {
    run.panel_block =
        PanelsOfPart(layout, run.num_rows, run.product->gate == nullptr ? 1 : 2, share);
    run.first_part = num_parts;
    const int64_t panels = NumPanels(run.product->out.cols());
    num_parts += (panels + run.panel_block - 1) / run.panel_block * run.num_row_blocks;
  }
  return num_parts;
}

PanelPart PanelParts::At(int64_t part) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), part,
                       [](int64_t index, const Run& run) { return index < run.first_part; });
  const Run& run = *(after - 1);
  const int64_t index = part - run.first_part;
  const int64_t panel = index / run.num_row_blocks * run.panel_block;
  const int64_t row = index % run.num_row_blocks * kRowBlock;
  const PanelProduct& product = *run.product;
  const auto panel_of = [&](const Weight& w) {
    return static_cast<const uint8_t*>(w.data.data) + panel * panel_bytes_;
  };
  return {.product = &product,
          .weights = panel_of(product.w),
          .up = product.gate == nullptr ? nullptr : panel_of(product.up),
          .panel = panel,
          .num_panels = std::min(run.panel_block, NumPanels(product.out.cols()) - panel),
          .row = run.row + row,
          .num_rows = std::min(kRowBlock, run.num_rows - row),
          .out_row = run.out_row + row};
}

}  // namespace continuo::kernels::cpu
