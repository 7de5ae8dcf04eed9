// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/panel_parts.h"

#include <algorithm>

namespace continuo::cpu {
namespace {

constexpr int64_t kRowBlock = 240;        // rows of one part
constexpr int64_t kWeightBytes = 131072;  // of weights of one part
constexpr int64_t kResults = 1 << 17;     // floats that a part holds before they are rounded
// As the tiles of panels-inl.h are: up to so many rows they are kMaxPanels wide, else half of it.
constexpr int64_t kFewRows = 6;
constexpr int64_t kMaxPanels = 4;

// Panels of one part.
int64_t PanelsOfPart(const PanelLayout& layout, int64_t rows) {
  const int64_t by_weights = kWeightBytes / std::max<int64_t>(1, layout.panel_bytes);
  const int64_t row_block = std::min(rows, kRowBlock);
  const int64_t by_results = kResults / (kPanelColumns * layout.num_pieces() * row_block);
  // Long panels are many parts' worth of bytes already: the last parts should be short.
  const int64_t unit = rows <= kFewRows && by_weights >= kMaxPanels ? kMaxPanels : kMaxPanels / 2;
  const int64_t panels = std::clamp<int64_t>(std::min(by_weights, by_results), 1, 16);
  return (panels + unit - 1) / unit * unit;
}

}  // namespace

int64_t PanelParts::Make(const PanelLayout& layout, std::span<const PanelProduct> products,
                         int64_t first, int64_t rows) {
  panel_bytes_ = layout.panel_bytes;
  runs_.clear();
  int64_t num_parts = 0;
  for (const PanelProduct& product : products) {
    const int64_t begin = std::max(first, product.x_row);
    const int64_t end = std::min(first + rows, product.x_row + product.out.rows());
    if (begin >= end) continue;
    Run run = {.product = &product,
               .first_part = num_parts,
               .row = begin - first,
               .num_rows = end - begin,
               .out_row = begin - product.x_row,
               .panel_block = PanelsOfPart(layout, end - begin),
               .num_row_blocks = (end - begin + kRowBlock - 1) / kRowBlock};
    runs_.push_back(run);
    const int64_t panels = NumPanels(product.out.cols());
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
  return {.product = &product,
          .weights = static_cast<const uint8_t*>(product.w.data.data) + panel * panel_bytes_,
          .panel = panel,
          .num_panels = std::min(run.panel_block, NumPanels(product.out.cols()) - panel),
          .row = run.row + row,
          .num_rows = std::min(kRowBlock, run.num_rows - row),
          .out_row = run.out_row + row};
}

}  // namespace continuo::cpu
