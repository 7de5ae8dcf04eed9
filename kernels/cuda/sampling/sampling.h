// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/kernel_stream.h"
#include "kernels/sampling.h"

// Samples tokens on the device as kernels/sampling.h defines it. Launchers return the launch's
// error.
namespace continuo::kernels::cuda {

// At most this many candidates are sorted here. A request whose filters leave more goes to the
// host.
inline constexpr int kMaxCandidates = 1024;
inline constexpr int64_t kMaxSampleVocabulary = int64_t{1} << 20;

// A block of threads takes this many ids of a row, which are a part.
inline constexpr int kVocabularyPart = 8192;
// Candidates are all tokens that are not too far below the largest logit. Their number, or weight,
// is first counted by distance, in buckets.
inline constexpr int kBuckets = 512;

CONTINUO_HOST_DEVICE inline int64_t PartsOf(int64_t vocab) {
  return (vocab + kVocabularyPart - 1) / kVocabularyPart;
}
// Returns the number of blocks of kSumBlock ids.
CONTINUO_HOST_DEVICE inline int64_t BlocksOf(int64_t vocab) {
  return (vocab + kSumBlock - 1) / kSumBlock;
}

// A token with its logit or its weight.
struct Candidate {
  float value;
  int32_t token_id;
};

// The device memory that kernels read and write.
struct SampleArrays {
  const float* logits = nullptr;  // [rows, vocab]
  int64_t vocab = 0;
  int32_t num_requests = 0;
  SampleRequest* requests = nullptr;  // [num_requests]; these are the batch's, like the next three
  LogitBias* biases = nullptr;
  SeenToken* seen = nullptr;
  uint32_t* masks = nullptr;
  SampledToken* sampled = nullptr;      // [num_requests]
  int32_t* tokens = nullptr;            // [num_requests], for ResolveSampledIds
  const int32_t* row_tokens = nullptr;  // of SampleRequest::answered_row
  // The following are for each job: num_requests requests, then their scores.
  Candidate* maxima = nullptr;         // [jobs, parts of a row]
  double* block_sums = nullptr;        // [jobs, blocks of kSumBlock of a row]
  uint64_t* histograms = nullptr;      // [jobs, kBuckets]
  uint32_t* num_candidates = nullptr;  // [jobs]
  Candidate* candidates = nullptr;     // [jobs, kMaxCandidates]
};

// Enqueues the kernels of a batch. `host` is what `arrays.requests` will hold: it decides which
// kernels are needed.
cudaError_t SampleTokens(const SampleArrays& arrays, std::span<const SampleRequest> host,
                         KernelStream stream);

// SamplingOps::ResolveSampledIds for n ids; beyond num_tokens a token is 0.
cudaError_t ResolveSampledIds(int32_t* ids, int64_t n, const int32_t* tokens, int64_t num_tokens,
                              KernelStream stream);

}  // namespace continuo::kernels::cuda
