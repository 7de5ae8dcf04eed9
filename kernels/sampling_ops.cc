// SPDX-License-Identifier: Apache-2.0
#include "kernels/sampling_ops.h"

#include <cstddef>
#include <cstdint>

#include "services/base/check.h"

namespace continuo::kernels {
namespace {

void CheckRequest(const SampleRequest& request, const SampleBatch& batch, const Tensor& logits,
                  const Tensor& row_tokens) {
  const auto words = static_cast<size_t>((logits.cols() + 31) / 32);
  CONTINUO_CHECK(request.row >= 0 && request.row < logits.rows());
  CONTINUO_CHECK(request.target < logits.cols());
  CONTINUO_CHECK(request.bias_begin >= 0 && request.bias_begin <= request.bias_end &&
                 static_cast<size_t>(request.bias_end) <= batch.biases.size());
  CONTINUO_CHECK(request.seen_begin >= 0 && request.seen_begin <= request.seen_end &&
                 static_cast<size_t>(request.seen_end) <= batch.seen.size());
  CONTINUO_CHECK(request.answered_row < row_tokens.size());
  CONTINUO_CHECK(request.mask < 0 ||
                 (static_cast<size_t>(request.mask) + 1) * words <= batch.masks.size());
  CONTINUO_CHECK(request.num_alternatives <= kMaxAlternatives);
}

}  // namespace

bool SamplingOps::SampleTokens(std::span<SampledToken> sampled, Tensor tokens, Tensor logits,
                               Tensor row_tokens, const SampleBatch& batch) {
  const size_t n = batch.requests.size();
  CONTINUO_CHECK(logits.dtype == DType::kF32 && tokens.dtype == DType::kI32);
  CONTINUO_CHECK(sampled.size() == n && tokens.size() == static_cast<int64_t>(n));
  for (const SampleRequest& request : batch.requests) {
    CheckRequest(request, batch, logits, row_tokens);
  }
  return DoSampleTokens(sampled, tokens, logits, row_tokens, batch);
}

void SamplingOps::ResolveSampledIds(Tensor ids, Tensor tokens) {
  CONTINUO_CHECK(ids.dtype == DType::kI32 && tokens.dtype == DType::kI32);
  if (ids.size() > 0) DoResolveSampledIds(ids, tokens);
}

}  // namespace continuo::kernels
