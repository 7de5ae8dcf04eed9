// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/matmul/cpu_matmul.h"
#include "kernels/cpu/runtime/cpu_context.h"
#include "kernels/expert_ops.h"

namespace continuo::kernels::cpu {

// ExpertOps of the CPU: routing, one product per expert for all rows that go to it, and the
// weighted sums. Which rows share an expert changes no bit, since a row of a product is independent
// of the others and a row's experts are added in ascending order.
class CpuExperts : public ExpertOps {
 public:
  // The arguments outlive this.
  CpuExperts(CpuContext& context, RowOps& rows, CpuMatMul& matmul)
      : ExpertOps(rows), context_(context), kernels_(context.kernels()), matmul_(matmul) {}

 private:
  void DoRouteExperts(const ExpertRoutes& routes, Tensor logits, const Routing& routing) override;
  void DoWeighInputs(Tensor out, Tensor x, const ExpertRoutes& routes) override;
  void DoExpertMatMul(Tensor out, Tensor x, const ExpertMatrices& experts,
                      const ExpertRoutes& routes, bool by_entry) override;
  void DoGatedExpertMatMul(Tensor gate, Tensor up, Tensor x, const ExpertMatrices& gates,
                           const ExpertMatrices& ups, const ExpertRoutes& routes,
                           GateFunction function) override;
  void DoExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                            const ExpertRoutes& routes,
                            std::span<const int64_t> split_begin) override;
  void DoCombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes,
                        const ExpertAddends& addends) override;

  // The products of dense experts, one after another.
  void MultiplyDense(Tensor out, Tensor x, const ExpertMatrices& experts,
                     const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                     bool by_entry);
  // The products of packed experts at once: they share the packing of x and one division of the
  // work. Where `gate` is set, with `ups`: PanelProduct says what out becomes.
  void MultiplyPacked(Tensor out, Tensor x, const ExpertMatrices& experts,
                      const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                      bool by_entry, GateLoop gate = nullptr, const ExpertMatrices& ups = {});

  CpuContext& context_;
  const KernelTable& kernels_;
  CpuMatMul& matmul_;
  std::vector<PanelProduct> products_;  // of the current op
};

}  // namespace continuo::kernels::cpu
