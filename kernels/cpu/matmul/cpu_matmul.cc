// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/cpu_matmul.h"

#include <algorithm>

#include "kernels/cpu/matmul/panel_layout.h"
#include "kernels/cpu/runtime/rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {

bool CpuMatMul::SupportsWeights(WeightType type) const {
  return type != WeightType::kFp8 && type != WeightType::kF16;
}

WeightFormat CpuMatMul::FormatOf(WeightType type) const {
  switch (type) {
    case WeightType::kF32:
      return WeightFormat::kDense;
    case WeightType::kBF16:
      return context_.kernels().panel_dots.bf16 != nullptr ? WeightFormat::kBF16Panels
                                                           : WeightFormat::kDense;
    case WeightType::kInt8:
    case WeightType::kStored:  // or kInt4Panels, by matrix
      return WeightFormat::kInt8Panels;
    case WeightType::kInt4:
      return WeightFormat::kInt4Panels;
    case WeightType::kF16:
    case WeightType::kFp8:
      break;  // SupportsWeights is false
  }
  CONTINUO_CHECK(false);
  return WeightFormat::kDense;
}

WeightFormat CpuMatMul::PackedFormatOf(WeightType type) const {
  return type == WeightType::kF32 ? WeightFormat::kF32Panels : FormatOf(type);
}

size_t CpuMatMul::WeightBytes(const Weight& w, std::span<const int64_t> split_begin) const {
  if (w.format == WeightFormat::kDense) return w.data.bytes();
  const PanelLayout layout(w.format, split_begin, w.groups);
  return static_cast<size_t>(NumPanels(w.data.rows()) * layout.panel_bytes);
}

void CpuMatMul::DoPackRows(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                           const float* rows, int64_t n) {
  static_assert(kPackedRows % kPanelColumns == 0);
  const PanelLayout layout(w.format, split_begin, w.groups);
  const int64_t k = w.data.cols();
  uint8_t* const first =
      static_cast<uint8_t*>(w.data.data) + first_row / kPanelColumns * layout.panel_bytes;
  context_.pool().Run(static_cast<int>(NumPanels(n)), [&](int panel, int) {
    const int64_t row = int64_t{panel} * kPanelColumns;
    PackPanel(layout, rows + row * k, k, std::min<int64_t>(kPanelColumns, n - row),
              first + panel * layout.panel_bytes);
  });
}

void CpuMatMul::DoPackGroups(const Weight& w, std::span<const int64_t> split_begin,
                             int64_t first_row, const GroupedRows& rows, int64_t n) {
  const PanelLayout layout(w.format, split_begin, w.groups);
  uint8_t* const first =
      static_cast<uint8_t*>(w.data.data) + first_row / kPanelColumns * layout.panel_bytes;
  context_.pool().Run(static_cast<int>(NumPanels(n)), [&](int panel, int) {
    const int64_t row = int64_t{panel} * kPanelColumns;
    PackGroupsPanel(layout, rows, row, std::min<int64_t>(kPanelColumns, n - row),
                    first + panel * layout.panel_bytes);
  });
}

void CpuMatMul::Multiply(const Product& product, Tensor x, std::span<const int64_t> split_begin,
                         const int32_t* x_rows) {
  CheckComputes(x.dtype);
  CheckComputes(product.out.dtype);
  if (product.w.format == WeightFormat::kDense) {
    dense_.Run(product, x, split_begin, x_rows);
    return;
  }
  const PanelProduct panels = {product.out, product.w, product.bias, 0};
  panels_.Run(std::span(&panels, 1), x, x_rows, product.out.rows(), split_begin);
}

void CpuMatMul::DoMatMul(const MatMulInput& x, const Product& product) {
  const int64_t whole[] = {0, x.x.cols()};
  Multiply(product, x.x, whole, /*x_rows=*/nullptr);
}

void CpuMatMul::DoMatMuls(const MatMulInput& x, std::span<const Product> products) {
  const auto is_alike = [&](const Product& p) {
    return IsAlike(p.w, products[0].w) && p.out.size() > 0;
  };
  if (products[0].w.format == WeightFormat::kDense ||
      !std::all_of(products.begin(), products.end(), is_alike)) {
    MatMulOps::DoMatMuls(x, products);
    return;
  }
  CheckComputes(x.x.dtype);
  products_.clear();
  for (const Product& p : products) {
    CheckComputes(p.out.dtype);
    products_.push_back({p.out, p.w, p.bias, 0});
  }
  const int64_t whole[] = {0, x.x.cols()};
  panels_.Run(products_, x.x, nullptr, x.x.rows(), whole);
}

void CpuMatMul::DoGatedMatMul(const MatMulInput& x, const Product& gate, const Product& up,
                              GateFunction function, void* prepared) {
  if (gate.w.format == WeightFormat::kDense || !IsAlike(gate.w, up.w)) {
    MatMulOps::DoGatedMatMul(x, gate, up, function, prepared);
    return;
  }
  CONTINUO_CHECK(prepared == nullptr);
  CheckComputes(x.x.dtype);
  CheckComputes(gate.out.dtype);
  const PanelProduct product = {.out = gate.out,
                                .w = gate.w,
                                .bias = gate.bias,
                                .x_row = 0,
                                .gate = GateLoopOf(context_.kernels(), function),
                                .up = up.w,
                                .up_bias = up.bias};
  const int64_t whole[] = {0, x.x.cols()};
  panels_.Run(std::span(&product, 1), x.x, nullptr, x.x.rows(), whole);
}

void CpuMatMul::DoActivatedMatMul(const MatMulInput& x, const Product& product,
                                  GateFunction function) {
  if (product.w.format == WeightFormat::kDense || product.out.dtype != DType::kF32) {
    MatMulOps::DoActivatedMatMul(x, product, function);
    return;
  }
  CheckComputes(x.x.dtype);
  const PanelProduct panels = {.out = product.out,
                               .w = product.w,
                               .bias = product.bias,
                               .x_row = 0,
                               .activation = GateLoopOf(context_.kernels(), function)};
  const int64_t whole[] = {0, x.x.cols()};
  panels_.Run(std::span(&panels, 1), x.x, nullptr, x.x.rows(), whole);
}

void CpuMatMul::DoMatMulSplitK(Tensor out, const MatMulInput& x, const Weight& w,
                               std::span<const int64_t> split_begin) {
  Multiply({out, w, Tensor()}, x.x, split_begin, /*x_rows=*/nullptr);
}

}  // namespace continuo::kernels::cpu
