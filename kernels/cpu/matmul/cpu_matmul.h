// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/matmul/dense_matmul.h"
#include "kernels/cpu/matmul/panel_matmul.h"
#include "kernels/cpu/runtime/cpu_context.h"
#include "kernels/matmul_ops.h"

namespace continuo::kernels::cpu {

// MatMulOps of the CPU. Each product goes to DenseMatMul or PanelMatMul by the format of its
// weights; products of one x with packed weights of one format go together.
class CpuMatMul : public MatMulOps {
 public:
  // context and rows outlive this.
  CpuMatMul(CpuContext& context, RowOps& rows)
      : MatMulOps(rows), context_(context), dense_(context), panels_(context) {}

  bool SupportsWeights(WeightType type) const override;
  WeightFormat FormatOf(WeightType type) const override;
  WeightFormat PackedFormatOf(WeightType type) const override;
  size_t WeightBytes(const Weight& w, std::span<const int64_t> split_begin) const override;

  // Other groups of ops call these: MatMul in K splits, with the row of x that each row of the
  // output belongs to (null: as they come), and several products at once. Shapes have been checked.
  void Multiply(const Product& product, Tensor x, std::span<const int64_t> split_begin,
                const int32_t* x_rows);
  PanelMatMul& panels() { return panels_; }

 private:
  void DoPackRows(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                  const float* rows, int64_t n) override;
  void DoPackGroups(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                    const GroupedRows& rows, int64_t n) override;
  void DoMatMul(const MatMulInput& x, const Product& product) override;
  void DoMatMuls(const MatMulInput& x, std::span<const Product> products) override;
  void DoGatedMatMul(const MatMulInput& x, const Product& gate, const Product& up,
                     GateFunction function, void* prepared) override;
  void DoActivatedMatMul(const MatMulInput& x, const Product& product,
                         GateFunction function) override;
  void DoMatMulSplitK(Tensor out, const MatMulInput& x, const Weight& w,
                      std::span<const int64_t> split_begin) override;

  CpuContext& context_;
  DenseMatMul dense_;
  PanelMatMul panels_;
  std::vector<PanelProduct> products_;  // of the current MatMuls
};

}  // namespace continuo::kernels::cpu
