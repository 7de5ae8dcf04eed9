// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/routing.h"

#include <cmath>
#include <limits>

#include "kernels/cuda/launch.h"
#include "kernels/exact_math.h"

namespace continuo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

__device__ inline float LogitOf(const float* logits, int expert) {
  return logits[expert] != logits[expert] ? kLowest : logits[expert];
}

// A thread a row: the largest logits by insertion, their weights, and the experts themselves to
// `entries`.
__global__ void PickExpertsKernel(RouteArrays routes, const float* all_logits, int64_t rows,
                                  int num_experts, int per_row, bool normalise) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  const float* const logits = all_logits + row * num_experts;
  int32_t experts[kMaxExpertsPerRow];  // by descending logit, of equal ones the lower first
  int num = 0;
  for (int e = 0; e < num_experts; ++e) {
    const float logit = LogitOf(logits, e);
    if (num == per_row && !(logit > LogitOf(logits, experts[per_row - 1]))) continue;
    int at = num < per_row ? num++ : per_row - 1;
    for (; at > 0 && logit > LogitOf(logits, experts[at - 1]); --at) experts[at] = experts[at - 1];
    experts[at] = e;
  }
  const float max = LogitOf(logits, experts[0]);
  for (int i = 1; i < per_row; ++i) {  // by ascending index
    const int32_t expert = experts[i];
    int at = i;
    for (; at > 0 && experts[at - 1] > expert; --at) experts[at] = experts[at - 1];
    experts[at] = expert;
  }
  float sum = 0;
  float weights[kMaxExpertsPerRow];
  for (int i = 0; i < per_row; ++i) weights[i] = ExactExp(LogitOf(logits, experts[i]) - max);
  if (normalise) {
    for (int i = 0; i < per_row; ++i) sum += weights[i];
  } else {
    for (int e = 0; e < num_experts; ++e) sum += ExactExp(LogitOf(logits, e) - max);
  }
  for (int i = 0; i < per_row; ++i) {
    routes.weights[row * per_row + i] = weights[i] / sum;
    routes.entries[row * per_row + i] = experts[i];
  }
}

// One block, a thread an expert: counts its rows, finds its first entry, hands out places in the
// order of rows. A handed-out place is written as its complement over the expert, whose number no
// thread looks for then.
__global__ void OrderEntriesKernel(RouteArrays routes, int64_t num_entries, int num_experts,
                                   int per_row) {
  auto* const counts = reinterpret_cast<int32_t*>(SharedMemory());  // [num_experts]
  const int expert = static_cast<int>(threadIdx.x);
  const bool mine = expert < num_experts;
  int32_t count = 0;
  if (mine) {
    for (int64_t i = 0; i < num_entries; ++i) count += routes.entries[i] == expert ? 1 : 0;
    counts[expert] = count;
  }
  SyncBlock();
  if (mine) {
    int32_t place = 0;
    for (int e = 0; e < expert; ++e) place += counts[e];
    routes.expert_begin[expert] = place;
    if (expert == num_experts - 1) routes.expert_begin[num_experts] = place + count;
    for (int64_t i = 0; i < num_entries && count > 0; ++i) {
      if (routes.entries[i] != expert) continue;
      routes.rows[place] = static_cast<int32_t>(i / per_row);
      routes.entries[i] = ~place;
      ++place;
      --count;
    }
  }
  SyncBlock();
  for (int64_t i = expert; i < num_entries; i += blockDim.x) routes.entries[i] = ~routes.entries[i];
}

// A block a row.
__global__ void CombineExpertsKernel(float* out, const float* x, const float* weights,
                                     const int32_t* entries, int64_t rows, int64_t cols,
                                     int per_row) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
      float sum = 0;
      for (int64_t i = row * per_row; i < (row + 1) * per_row; ++i) {
        sum += weights[i] * x[entries[i] * cols + c];
      }
      out[row * cols + c] = sum;
    }
  }
}

}  // namespace

cudaError_t RouteExperts(const RouteArrays& routes, const float* logits, int64_t rows,
                         int num_experts, int per_row, bool normalise, cudaStream_t stream) {
  if (rows > 0) {
    const cudaError_t error = Launch(
        "PickExperts", PickExpertsKernel, static_cast<unsigned>((rows + kThreads - 1) / kThreads),
        kThreads, 0, stream, routes, logits, rows, num_experts, per_row, normalise);
    if (error != cudaSuccess) return error;
  }
  const int threads = (num_experts + kWarp - 1) / kWarp * kWarp;
  return Launch("OrderEntries", OrderEntriesKernel, 1, threads,
                static_cast<size_t>(num_experts) * sizeof(int32_t), stream, routes, rows * per_row,
                num_experts, per_row);
}

cudaError_t CombineExperts(float* out, const float* x, const float* weights, const int32_t* entries,
                           int64_t rows, int64_t cols, int per_row, cudaStream_t stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return Launch("CombineExperts", CombineExpertsKernel, BlocksFor(rows, 1), kThreads, 0, stream,
                out, x, weights, entries, rows, cols, per_row);
}

}  // namespace continuo::cuda
