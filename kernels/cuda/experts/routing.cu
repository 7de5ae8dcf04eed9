// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/routing.h"

#include <cmath>
#include <limits>

#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/exact_math.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsOfBlock = 4;    // rows that a block routes, one warp each
constexpr int kMaxThreads = 1024;  // threads of a block
constexpr int kMaxCounts = 8192;   // counters in shared memory: experts × warps
constexpr float kLowest = -std::numeric_limits<float>::infinity();

__device__ inline float LogitOf(const float* logits, int expert) {
  return logits[expert] != logits[expert] ? kLowest : logits[expert];
}

// A warp's reduction to the entry that comes first: the larger logit, of equal ones the lower
// expert. All lanes get it.
struct Pick {
  float logit;
  float expert;  // a small integer
};
__device__ inline Pick FirstOfWarp(Pick mine) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const Pick other = {ShuffleXor(mine.logit, mask), ShuffleXor(mine.expert, mask)};
    if (other.logit > mine.logit || (other.logit == mine.logit && other.expert < mine.expert)) {
      mine = other;
    }
  }
  return mine;
}

// One warp per row picks the largest logit that is not taken yet, again and again. Then it orders
// the experts by index, computes their weights, and writes the experts to `entries`. Lane i has the
// logits of experts i, i + 32, …
__global__ void PickExpertsKernel(RouteArrays routes, const float* all_logits, int64_t rows,
                                  int num_experts, int per_row, bool normalise) {
  WaitForPreviousKernel();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + warp;
  if (row >= rows) return;
  auto* const room = reinterpret_cast<float*>(SharedMemory()) + warp * (2 * num_experts);
  float* const logits = room;  // [num_experts]
  // [num_experts]: weights of all experts, or of the row's
  float* const weights = room + num_experts;
  auto* const taken = reinterpret_cast<int32_t*>(weights);  // [per_row], used before `weights`
  for (int e = lane; e < num_experts; e += kWarp) {
    logits[e] = LogitOf(all_logits + row * num_experts, e);
  }
  SyncWarp();
  uint32_t mine_taken = 0;  // bit i: expert lane + 32 i
  int32_t expert = 0;       // of lane i < per_row: the i-th taken
  float max = 0;
  for (int i = 0; i < per_row; ++i) {
    Pick best = {kLowest, static_cast<float>(kMaxExperts)};
    for (int e = lane, bit = 0; e < num_experts; e += kWarp, ++bit) {
      const bool free = (mine_taken >> bit & 1u) == 0;
      // If all logits are -infinity, the lowest expert is taken.
      if (free && (logits[e] > best.logit || best.expert == static_cast<float>(kMaxExperts))) {
        best = {logits[e], static_cast<float>(e)};
      }
    }
    best = FirstOfWarp(best);
    const auto found = static_cast<int32_t>(best.expert);
    if (i == 0) max = best.logit;
    if (i == lane) expert = found;
    if (found % kWarp == lane) mine_taken |= uint32_t{1} << (found / kWarp);
  }
  if (lane < per_row) taken[lane] = expert;
  SyncWarp();
  int place = 0;  // rank by ascending index
  for (int i = 0; i < per_row; ++i) place += taken[i] < expert ? 1 : 0;
  SyncWarp();  // `taken` is read before weights overwrite it
  const float weight = lane < per_row ? ExactExp(logits[expert] - max) : 0;
  if (normalise) {
    if (lane < per_row) weights[place] = weight;
  } else {
    for (int e = lane; e < num_experts; e += kWarp) weights[e] = ExactExp(logits[e] - max);
  }
  SyncWarp();
  if (lane >= per_row) return;
  float sum = 0;  // every lane computes the same sum
  for (int e = 0; e < (normalise ? per_row : num_experts); ++e) sum += weights[e];
  routes.weights[row * per_row + place] = weight / sum;
  routes.entries[row * per_row + place] = expert;
}

// One block orders all entries. Each of its warps has a slice of the entries and counts its
// experts. Then every warp knows where its entries of an expert begin, and assigns places in the
// order of rows, 32 entries at a time.
__global__ void CONTINUO_BLOCK_OF(kMaxThreads)
    OrderEntriesKernel(RouteArrays routes, int64_t num_entries, int num_experts, int per_row) {
  WaitForPreviousKernel();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int warp = thread / kWarp, lane = thread % kWarp, num_warps = threads / kWarp;
  auto* const counts = reinterpret_cast<uint32_t*>(SharedMemory());  // [warps, num_experts]
  uint32_t* const totals = counts + num_warps * num_experts;         // [num_experts]
  auto* const shown = reinterpret_cast<int32_t*>(totals + num_experts) + warp * kWarp;  // [warp]
  for (int i = thread; i < num_warps * num_experts; i += threads) counts[i] = 0;
  SyncBlock();
  uint32_t* const mine = counts + warp * num_experts;
  const int64_t slice = (num_entries + num_warps - 1) / num_warps;
  const int64_t begin = Min(num_entries, warp * slice), end = Min(num_entries, begin + slice);
  for (int64_t i = begin + lane; i < end; i += kWarp) AtomicAdd(&mine[routes.entries[i]], 1u);
  SyncBlock();
  for (int e = thread; e < num_experts; e += threads) {
    uint32_t total = 0;
    for (int w = 0; w < num_warps; ++w) total += counts[w * num_experts + e];
    totals[e] = total;
  }
  SyncBlock();
  // A thread has neighbouring experts and continues where the thread before it ends.
  const int each = (num_experts + threads - 1) / threads;
  const int first_expert = thread * each;
  uint32_t place = 0;
  for (int e = 0; e < first_expert && e < num_experts; ++e) place += totals[e];
  for (int e = first_expert; e < first_expert + each && e < num_experts; ++e) {
    routes.expert_begin[e] = static_cast<int32_t>(place);
    for (int w = 0; w < num_warps; ++w) {
      uint32_t& count = counts[w * num_experts + e];
      const uint32_t next = place + count;
      count = place;
      place = next;
    }
    if (e == num_experts - 1) routes.expert_begin[num_experts] = static_cast<int32_t>(place);
  }
  SyncBlock();
  for (int64_t first = begin; first < end; first += kWarp) {
    const int64_t i = first + lane;
    const int32_t expert = i < end ? routes.entries[i] : -1;
    shown[lane] = expert;
    SyncWarp();
    uint32_t to = expert < 0 ? 0 : mine[expert];
    for (int other = 0; other < lane; ++other) to += shown[other] == expert ? 1 : 0;
    SyncWarp();
    if (expert >= 0) {
      AtomicAdd(&mine[expert], 1u);
      routes.rows[to] = static_cast<int32_t>(i / per_row);
      routes.entries[i] = static_cast<int32_t>(to);
    }
    SyncWarp();  // before the next 32 are shown
  }
}

// One block per row.
__global__ void CombineExpertsKernel(float* out, const float* x, const float* weights,
                                     const int32_t* entries, int64_t rows, int64_t cols,
                                     int per_row) {
  WaitForPreviousKernel();
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
                         int num_experts, int per_row, bool normalise, KernelStream stream) {
  if (rows > 0) {
    const auto blocks = static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock);
    const size_t room = sizeof(float) * kRowsOfBlock * 2 * static_cast<size_t>(num_experts);
    const cudaError_t error =
        Launch("PickExperts", PickExpertsKernel, blocks, kRowsOfBlock * kWarp, room, stream, routes,
               logits, rows, num_experts, per_row, normalise);
    if (error != cudaSuccess) return error;
  }
  // Few entries need few slices, and many experts leave room for few.
  const int64_t entries = rows * per_row;
  const auto warps = static_cast<int>(Max(
      1, Min(Min(kMaxThreads / kWarp, (entries + kWarp - 1) / kWarp), kMaxCounts / num_experts)));
  const size_t room = sizeof(uint32_t) * static_cast<size_t>((warps + 1) * num_experts) +
                      sizeof(int32_t) * static_cast<size_t>(warps * kWarp);
  return Launch("OrderEntries", OrderEntriesKernel, 1, warps * kWarp, room, stream, routes, entries,
                num_experts, per_row);
}

cudaError_t CombineExperts(float* out, const float* x, const float* weights, const int32_t* entries,
                           int64_t rows, int64_t cols, int per_row, KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return Launch("CombineExperts", CombineExpertsKernel, BlocksFor(rows, 1), kThreads, 0, stream,
                out, x, weights, entries, rows, cols, per_row);
}

}  // namespace continuo::kernels::cuda
