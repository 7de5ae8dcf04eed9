// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace continuo::kernels {

// Sampling where the logits are. A device that leaves it to the host keeps the defaults. Rules of
// all ops: ops.h.
class SamplingOps {
 public:
  virtual ~SamplingOps() = default;

  // Samples and scores tokens from rows of logits, f32 [rows, vocabulary], as kernels/sampling.h
  // defines it, bit by bit. `sampled` has one element for each request and is memory of
  // Device::AllocateHost; it is written when the work enqueued here is done, and the batch's views
  // have to last as long. `tokens`, i32 [requests], become the ids, or -1 where a request is left
  // to the host; `row_tokens`, i32 [rows of the step], are those that SampleRequest::answered_row
  // names. Returns false where the device does not sample, or not such a batch: nothing happened.
  bool SampleTokens(std::span<SampledToken> sampled, Tensor tokens, Tensor logits,
                    Tensor row_tokens, const SampleBatch& batch);
  // Replaces references to tokens sampled before, which the host does not know yet: ids[i], i32
  // [n], below 0 becomes max(0, tokens[-1 - ids[i]]), or 0 beyond the last token.
  void ResolveSampledIds(Tensor ids, Tensor tokens);

 private:
  // The arguments have been checked. A batch may have no requests.
  virtual bool DoSampleTokens(std::span<SampledToken> /*sampled*/, Tensor /*tokens*/,
                              Tensor /*logits*/, Tensor /*row_tokens*/,
                              const SampleBatch& /*batch*/) {
    return false;
  }
  virtual void DoResolveSampledIds(Tensor /*ids*/, Tensor /*tokens*/) {}
};

}  // namespace continuo::kernels
