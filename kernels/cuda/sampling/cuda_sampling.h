// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/runtime/cuda_context.h"
#include "kernels/sampling_ops.h"

namespace continuo::kernels::cuda {

// SamplingOps of one CUDA device. It leaves to the host batches of more than kMaxSamples requests,
// vocabularies above 2^20, and lists (biases, seen tokens, masks) above 32 MiB.
class CudaSampling : public SamplingOps {
 public:
  // context outlives the object.
  explicit CudaSampling(CudaContext& context) : context_(context) {}

 private:
  bool DoSampleTokens(std::span<SampledToken> sampled, Tensor tokens, Tensor logits,
                      Tensor row_tokens, const SampleBatch& batch) override;
  void DoResolveSampledIds(Tensor ids, Tensor tokens) override;

  CudaContext& context_;
};

}  // namespace continuo::kernels::cuda
