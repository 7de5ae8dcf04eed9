// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/runtime/cuda_context.h"
#include "kernels/state_ops.h"

namespace continuo::kernels::cuda {

// StateOps of one CUDA device: each op is one kernel. Convolutions are at most kMaxConvWidth rows
// wide, states have at most kMaxStateKeys keys.
class CudaStateOps : public StateOps {
 public:
  // context outlives the object.
  explicit CudaStateOps(CudaContext& context) : context_(context) {}

 private:
  void DoCausalConv(Tensor out, Tensor x, const ConvWeights& weights, bool silu, Tensor states,
                    const StatePlaces& places) override;
  void DoStateDecay(Tensor decay, Tensor step, Tensor x, Tensor rate, Tensor bias, float least,
                    float most) override;
  void DoSigmoid(Tensor out, Tensor x) override;
  void DoUpdateStates(Tensor out, const StateUpdate& update, Tensor states,
                      const StatePlaces& places) override;

  CudaContext& context_;
};

}  // namespace continuo::kernels::cuda
