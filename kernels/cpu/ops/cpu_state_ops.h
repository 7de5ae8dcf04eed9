// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/runtime/cpu_context.h"
#include "kernels/state_ops.h"

namespace continuo::kernels::cpu {

// StateOps of the CPU. Threads share channels, or heads and columns of states, which do not depend
// on each other; a thread takes the rows of a sequence in their order.
class CpuStateOps : public StateOps {
 public:
  // `context` outlives this.
  explicit CpuStateOps(CpuContext& context) : context_(context), kernels_(context.kernels()) {}

 private:
  void DoCausalConv(Tensor out, Tensor x, const ConvWeights& weights, bool silu, Tensor states,
                    const StatePlaces& places) override;
  void DoStateDecay(Tensor decay, Tensor step, Tensor x, Tensor rate, Tensor bias, float least,
                    float most) override;
  void DoSigmoid(Tensor out, Tensor x) override;
  void DoUpdateStates(Tensor out, const StateUpdate& update, Tensor states,
                      const StatePlaces& places) override;

  CpuContext& context_;
  const KernelTable& kernels_;
};

}  // namespace continuo::kernels::cpu
