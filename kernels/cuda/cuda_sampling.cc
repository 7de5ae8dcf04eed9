// SPDX-License-Identifier: Apache-2.0
// Drawing tokens where the logits are.
#include <cstddef>
#include <span>

#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ops/sampling.h"
#include "kernels/cuda/runtime/scratch_layout.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Of biases, seen tokens and masks: batches with more are the host's.
constexpr size_t kMaxListBytes = size_t{32} << 20;

DrawArrays LayOut(ScratchLayout& layout, const DrawBatch& batch, const Tensor& tokens,
                  const Tensor& logits, const Tensor& row_tokens) {
  const size_t n = batch.draws.size(), jobs = 2 * n;
  const auto parts = static_cast<size_t>(PartsOf(logits.cols()));
  const auto blocks = static_cast<size_t>(BlocksOf(logits.cols()));
  return {.logits = Data<const float>(logits),
          .vocab = logits.cols(),
          .num_draws = static_cast<int32_t>(n),
          .draws = layout.Add<TokenDraw>(n),
          .biases = layout.Add<LogitBias>(batch.biases.size()),
          .seen = layout.Add<SeenToken>(batch.seen.size()),
          .masks = layout.Add<uint32_t>(batch.masks.size()),
          .drawn = layout.Add<DrawnToken>(n),
          .tokens = Data<int32_t>(tokens),
          .row_tokens = Data<const int32_t>(row_tokens),
          .maxima = layout.Add<Candidate>(jobs * parts),
          .block_sums = layout.Add<double>(jobs * blocks),
          .histograms = layout.Add<uint64_t>(jobs * kDrawBuckets),
          .num_candidates = layout.Add<uint32_t>(jobs),
          .candidates = layout.Add<Candidate>(jobs * kMaxCandidates)};
}

// n of them as words, which is what is copied.
template <typename T>
Tensor Words(T* data, size_t n) {
  static_assert(sizeof(T) % sizeof(int32_t) == 0);
  return {data, DType::kI32, {static_cast<int64_t>(n * sizeof(T) / sizeof(int32_t)), 1, 1}};
}

void CheckBatch(const DrawBatch& batch, const Tensor& logits, const Tensor& row_tokens) {
  const auto words = static_cast<size_t>((logits.cols() + 31) / 32);
  CONTINUO_CHECK(logits.dtype == DType::kF32);
  for (const TokenDraw& draw : batch.draws) {
    CONTINUO_CHECK(draw.row >= 0 && draw.row < logits.rows() && draw.target < logits.cols());
    CONTINUO_CHECK(draw.bias_begin >= 0 && draw.bias_begin <= draw.bias_end &&
                   static_cast<size_t>(draw.bias_end) <= batch.biases.size());
    CONTINUO_CHECK(draw.seen_begin >= 0 && draw.seen_begin <= draw.seen_end &&
                   static_cast<size_t>(draw.seen_end) <= batch.seen.size());
    CONTINUO_CHECK(draw.answered_row < row_tokens.size());
    CONTINUO_CHECK(draw.mask < 0 ||
                   (static_cast<size_t>(draw.mask) + 1) * words <= batch.masks.size());
    CONTINUO_CHECK(draw.num_alternatives <= kMaxAlternatives);
  }
}

}  // namespace

bool CudaBackend::DrawTokens(std::span<DrawnToken> drawn, Tensor tokens, Tensor logits,
                             Tensor row_tokens, const DrawBatch& batch) {
  const size_t n = batch.draws.size();
  CheckBatch(batch, logits, row_tokens);
  CONTINUO_CHECK(drawn.size() == n && tokens.dtype == DType::kI32);
  CONTINUO_CHECK(tokens.size() == static_cast<int64_t>(n));
  const size_t list_bytes =
      batch.biases.size_bytes() + batch.seen.size_bytes() + batch.masks.size_bytes();
  if (n == 0 || n > kMaxDraws || logits.cols() > kMaxDrawVocabulary || list_bytes > kMaxListBytes) {
    return false;
  }
  ScratchLayout counted;
  LayOut(counted, batch, tokens, logits, row_tokens);
  void* const memory = host::Scratch(counted.bytes());
  if (!failure_.ok()) return true;
  ScratchLayout layout(memory);
  const DrawArrays arrays = LayOut(layout, batch, tokens, logits, row_tokens);
  CopyIn(Words(arrays.draws, n), batch.draws.data());
  CopyIn(Words(arrays.biases, batch.biases.size()), batch.biases.data());
  CopyIn(Words(arrays.seen, batch.seen.size()), batch.seen.data());
  CopyIn(Words(arrays.masks, batch.masks.size()), batch.masks.data());
  Enqueue("DrawTokens", [&] { return cuda::DrawTokens(arrays, batch.draws, stream()); });
  CopyOut(drawn.data(), Words(arrays.drawn, n));
  return true;
}

void CudaBackend::TakeTokens(Tensor ids, Tensor tokens) {
  CONTINUO_CHECK(ids.dtype == DType::kI32 && tokens.dtype == DType::kI32);
  Enqueue("TakeTokens", [&] {
    return cuda::TakeTokens(Data<int32_t>(ids), ids.size(), Data<const int32_t>(tokens),
                            tokens.size(), stream());
  });
}

}  // namespace continuo::kernels::cuda
