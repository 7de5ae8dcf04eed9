// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/sampling/sampling.h"

// Jobs, and logits after mask, bias and penalties, which the kernels of sampling.cu share.
namespace continuo::kernels::cuda {

inline constexpr int kSampleThreads = 256;
inline constexpr int kBlocksOfPart = kVocabularyPart / kSumBlock;
// Blocks of a part are padded to begin four banks apart, so that the lanes of eight blocks meet no
// bank conflict.
inline constexpr int kBlockPadding = 4;
inline constexpr int kPartFloats = kBlocksOfPart * (kSumBlock + kBlockPadding);
inline constexpr float kLowestLogit = -std::numeric_limits<float>::infinity();
inline constexpr float kLargestLogit = std::numeric_limits<float>::max();

enum class SampleKind { kNothing, kGreedy, kAll, kTopK, kMinP, kTopP, kScore };

CONTINUO_HOST_DEVICE inline SampleKind SampleKindOf(const SampleRequest& request, bool is_score,
                                                    int64_t vocab) {
  if (is_score) return request.num_alternatives < 0 ? SampleKind::kNothing : SampleKind::kScore;
  if (request.target >= 0) return SampleKind::kNothing;
  if (request.temperature == 0) return SampleKind::kGreedy;
  if (request.top_k > 0 && request.top_k < vocab) return SampleKind::kTopK;
  if (request.min_p > 0) return SampleKind::kMinP;
  return request.top_p < 1 ? SampleKind::kTopP : SampleKind::kAll;
}
CONTINUO_HOST_DEVICE inline bool IsSummed(SampleKind kind) {
  return kind == SampleKind::kAll || kind == SampleKind::kTopP || kind == SampleKind::kScore;
}
CONTINUO_HOST_DEVICE inline bool IsCounted(SampleKind kind, const SampleRequest& request) {
  return kind == SampleKind::kTopK || kind == SampleKind::kTopP ||
         (kind == SampleKind::kScore && request.num_alternatives > 0);
}
CONTINUO_HOST_DEVICE inline bool IsGathered(SampleKind kind, const SampleRequest& request) {
  return kind == SampleKind::kMinP || IsCounted(kind, request);
}

struct SampleJob {
  const SampleRequest& request;
  const float* logits;
  int index;
  bool is_score;
  SampleKind kind;
  float temperature;
};

__device__ inline SampleJob SampleJobOf(const SampleArrays& a, unsigned index) {
  const bool is_score = static_cast<int>(index) >= a.num_requests;
  const SampleRequest& request = a.requests[static_cast<int>(index) % a.num_requests];
  return {.request = request,
          .logits = a.logits + request.row * a.vocab,
          .index = static_cast<int>(index),
          .is_score = is_score,
          .kind = SampleKindOf(request, is_score, a.vocab),
          .temperature = is_score ? 1.0f : request.temperature};
}

__device__ inline float Ordinary(float logit) {
  return logit <= kLargestLogit ? logit : (logit > kLargestLogit ? kLargestLogit : kLowestLogit);
}
__device__ inline float AtMostLargest(float logit) {
  return logit > kLargestLogit ? kLargestLogit : logit;
}

// Returns the index in shared memory of a part's element i.
__device__ inline int PartIndex(int i) { return i + i / kSumBlock * kBlockPadding; }

// Returns the first index in [begin, end) whose token id is at least `id`.
template <typename T>
__device__ int LowerBound(const T* entries, int begin, int end, int64_t id) {
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (entries[middle].token_id < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

__device__ inline float Penalised(float logit, const SampleRequest& request, int32_t answer_count) {
  logit = logit > 0 ? logit / request.repetition_penalty : logit * request.repetition_penalty;
  if (answer_count > 0) {
    logit -= request.presence_penalty;
    logit -= request.frequency_penalty * static_cast<float>(answer_count);
  }
  return AtMostLargest(logit);
}

// Tells whether logits depend on more than the mask.
__device__ inline bool HasLists(const SampleJob& job) {
  const SampleRequest& request = job.request;
  return !job.is_score && (request.bias_begin < request.bias_end ||
                           request.seen_begin < request.seen_end || request.answered_row >= 0);
}

// Calls visit(i, chunk) with all of a thread's logits of a part, i ascending: chunk.at[j] is that
// of id begin + i + j after the mask, for i + j < n ≤ kVocabularyPart. Rows that are 16-byte
// aligned are read by 16 bytes, and all of a thread's loads are in flight together.
template <typename Visit>
__device__ inline void ReadLogits(const SampleArrays& a, const SampleJob& job, int64_t begin, int n,
                                  const Visit& visit) {
  constexpr int kLogits = kChunk<float>, kChunks = kVocabularyPart / (kSampleThreads * kLogits);
  const int thread = static_cast<int>(threadIdx.x);
  const bool is_masked = !job.is_score && job.request.mask >= 0;
  const uint32_t* const mask =
      is_masked ? a.masks + job.request.mask * ((a.vocab + 31) / 32) : nullptr;
  const float* const from = job.logits + begin;
  // A part begins with a word of the mask.
  const auto allowed_from = [&](int i) {
    return is_masked ? mask[(begin + i) / 32] >> (i % 32) : ~uint32_t{0};
  };
  if (a.vocab % kLogits == 0 &&
      reinterpret_cast<uintptr_t>(from) % sizeof(Chunk<float, kLogits>) == 0) {
    Chunk<float, kLogits> chunks[kChunks];
    CONTINUO_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      const int i = (c * kSampleThreads + thread) * kLogits;
      if (i < n) chunks[c] = LoadChunk<kLogits>(from + i);
    }
    CONTINUO_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      const int i = (c * kSampleThreads + thread) * kLogits;
      if (i >= n) continue;
      const uint32_t allowed = allowed_from(i);
      CONTINUO_UNROLL
      for (int j = 0; j < kLogits; ++j) {
        chunks[c].at[j] = (allowed >> j & 1u) != 0 ? Ordinary(chunks[c].at[j]) : kLowestLogit;
      }
      visit(i, chunks[c]);
    }
    return;
  }
  for (int i = thread; i < n; i += kSampleThreads) {
    visit(i, Chunk<float, 1>{{(allowed_from(i) & 1u) != 0 ? Ordinary(from[i]) : kLowestLogit}});
  }
}

// Loads to[PartIndex(i)] = the logit of id begin + i as the job sees it, for i < n ≤
// kVocabularyPart. Ends with a barrier.
__device__ inline void LoadLogits(const SampleArrays& a, const SampleJob& job, int64_t begin, int n,
                                  float* to) {
  const SampleRequest& request = job.request;
  const int thread = static_cast<int>(threadIdx.x);
  ReadLogits(a, job, begin, n,
             [&](int i, const auto& chunk) { StoreChunk(to + PartIndex(i), chunk); });
  SyncBlock();
  if (job.is_score) return;
  for (int i = LowerBound(a.biases, request.bias_begin, request.bias_end, begin) + thread;
       i < request.bias_end && a.biases[i].token_id < begin + n; i += kSampleThreads) {
    float& logit = to[PartIndex(static_cast<int>(a.biases[i].token_id - begin))];
    logit = AtMostLargest(logit + a.biases[i].bias);
  }
  SyncBlock();
  const int32_t answered = request.answered_row >= 0 ? a.row_tokens[request.answered_row] : -1;
  for (int i = LowerBound(a.seen, request.seen_begin, request.seen_end, begin) + thread;
       i < request.seen_end && a.seen[i].token_id < begin + n; i += kSampleThreads) {
    const SeenToken seen = a.seen[i];
    float& logit = to[PartIndex(static_cast<int>(seen.token_id - begin))];
    logit = Penalised(logit, request, seen.answer_count + (seen.token_id == answered ? 1 : 0));
  }
  if (thread == 0 && answered >= begin && answered < begin + n) {
    const int i = LowerBound(a.seen, request.seen_begin, request.seen_end, answered);
    float& logit = to[PartIndex(static_cast<int>(answered - begin))];
    if (i == request.seen_end || a.seen[i].token_id != answered)
      logit = Penalised(logit, request, 1);
  }
  SyncBlock();
}

// Returns the largest logit of a job's parts. Every thread computes it by itself, since there are
// few parts.
__device__ inline Candidate MaxOf(const SampleArrays& a, const SampleJob& job) {
  const int64_t parts = PartsOf(a.vocab);
  const Candidate* const maxima = a.maxima + job.index * parts;
  Candidate max = maxima[0];
  CONTINUO_UNROLL_BY(8)
  for (int64_t part = 1; part < parts; ++part) {
    if (maxima[part].value > max.value) max = maxima[part];  // ids ascend
  }
  return max;
}

// Returns the sum of a job's blocks to thread 0; the other threads get anything. `sums` is shared
// memory for all of them, which it fills. Ends with a barrier.
__device__ inline double TotalOf(const SampleArrays& a, const SampleJob& job, double* sums) {
  const int blocks = static_cast<int>(BlocksOf(a.vocab)), thread = static_cast<int>(threadIdx.x);
  const double* const from = a.block_sums + static_cast<int64_t>(job.index) * blocks;
  for (int b = thread; b < blocks; b += kSampleThreads) sums[b] = from[b];
  SyncBlock();
  double total = 0;
  if (thread == 0) {
    for (int b = 0; b < blocks; ++b) total += sums[b];
  }
  SyncBlock();
  return total;
}

}  // namespace continuo::kernels::cuda
