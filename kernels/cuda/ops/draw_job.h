// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cuda/ops/sampling.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/launch.h"

// What the kernels of sampling.cu share: jobs, and their logits as they see them.
namespace continuo::kernels::cuda {

inline constexpr int kDrawThreads = 256;
inline constexpr int kBlocksOfPart = kDrawPart / kSumBlock;
// Blocks begin four banks apart, so that the lanes of eight of them meet no bank twice.
inline constexpr int kBlockPadding = 4;
inline constexpr int kPartFloats = kBlocksOfPart * (kSumBlock + kBlockPadding);
inline constexpr float kLowestLogit = -std::numeric_limits<float>::infinity();
inline constexpr float kLargestLogit = std::numeric_limits<float>::max();

enum class DrawKind { kNothing, kGreedy, kAll, kTopK, kMinP, kTopP, kScore };

CONTINUO_HOST_DEVICE inline DrawKind DrawKindOf(const TokenDraw& draw, bool is_score,
                                                int64_t vocab) {
  if (is_score) return draw.num_alternatives < 0 ? DrawKind::kNothing : DrawKind::kScore;
  if (draw.target >= 0) return DrawKind::kNothing;
  if (draw.temperature == 0) return DrawKind::kGreedy;
  if (draw.top_k > 0 && draw.top_k < vocab) return DrawKind::kTopK;
  if (draw.min_p > 0) return DrawKind::kMinP;
  return draw.top_p < 1 ? DrawKind::kTopP : DrawKind::kAll;
}
CONTINUO_HOST_DEVICE inline bool IsSummed(DrawKind kind) {
  return kind == DrawKind::kAll || kind == DrawKind::kTopP || kind == DrawKind::kScore;
}
CONTINUO_HOST_DEVICE inline bool IsCounted(DrawKind kind, const TokenDraw& draw) {
  return kind == DrawKind::kTopK || kind == DrawKind::kTopP ||
         (kind == DrawKind::kScore && draw.num_alternatives > 0);
}
CONTINUO_HOST_DEVICE inline bool IsGathered(DrawKind kind, const TokenDraw& draw) {
  return kind == DrawKind::kMinP || IsCounted(kind, draw);
}

struct DrawJob {
  const TokenDraw& draw;
  const float* logits;
  int index;
  bool is_score;
  DrawKind kind;
  float temperature;
};

__device__ inline DrawJob DrawJobOf(const DrawArrays& a, unsigned index) {
  const bool is_score = static_cast<int>(index) >= a.num_draws;
  const TokenDraw& draw = a.draws[static_cast<int>(index) % a.num_draws];
  return {.draw = draw,
          .logits = a.logits + draw.row * a.vocab,
          .index = static_cast<int>(index),
          .is_score = is_score,
          .kind = DrawKindOf(draw, is_score, a.vocab),
          .temperature = is_score ? 1.0f : draw.temperature};
}

__device__ inline float Ordinary(float logit) {
  return logit <= kLargestLogit ? logit : (logit > kLargestLogit ? kLargestLogit : kLowestLogit);
}
__device__ inline float AtMostLargest(float logit) {
  return logit > kLargestLogit ? kLargestLogit : logit;
}

// Where element i of a part lies in shared memory.
__device__ inline int PartIndex(int i) { return i + i / kSumBlock * kBlockPadding; }

// The first of [begin, end) whose id is at least `id`.
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

__device__ inline float Penalised(float logit, const TokenDraw& draw, int32_t answer_count) {
  logit = logit > 0 ? logit / draw.repetition_penalty : logit * draw.repetition_penalty;
  if (answer_count > 0) {
    logit -= draw.presence_penalty;
    logit -= draw.frequency_penalty * static_cast<float>(answer_count);
  }
  return AtMostLargest(logit);
}

// to[PartIndex(i)] = the logit of id begin + i, i < n ≤ kDrawPart, as the job sees it. Ends with a
// barrier.
__device__ inline void LoadLogits(const DrawArrays& a, const DrawJob& job, int64_t begin, int n,
                                  float* to) {
  const TokenDraw& draw = job.draw;
  const int thread = static_cast<int>(threadIdx.x);
  const bool is_masked = !job.is_score && draw.mask >= 0;
  const uint32_t* const mask = is_masked ? a.masks + draw.mask * ((a.vocab + 31) / 32) : nullptr;
  for (int i = thread; i < n; i += kDrawThreads) {
    const int64_t id = begin + i;
    const bool allowed = !is_masked || (mask[id / 32] >> (id % 32) & 1u) != 0;
    to[PartIndex(i)] = allowed ? Ordinary(job.logits[id]) : kLowestLogit;
  }
  SyncBlock();
  if (job.is_score) return;
  for (int i = LowerBound(a.biases, draw.bias_begin, draw.bias_end, begin) + thread;
       i < draw.bias_end && a.biases[i].token_id < begin + n; i += kDrawThreads) {
    float& logit = to[PartIndex(static_cast<int>(a.biases[i].token_id - begin))];
    logit = AtMostLargest(logit + a.biases[i].bias);
  }
  SyncBlock();
  const int32_t answered = draw.answered_row >= 0 ? a.row_tokens[draw.answered_row] : -1;
  for (int i = LowerBound(a.seen, draw.seen_begin, draw.seen_end, begin) + thread;
       i < draw.seen_end && a.seen[i].token_id < begin + n; i += kDrawThreads) {
    const SeenToken seen = a.seen[i];
    float& logit = to[PartIndex(static_cast<int>(seen.token_id - begin))];
    logit = Penalised(logit, draw, seen.answer_count + (seen.token_id == answered ? 1 : 0));
  }
  if (thread == 0 && answered >= begin && answered < begin + n) {
    const int i = LowerBound(a.seen, draw.seen_begin, draw.seen_end, answered);
    float& logit = to[PartIndex(static_cast<int>(answered - begin))];
    if (i == draw.seen_end || a.seen[i].token_id != answered) logit = Penalised(logit, draw, 1);
  }
  SyncBlock();
}

// The largest logit of a job's parts. Every thread by itself: they are few.
__device__ inline Candidate MaxOf(const DrawArrays& a, const DrawJob& job) {
  const int64_t parts = PartsOf(a.vocab);
  const Candidate* const maxima = a.maxima + job.index * parts;
  Candidate max = maxima[0];
  for (int64_t part = 1; part < parts; ++part) {
    if (maxima[part].value > max.value) max = maxima[part];  // ids ascend
  }
  return max;
}

// The sum of a job's blocks; for thread 0, the others get anything. `sums`: room for all of them in
// shared memory, where they are afterwards. Ends with a barrier.
__device__ inline double TotalOf(const DrawArrays& a, const DrawJob& job, double* sums) {
  const int blocks = static_cast<int>(BlocksOf(a.vocab)), thread = static_cast<int>(threadIdx.x);
  const double* const from = a.block_sums + static_cast<int64_t>(job.index) * blocks;
  for (int b = thread; b < blocks; b += kDrawThreads) sums[b] = from[b];
  SyncBlock();
  double total = 0;
  if (thread == 0) {
    for (int b = 0; b < blocks; ++b) total += sums[b];
  }
  SyncBlock();
  return total;
}

}  // namespace continuo::kernels::cuda
