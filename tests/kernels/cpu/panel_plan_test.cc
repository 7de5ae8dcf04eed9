// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/panel_plan.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace continuo::kernels::cpu {
namespace {

void Gate(float*, const float*, const float*, size_t) {}

// Products with the rows of x one after another, of the given rows and columns. Only addresses are
// computed; no memory is read.
std::vector<PanelProduct> Products(const std::vector<std::pair<int64_t, int64_t>>& shapes,
                                   int64_t k, bool gated) {
  std::vector<PanelProduct> products;
  int64_t row = 0;
  for (const auto& [rows, columns] : shapes) {
    PanelProduct product = {.out = {nullptr, DType::kF32, {rows, columns, 1}}, .x_row = row};
    product.w = {.data = {nullptr, DType::kI8, {columns, k, 1}},
                 .format = WeightFormat::kBF16Panels};
    if (gated) product.gate = &Gate, product.up = product.w;
    products.push_back(product);
    row += rows;
  }
  return products;
}

struct Case {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  int64_t k;
};

const std::vector<Case> kCases = {
    {{{1, 1024}}, 1024},  {{{1, 40}}, 64},     {{{5, 3072}}, 1024},
    {{{64, 1024}}, 3072}, {{{700, 100}}, 128}, {{{3, 48}, {1, 48}, {0, 48}, {300, 48}}, 16384}};

TEST(PanelPlanTest, EveryPanelOfEveryRowIsInOneItem) {
  for (const Case& c : kCases) {
    const int64_t begins[] = {0, c.k};
    const PanelLayout layout(WeightFormat::kBF16Panels, begins);
    for (const bool gated : {false, true}) {
      const std::vector<PanelProduct> products = Products(c.shapes, c.k, gated);
      for (const int threads : {1, 2, 7, 64, 1000}) {
        PanelPlan plan;
        std::vector<std::vector<int>> seen;
        for (const PanelProduct& product : products) {
          seen.emplace_back(product.out.rows() * NumPanels(product.out.cols()));
        }
        // In two slabs, which meet inside a product.
        const int64_t rows = products.back().x_row + products.back().out.rows();
        const int64_t half = rows / 2;
        for (const auto& [first, count] : {std::pair{int64_t{0}, half}, {half, rows - half}}) {
          const int64_t num_items = plan.Make(layout, products, first, count, threads);
          for (int64_t i = 0; i < num_items; ++i) {
            const PanelItem item = plan.At(i);
            EXPECT_EQ(item.row + first, item.product->x_row + item.out_row);
            for (int64_t r = 0; r < item.num_rows; ++r) {
              for (int64_t panel = 0; panel < item.num_panels; ++panel) {
                const int64_t at =
                    (item.out_row + r) * NumPanels(item.product->out.cols()) + item.panel + panel;
                ++seen[item.product - products.data()].at(at);
              }
            }
          }
        }
        for (const auto& counts : seen) {
          EXPECT_TRUE(std::ranges::all_of(counts, [](int count) { return count == 1; }));
        }
      }
    }
  }
}

TEST(PanelPlanTest, EachThreadHasAnItemWhereThereArePanelsEnough) {
  for (const Case& c : kCases) {
    const int64_t begins[] = {0, c.k};
    const PanelLayout layout(WeightFormat::kBF16Panels, begins);
    for (const bool gated : {false, true}) {
      const std::vector<PanelProduct> products = Products(c.shapes, c.k, gated);
      int64_t panels = 0, rows = 0;
      for (const PanelProduct& product : products) {
        rows += product.out.rows();
        if (product.out.rows() > 0) panels += NumPanels(product.out.cols());
      }
      for (const int64_t threads : {1, 2, 3, 7, 16, 48, 64, 192, 1000}) {
        PanelPlan plan;
        EXPECT_GE(plan.Make(layout, products, 0, rows, static_cast<int>(threads)),
                  std::min(threads, panels))
            << threads << " threads, " << panels << " panels";
      }
    }
  }
}

}  // namespace
}  // namespace continuo::kernels::cpu
