// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sampling/cuda_sampling.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime/dispatch.h"
#include "kernels/cuda/runtime/scratch_layout.h"
#include "kernels/cuda/sampling/sampling.h"

namespace continuo::kernels::cuda {
namespace {

constexpr size_t kMaxListBytes = size_t{32} << 20;  // biases, seen tokens and masks together

// The batch's arrays come first, so that one copy takes them.
SampleArrays LayOut(ScratchLayout& layout, const SampleBatch& batch, const Tensor& tokens,
                    const Tensor& logits, const Tensor& row_tokens) {
  const size_t n = batch.requests.size(), jobs = 2 * n;
  const auto parts = static_cast<size_t>(PartsOf(logits.cols()));
  const auto blocks = static_cast<size_t>(BlocksOf(logits.cols()));
  return {.logits = Data<const float>(logits),
          .vocab = logits.cols(),
          .num_requests = static_cast<int32_t>(n),
          .requests = layout.Add<SampleRequest>(n),
          .biases = layout.Add<LogitBias>(batch.biases.size()),
          .seen = layout.Add<SeenToken>(batch.seen.size()),
          .masks = layout.Add<uint32_t>(batch.masks.size()),
          .sampled = layout.Add<SampledToken>(n),
          .tokens = Data<int32_t>(tokens),
          .row_tokens = Data<const int32_t>(row_tokens),
          .maxima = layout.Add<Candidate>(jobs * parts),
          .block_sums = layout.Add<double>(jobs * blocks),
          .histograms = layout.Add<uint64_t>(jobs * kBuckets),
          .num_candidates = layout.Add<uint32_t>(jobs),
          .candidates = layout.Add<Candidate>(jobs * kMaxCandidates)};
}

// Returns n elements as a tensor of 32-bit words, for copies.
template <typename T>
Tensor Words(T* data, size_t n) {
  static_assert(sizeof(T) % sizeof(int32_t) == 0);
  return {data, DType::kI32, {static_cast<int64_t>(n * sizeof(T) / sizeof(int32_t)), 1, 1}};
}

}  // namespace

bool CudaSampling::DoSampleTokens(std::span<SampledToken> sampled, Tensor tokens, Tensor logits,
                                  Tensor row_tokens, const SampleBatch& batch) {
  const size_t n = batch.requests.size();
  const size_t list_bytes =
      batch.biases.size_bytes() + batch.seen.size_bytes() + batch.masks.size_bytes();
  if (n == 0 || n > kMaxSamples || logits.cols() > kMaxSampleVocabulary ||
      list_bytes > kMaxListBytes) {
    return false;
  }
  ScratchLayout counted;
  LayOut(counted, batch, tokens, logits, row_tokens);
  void* const memory = context_.Scratch(counted.bytes());
  if (!context_.ok()) return true;
  ScratchLayout layout(memory);
  const SampleArrays arrays = LayOut(layout, batch, tokens, logits, row_tokens);
  const auto packed = [&](auto* to, auto from) {
    return PackedArray{
        from.data(), from.size_bytes(),
        static_cast<size_t>(reinterpret_cast<char*>(to) - static_cast<char*>(memory))};
  };
  context_.CopyInPacked(
      memory,
      std::array{packed(arrays.requests, batch.requests), packed(arrays.biases, batch.biases),
                 packed(arrays.seen, batch.seen), packed(arrays.masks, batch.masks)});
  context_.Enqueue("SampleTokens",
                   [&] { return cuda::SampleTokens(arrays, batch.requests, context_.kernels()); });
  context_.CopyOut(sampled.data(), Words(arrays.sampled, n));
  return true;
}

void CudaSampling::DoResolveSampledIds(Tensor ids, Tensor tokens) {
  context_.Enqueue("ResolveSampledIds", [&] {
    return cuda::ResolveSampledIds(Data<int32_t>(ids), ids.size(), Data<const int32_t>(tokens),
                                   tokens.size(), context_.kernels());
  });
}

}  // namespace continuo::kernels::cuda
