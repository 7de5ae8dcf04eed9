// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/runtime/cuda_context.h"
#include "kernels/row_ops.h"

namespace continuo::kernels::cuda {

// RowOps of one CUDA device: each op is one kernel. Embed makes f32 of any table, and bf16 or f16
// of tables that row_ops.h names.
class CudaRowOps : public RowOps {
 public:
  // context outlives the object.
  explicit CudaRowOps(CudaContext& context) : context_(context) {}

 private:
  void DoEmbed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
               float scale) override;
  void DoRmsNorm(Tensor out, Tensor x, Tensor gain, float eps) override;
  void DoLayerNorm(Tensor out, Tensor x, Tensor gain, Tensor bias, float eps) override;
  void DoSumSquares(Tensor out, Tensor x, int width, int first) override;
  void DoRmsNormBySquares(Tensor x, Tensor squares, Tensor gain, int64_t count, float eps,
                          const NormGroups& groups) override;
  void DoAddSum(Tensor x, Tensor sum, Tensor bias) override;
  void DoAddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain, float eps,
                    void* prepared) override;
  void DoGateMul(GateFunction function, Tensor out, Tensor gate, Tensor up) override;
  void DoScale(Tensor x, float factor) override;
  void DoScaleBy(Tensor x, Tensor factor) override;
  void DoSoftCap(Tensor x, float cap) override;
  void DoGatherRows(Tensor out, Tensor x, Tensor rows) override;
  void DoCopyHeads(Tensor out, Tensor x, const HeadPlaces& places) override;

  CudaContext& context_;
};

}  // namespace continuo::kernels::cuda
