// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/routing.h"

#include <cmath>
#include <limits>

#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/math/exact_math.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsOfBlock = 4;    // rows that a block routes, one warp each
constexpr int kMaxThreads = 1024;  // threads of a block
constexpr int kMaxCounts = 8192;   // counters in shared memory: experts × warps
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLeastSum = 1e-20f;  // keeps weights that are all 0 from becoming NaN

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

// Writes the scores of a row's logits, those of all lanes' experts.
__device__ void Score(float* scores, const float* logits, int num_experts, bool by_sigmoid) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (by_sigmoid) {
    for (int e = lane; e < num_experts; e += kWarp) {
      scores[e] = 1.0f / (1.0f + ExactExp(-logits[e]));
    }
    SyncWarp();
    return;
  }
  // Every lane computes the same maximum and sum.
  float max = kLowest;
  for (int e = 0; e < num_experts; ++e) max = logits[e] > max ? logits[e] : max;
  for (int e = lane; e < num_experts; e += kWarp) scores[e] = ExactExp(logits[e] - max);
  SyncWarp();
  float sum = 0;
  for (int e = 0; e < num_experts; ++e) sum += scores[e];
  SyncWarp();
  for (int e = lane; e < num_experts; e += kWarp) scores[e] = scores[e] / sum;
  SyncWarp();
}

// Takes the experts of all groups but the first top_groups out of the choice. groups [num_groups]
// is scratch.
__device__ void KeepGroups(float* choice, float* groups, int num_experts, const RoutingRule& rule) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int size = num_experts / rule.num_groups;
  for (int g = lane; g < rule.num_groups; g += kWarp) {
    float first = kLowest, second = kLowest;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float score = choice[e], less = score < first ? score : first;
      second = less > second ? less : second;
      first = score > first ? score : first;
    }
    groups[g] = rule.by_top_two && size > 1 ? first + second : first;
  }
  SyncWarp();
  for (int g = lane; g < rule.num_groups; g += kWarp) {
    int before = 0;
    for (int other = 0; other < rule.num_groups; ++other) {
      before += groups[other] > groups[g] || (groups[other] == groups[g] && other < g) ? 1 : 0;
    }
    if (before < rule.top_groups) continue;
    for (int e = g * size; e < (g + 1) * size; ++e) choice[e] = kLowest;
  }
  SyncWarp();
}

// One warp per row picks the largest of `choice` that is not taken yet, again and again. Then it
// orders the experts by index, computes their weights, and writes the experts to `entries`. Lane i
// has experts i, i + 32, … The choice is by logits for a softmax without correction and groups,
// otherwise by scores.
__global__ void PickExpertsKernel(RouteArrays routes, const float* all_logits, int64_t rows,
                                  int num_experts, int per_row, RoutingRule rule) {
  WaitForPreviousKernel();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + warp;
  if (row >= rows) return;
  const bool by_logits = !rule.by_sigmoid && rule.correction == nullptr && rule.num_groups == 1;
  auto* const room = reinterpret_cast<float*>(SharedMemory()) +
                     warp * (2 * num_experts + (rule.num_groups > 1 ? rule.num_groups : 0));
  float* const choice = room;                // [num_experts]: logits at first
  float* const second = room + num_experts;  // [num_experts]
  for (int e = lane; e < num_experts; e += kWarp) {
    choice[e] = LogitOf(all_logits + row * num_experts, e);
  }
  SyncWarp();
  if (!by_logits) {
    Score(second, choice, num_experts, rule.by_sigmoid);
    for (int e = lane; e < num_experts && !rule.chooses_by_logits; e += kWarp) {
      const float score = rule.correction == nullptr ? second[e] : second[e] + rule.correction[e];
      choice[e] = score != score ? kLowest : score;
    }
    SyncWarp();
    if (rule.num_groups > 1) KeepGroups(choice, second + num_experts, num_experts, rule);
  }
  uint32_t mine_taken = 0;  // bit i: expert lane + 32 i
  int32_t expert = 0;       // of lane i < per_row: the i-th taken
  float max = 0;
  for (int i = 0; i < per_row; ++i) {
    Pick best = {kLowest, static_cast<float>(kMaxExperts)};
    for (int e = lane, bit = 0; e < num_experts; e += kWarp, ++bit) {
      const bool free = (mine_taken >> bit & 1u) == 0;
      // If all are -infinity, the lowest expert is taken.
      if (free && (choice[e] > best.logit || best.expert == static_cast<float>(kMaxExperts))) {
        best = {choice[e], static_cast<float>(e)};
      }
    }
    best = FirstOfWarp(best);
    const auto found = static_cast<int32_t>(best.expert);
    if (i == 0) max = best.logit;
    if (i == lane) expert = found;
    if (found % kWarp == lane) mine_taken |= uint32_t{1} << (found / kWarp);
  }
  SyncWarp();  // `choice` has been read
  // The values of experts, and memory for the taken ones and then for weights: of all experts, or
  // of the row's.
  const float* const values = by_logits ? choice : second;
  float* const weights = by_logits ? second : choice;
  auto* const taken = reinterpret_cast<int32_t*>(weights);  // [per_row]
  if (lane < per_row) taken[lane] = expert;
  SyncWarp();
  int place = 0;  // rank by ascending index
  for (int i = 0; i < per_row; ++i) place += taken[i] < expert ? 1 : 0;
  SyncWarp();  // `taken` is read before weights overwrite it
  const bool of_row = rule.normalise || !by_logits;
  float weight = 0;
  if (lane < per_row) weight = by_logits ? ExactExp(values[expert] - max) : values[expert];
  if (of_row) {
    if (lane < per_row) weights[place] = weight;
  } else {
    for (int e = lane; e < num_experts; e += kWarp) weights[e] = ExactExp(values[e] - max);
  }
  SyncWarp();
  if (lane >= per_row) return;
  float sum = 0;  // every lane computes the same sum
  for (int e = 0; e < (of_row ? per_row : num_experts); ++e) sum += weights[e];
  if (by_logits) {
    weight = weight / sum;
  } else if (rule.normalise) {
    weight = weight / (sum + kLeastSum);
  }
  weight *= rule.factor;
  if (rule.expert_factors != nullptr) weight *= rule.expert_factors[expert];
  routes.weights[row * per_row + place] = weight;
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

// Returns the expert of an entry: the last one that begins at or before it and is not empty.
__device__ inline int ExpertOf(const int32_t* expert_begin, int num_experts, int32_t entry) {
  int low = 0, high = num_experts;  // the result is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (expert_begin[middle] <= entry) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// One block per row. Bound by writing an entry's elements.
template <typename T>
__global__ void WeighInputsKernel(T* out, const T* x, const float* weights, const int32_t* entries,
                                  int64_t rows, int64_t cols, int per_row) {
  WaitForPreviousKernel();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int i = 0; i < per_row; ++i) {
      const float weight = weights[row * per_row + i];
      T* const to = out + entries[row * per_row + i] * cols;
      for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
        Store(to + c, Widen(x[row * cols + c]) * weight);
      }
    }
  }
}

// One block per row.
__global__ void CombineExpertsKernel(float* out, const float* x, RouteArrays routes,
                                     AddendArrays addends, int64_t rows, int64_t cols, int per_row,
                                     int num_experts) {
  WaitForPreviousKernel();
  auto* const experts = reinterpret_cast<int32_t*>(SharedMemory());  // [per_row]
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int32_t* const entries = routes.entries + row * per_row;
    if (addends.bias != nullptr) {
      SyncBlock();  // those of the row before have been read
      const int i = static_cast<int>(threadIdx.x);
      if (i < per_row) experts[i] = ExpertOf(routes.expert_begin, num_experts, entries[i]);
      SyncBlock();
    }
    float factor = 1;
    if (addends.shared_gate != nullptr) {
      factor = 1.0f / (1.0f + ExactExp(-addends.shared_gate[row]));
    }
    for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
      float sum = 0;
      for (int i = 0; i < per_row; ++i) {
        float term = x[entries[i] * cols + c];
        if (addends.bias != nullptr) term += addends.bias[experts[i] * cols + c];
        sum += routes.weights[row * per_row + i] * term;
      }
      if (addends.shared != nullptr) sum += addends.shared[row * cols + c] * factor;
      out[row * cols + c] = sum;
    }
  }
}

}  // namespace

cudaError_t RouteExperts(const RouteArrays& routes, const float* logits, int64_t rows,
                         int num_experts, int per_row, const RoutingRule& rule,
                         KernelStream stream) {
  if (rows > 0) {
    const auto blocks = static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock);
    const int groups = rule.num_groups > 1 ? rule.num_groups : 0;
    const size_t room =
        sizeof(float) * kRowsOfBlock * static_cast<size_t>(2 * num_experts + groups);
    const cudaError_t error =
        Launch("PickExperts", PickExpertsKernel, blocks, kRowsOfBlock * kWarp, room, stream, routes,
               logits, rows, num_experts, per_row, rule);
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

template <typename T>
cudaError_t WeighInputs(T* out, const T* x, const float* weights, const int32_t* entries,
                        int64_t rows, int64_t cols, int per_row, KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return Launch("WeighInputs", WeighInputsKernel<T>, BlocksFor(rows, 1), kThreads, 0, stream, out,
                x, weights, entries, rows, cols, per_row);
}

template cudaError_t WeighInputs(float*, const float*, const float*, const int32_t*, int64_t,
                                 int64_t, int, KernelStream);
template cudaError_t WeighInputs(uint16_t*, const uint16_t*, const float*, const int32_t*, int64_t,
                                 int64_t, int, KernelStream);
template cudaError_t WeighInputs(Half*, const Half*, const float*, const int32_t*, int64_t, int64_t,
                                 int, KernelStream);

cudaError_t CombineExperts(float* out, const float* x, const RouteArrays& routes,
                           const AddendArrays& addends, int64_t rows, int64_t cols, int per_row,
                           int num_experts, KernelStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  const size_t shared =
      addends.bias == nullptr ? 0 : sizeof(int32_t) * static_cast<size_t>(per_row);
  return Launch("CombineExperts", CombineExpertsKernel, BlocksFor(rows, 1), kThreads, shared,
                stream, out, x, routes, addends, rows, cols, per_row, num_experts);
}

}  // namespace continuo::kernels::cuda
