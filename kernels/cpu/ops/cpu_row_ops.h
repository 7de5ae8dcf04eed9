// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/runtime/cpu_context.h"
#include "kernels/host/scratch.h"
#include "kernels/row_ops.h"

namespace continuo::kernels::cpu {

// RowOps of the CPU: threads share the rows. Gains are of any float type.
class CpuRowOps : public RowOps {
 public:
  // `context` outlives this.
  explicit CpuRowOps(CpuContext& context) : context_(context), kernels_(context.kernels()) {}

 private:
  void DoEmbed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
               float scale) override;
  void DoRmsNorm(Tensor out, Tensor x, Tensor gain, float eps) override;
  void DoLayerNorm(Tensor out, Tensor x, Tensor gain, Tensor bias, float eps) override;
  void DoSumSquares(Tensor out, Tensor x, int width, int first) override;
  void DoRmsNormBySquares(Tensor x, Tensor squares, Tensor gain, int64_t count, float eps,
                          const NormGroups& groups) override;
  void DoAddSum(Tensor x, Tensor sum, Tensor bias) override;
  void DoGateMul(GateFunction function, Tensor out, Tensor gate, Tensor up) override;
  void DoScale(Tensor x, float factor) override;
  void DoScaleBy(Tensor x, Tensor factor) override;
  void DoSoftCap(Tensor x, float cap) override;
  void DoGatherRows(Tensor out, Tensor x, Tensor rows) override;
  void DoCopyHeads(Tensor out, Tensor x, const HeadPlaces& places) override;

  CpuContext& context_;
  const KernelTable& kernels_;
  host::Scratch gain_;  // widened to floats
};

}  // namespace continuo::kernels::cpu
