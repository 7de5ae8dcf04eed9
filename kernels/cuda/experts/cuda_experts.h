// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/cuda/runtime/cuda_context.h"
#include "kernels/expert_ops.h"

namespace continuo::kernels::cuda {

// ExpertOps of one CUDA device. With few rows an expert, one launch multiplies all entries and
// reads on the device how many rows each expert has. With more, each expert is a product of
// CudaMatMul, for which the host has to know (NeedsHostRoutes).
class CudaExperts : public ExpertOps {
 public:
  // context, rows and matmul outlive the object.
  CudaExperts(CudaContext& context, RowOps& rows, CudaMatMul& matmul, bool deterministic)
      : ExpertOps(rows), context_(context), matmul_(matmul), deterministic_(deterministic) {}

  bool NeedsHostRoutes(DType activations, std::span<const Weight> experts,
                       int64_t num_entries) const override;

 private:
  void DoRouteExperts(const ExpertRoutes& routes, Tensor logits, const Routing& routing) override;
  void DoWeighInputs(Tensor out, Tensor x, const ExpertRoutes& routes) override;
  void DoExpertMatMul(Tensor out, Tensor x, const ExpertMatrices& experts,
                      const ExpertRoutes& routes, bool by_entry) override;
  void DoExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                            const ExpertRoutes& routes,
                            std::span<const int64_t> split_begin) override;
  void DoCombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes,
                        const ExpertAddends& addends) override;

  void Multiply(Tensor out, Tensor x, const ExpertMatrices& matrices, const ExpertRoutes& routes,
                std::span<const int64_t> split_begin, bool by_entry);
  // Computes one product for each expert that has rows.
  void MultiplyOneByOne(Tensor out, Tensor x, const ExpertMatrices& matrices,
                        const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                        bool by_entry);

  CudaContext& context_;
  CudaMatMul& matmul_;
  const bool deterministic_;
};

}  // namespace continuo::kernels::cuda
