// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/sampling.h"

// Drawing tokens on the device, as kernels/sampling.h defines it. What launchers return is the
// launch's error.
namespace continuo::kernels::cuda {

// More tokens than these are not sorted here: a draw whose filters leave more goes to the host.
inline constexpr int kMaxCandidates = 1024;
inline constexpr int64_t kMaxDrawVocabulary = int64_t{1} << 20;

// A block of threads takes so many ids of a row, a part.
inline constexpr int kDrawPart = 8192;
// Candidates are all that are not too far below the largest logit; how many there are, or what they
// weigh, is first counted by distance.
inline constexpr int kDrawBuckets = 512;

CONTINUO_HOST_DEVICE inline int64_t PartsOf(int64_t vocab) {
  return (vocab + kDrawPart - 1) / kDrawPart;
}
// Of kSumBlock ids.
CONTINUO_HOST_DEVICE inline int64_t BlocksOf(int64_t vocab) {
  return (vocab + kSumBlock - 1) / kSumBlock;
}

// A logit or a weight.
struct Candidate {
  float value;
  int32_t token_id;
};

// What kernels read and write, device memory.
struct DrawArrays {
  const float* logits = nullptr;  // [rows, vocab]
  int64_t vocab = 0;
  int32_t num_draws = 0;
  TokenDraw* draws = nullptr;  // [num_draws]; as a batch's, like what follows
  LogitBias* biases = nullptr;
  SeenToken* seen = nullptr;
  uint32_t* masks = nullptr;
  DrawnToken* drawn = nullptr;          // [num_draws]
  int32_t* tokens = nullptr;            // [num_draws], of Backend::TakeTokens
  const int32_t* row_tokens = nullptr;  // of TokenDraw::answered_row
  // Of each job: num_draws draws, then their scores.
  Candidate* maxima = nullptr;         // [jobs, parts of a row]
  double* block_sums = nullptr;        // [jobs, blocks of kSumBlock of a row]
  uint64_t* histograms = nullptr;      // [jobs, kDrawBuckets]
  uint32_t* num_candidates = nullptr;  // [jobs]
  Candidate* candidates = nullptr;     // [jobs, kMaxCandidates]
};

// Enqueues the draws. `host` is what `arrays.draws` will be: it decides which kernels are needed.
cudaError_t DrawTokens(const DrawArrays& arrays, std::span<const TokenDraw> host,
                       cudaStream_t stream);

// Backend::TakeTokens of n ids; beyond num_tokens a token is 0.
cudaError_t TakeTokens(int32_t* ids, int64_t n, const int32_t* tokens, int64_t num_tokens,
                       cudaStream_t stream);

}  // namespace continuo::kernels::cuda
