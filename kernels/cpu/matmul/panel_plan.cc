// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/panel_plan.h"

#include <algorithm>

namespace continuo::kernels::cpu {
namespace {

// Rows of one work item, and those of f32, which take as much of the L2 cache.
constexpr int64_t kRowBlock = 240, kFloatRowBlock = 96;
constexpr int64_t kWeightBytes = 131072;  // of a matrix in one work item
constexpr int64_t kResults = 1 << 17;     // floats that a work item holds before they are rounded
// The tiles of panel_matmul-inl.h: up to kSmallM rows they are kMaxPanels wide, beyond that half.
constexpr int64_t kSmallM = 6;
constexpr int64_t kMaxPanels = 4;

int64_t RowBlockOf(const PanelLayout& layout) {
  return layout.format == WeightFormat::kF32Panels ? kFloatRowBlock : kRowBlock;
}

// Returns the panels of one work item, of each of `num_matrices`. `share` is the number of panels
// that each thread would get.
int64_t PanelsOfItem(const PanelLayout& layout, int64_t rows, int64_t num_matrices, int64_t share) {
  const int64_t by_weights = kWeightBytes / std::max<int64_t>(1, layout.panel_bytes);
  const int64_t row_block = std::min(rows, RowBlockOf(layout));
  const int64_t by_results =
      kResults / (kPanelColumns * layout.num_splits() * row_block * num_matrices);
  // Long panels have the bytes of many work items already: the last items should be short.
  const int64_t unit = rows <= kSmallM && by_weights >= kMaxPanels ? kMaxPanels : kMaxPanels / 2;
  const int64_t panels = std::clamp<int64_t>(std::min(by_weights, by_results), 1, 16);
  const int64_t whole = (panels + unit - 1) / unit * unit;
  return std::min(whole, share >= unit ? share / unit * unit : share);
}

}  // namespace

int64_t PanelPlan::Make(const PanelLayout& layout, std::span<const PanelProduct> products,
                        int64_t first, int64_t rows, int num_threads) {
  panel_bytes_ = layout.panel_bytes;
  row_block_ = RowBlockOf(layout);
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
                     .num_row_blocks = (end - begin + row_block_ - 1) / row_block_});
    all_panels += NumPanels(product.out.cols()) * runs_.back().num_row_blocks;
  }
  const int64_t share = std::max<int64_t>(1, all_panels / num_threads);
  int64_t num_items = 0;
  for (Run& run : runs_) {
    run.panel_block =
        PanelsOfItem(layout, run.num_rows, run.product->gate == nullptr ? 1 : 2, share);
    run.first_item = num_items;
    const int64_t panels = NumPanels(run.product->out.cols());
    num_items += (panels + run.panel_block - 1) / run.panel_block * run.num_row_blocks;
  }
  return num_items;
}

PanelItem PanelPlan::At(int64_t item) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), item,
                       [](int64_t index, const Run& run) { return index < run.first_item; });
  const Run& run = *(after - 1);
  const int64_t index = item - run.first_item;
  const int64_t panel = index / run.num_row_blocks * run.panel_block;
  const int64_t row = index % run.num_row_blocks * row_block_;
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
          .num_rows = std::min(row_block_, run.num_rows - row),
          .out_row = run.out_row + row};
}

}  // namespace continuo::kernels::cpu
