// SPDX-License-Identifier: Apache-2.0
// A batch of draws is up to four kernels. A grid's y is a job: a draw, or the score of one. Its x
// is a part of the vocabulary, whose logits after mask, bias and penalties each kernel computes
// anew in shared memory: reading them once more from the second cache is cheaper than writing them.
//
//   FindMax  each part's largest logit
//   Weigh    the weights' sums by blocks; how many logits, or what weight, lie how far below it
//   Gather   the logits or weights that a filter can keep
//   Choose   filters and draws, a block a job
//
// Sums that decide bits are taken by one thread each in the order of kernels/sampling.h.
#include "kernels/cuda/ops/sampling.h"

#include <climits>

#include "kernels/cuda/ops/draw_job.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/exact_math.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kLanes = 4;                                       // of a block's sum
constexpr float kFine = 16, kFineSteps = 16, kCoarseSteps = 4;  // of buckets
constexpr double kMassUnit = 0x1p40;                            // of a histogram of weights
static_assert(kBlocksOfPart * kLanes == kWarp && kDrawPart / kDrawThreads <= 32);
static_assert(kDrawBuckets == 2 * kDrawThreads);

// How far a logit is below the largest. The filters by weight, and the score, want to know it in
// temperatures, top_k whatever a logit weighs.
__device__ inline float DistanceOf(const DrawJob& job, float logit, float max) {
  return job.kind == DrawKind::kTopK ? max - logit : (max - logit) / job.temperature;
}
// In sixteenths up to 16, in quarters from there on; the last bucket has all that is further away.
// The same for all logits of one value, and never less for a smaller one.
__device__ inline int BucketOf(float distance) {
  const float steps = distance < kFine ? distance * kFineSteps
                                       : kFine * kFineSteps + (distance - kFine) * kCoarseSteps;
  return steps < kDrawBuckets - 1 ? static_cast<int>(steps) : kDrawBuckets - 1;
}

// Larger first, of equals the lower id.
struct ByValue {
  __device__ static bool Before(const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.token_id < b.token_id);
  }
};
struct ById {
  __device__ static bool Before(const Candidate& a, const Candidate& b) {
    return a.token_id < b.token_id;
  }
};

__global__ void FindMaxKernel(DrawArrays a) {
  BeginGrid();
  const DrawJob job = DrawJobOf(a, blockIdx.y);
  if (blockIdx.x == 0 && threadIdx.x == 0 && !job.is_score) a.drawn[job.index] = DrawnToken();
  if (job.kind == DrawKind::kNothing) return;
  auto* const logits = reinterpret_cast<float*>(SharedMemory());          // [kPartFloats]
  auto* const best = reinterpret_cast<Candidate*>(logits + kPartFloats);  // [kDrawThreads]
  const int thread = static_cast<int>(threadIdx.x);
  if (blockIdx.x == 0) {  // for the next kernels
    for (int b = thread; b < kDrawBuckets; b += kDrawThreads) {
      a.histograms[static_cast<int64_t>(job.index) * kDrawBuckets + b] = 0;
    }
    if (thread == 0) a.num_candidates[job.index] = 0;
  }
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kDrawPart;
  const int n = static_cast<int>(Min(kDrawPart, a.vocab - begin));
  LoadLogits(a, job, begin, n, logits);
  Candidate mine = {kLowestLogit, INT_MAX};
  for (int i = thread; i < n; i += kDrawThreads) {
    if (logits[PartIndex(i)] > mine.value)
      mine = {logits[PartIndex(i)], static_cast<int32_t>(begin + i)};
  }
  best[thread] = mine;
  for (int half = kDrawThreads / 2; half > 0; half /= 2) {
    SyncBlock();
    if (thread < half && ByValue::Before(best[thread + half], best[thread])) {
      best[thread] = best[thread + half];
    }
  }
  if (thread == 0) a.maxima[job.index * PartsOf(a.vocab) + blockIdx.x] = best[0];
}

// The sums of a part's blocks, by one warp, a lane of a block each.
__device__ void SumBlocks(const float* weights, int n, double* lanes, double* sums) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kWarp) return;
  const int block = thread / kLanes, lane = thread % kLanes;
  const float* const from = weights + block * (kSumBlock + kBlockPadding);
  const int size = static_cast<int>(Max(0, Min(kSumBlock, n - block * kSumBlock)));
  const int in_fours = size / kLanes * kLanes;
  double sum = 0;
  for (int i = lane; i < in_fours; i += kLanes) sum += static_cast<double>(from[i]);
  if (lane == 0) {
    for (int i = in_fours; i < size; ++i) sum += static_cast<double>(from[i]);
  }
  lanes[thread] = sum;
  SyncWarp();
  if (lane == 0 && size > 0) {
    sums[block] = (lanes[thread] + lanes[thread + 1]) + (lanes[thread + 2] + lanes[thread + 3]);
  }
}

__global__ void WeighKernel(DrawArrays a) {
  BeginGrid();
  const DrawJob job = DrawJobOf(a, blockIdx.y);
  const bool is_summed = IsSummed(job.kind), is_counted = IsCounted(job.kind, job.draw);
  if (!is_summed && !is_counted) return;
  const float max = MaxOf(a, job).value;
  if (max == kLowestLogit) return;
  auto* const histogram = reinterpret_cast<uint64_t*>(SharedMemory());      // [kDrawBuckets]
  auto* const lanes = reinterpret_cast<double*>(histogram + kDrawBuckets);  // [kWarp]
  auto* const values = reinterpret_cast<float*>(lanes + kWarp);             // [kPartFloats]
  const int thread = static_cast<int>(threadIdx.x);
  for (int b = thread; b < kDrawBuckets; b += kDrawThreads) histogram[b] = 0;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kDrawPart;
  const int n = static_cast<int>(Min(kDrawPart, a.vocab - begin));
  LoadLogits(a, job, begin, n, values);
  for (int i = thread; i < n; i += kDrawThreads) {
    const float logit = values[PartIndex(i)];
    const float weight = is_summed ? ExactExp((logit - max) / job.temperature) : 0;
    // What is in the last bucket, the most by far, need not be known: without it all are wanted.
    const int bucket = is_counted ? BucketOf(DistanceOf(job, logit, max)) : kDrawBuckets - 1;
    if (bucket < kDrawBuckets - 1) {
      if (job.kind == DrawKind::kTopP) {
        const auto mass = static_cast<uint64_t>(static_cast<double>(weight) * kMassUnit);
        if (mass > 0) AtomicAdd(&histogram[bucket], mass);
      } else {  // the low half, which holds a part's count
        AtomicAdd(reinterpret_cast<uint32_t*>(&histogram[bucket]), 1u);
      }
    }
    values[PartIndex(i)] = weight;
  }
  SyncBlock();
  if (is_counted) {
    uint64_t* const all = a.histograms + static_cast<int64_t>(job.index) * kDrawBuckets;
    for (int b = thread; b < kDrawBuckets; b += kDrawThreads) {
      if (histogram[b] > 0) AtomicAdd(&all[b], histogram[b]);
    }
  }
  if (is_summed) {
    SumBlocks(values, n, lanes,
              a.block_sums + job.index * BlocksOf(a.vocab) +
                  static_cast<int64_t>(blockIdx.x) * kBlocksOfPart);
  }
}

// How much a histogram must hold for what is wanted to be in it. Thread 0 knows.
__device__ uint64_t NeededOf(const DrawArrays& a, const DrawJob& job, double* sums) {
  if (job.kind == DrawKind::kTopK) return static_cast<uint64_t>(job.draw.top_k);
  if (job.kind == DrawKind::kScore) return static_cast<uint64_t>(job.draw.num_alternatives);
  const double enough = static_cast<double>(job.draw.top_p) * TotalOf(a, job, sums);
  // The histogram's weights are rounded down; a sum of some other order may be a little less.
  return static_cast<uint64_t>(enough * (1 + 0x1p-30) * kMassUnit) + 1;
}

// The last bucket of those that hold `needed`; all if they do not. `histogram` [kDrawBuckets] and
// `scan` [kDrawThreads + 1] are shared, the former filled. Ends with a barrier.
__device__ int CutOf(const uint64_t* histogram, uint64_t* scan, uint64_t needed_by_thread_0) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) scan[kDrawThreads] = needed_by_thread_0;
  const uint64_t own = histogram[2 * thread] + histogram[2 * thread + 1];
  scan[thread] = own;
  SyncBlock();
  const uint64_t needed = scan[kDrawThreads];
  for (int step = 1; step < kDrawThreads; step *= 2) {
    const uint64_t before = thread >= step ? scan[thread - step] : 0;
    SyncBlock();
    scan[thread] += before;
    SyncBlock();
  }
  const uint64_t to = scan[thread], from = to - own, all = scan[kDrawThreads - 1];
  SyncBlock();
  if (from < needed && needed <= to) {
    scan[0] =
        static_cast<uint64_t>(from + histogram[2 * thread] >= needed ? 2 * thread : 2 * thread + 1);
  } else if (thread == 0 && all < needed) {
    scan[0] = kDrawBuckets - 1;
  }
  SyncBlock();
  return static_cast<int>(scan[0]);
}

__global__ void GatherKernel(DrawArrays a) {
  BeginGrid();
  const DrawJob job = DrawJobOf(a, blockIdx.y);
  if (!IsGathered(job.kind, job.draw)) return;
  const float max = MaxOf(a, job).value;
  if (max == kLowestLogit) return;
  const int thread = static_cast<int>(threadIdx.x);
  auto* const values = reinterpret_cast<float*>(SharedMemory());  // [kPartFloats]
  int cut = kDrawBuckets - 1;
  if (job.kind != DrawKind::kMinP) {  // in the memory of the values
    auto* const histogram = reinterpret_cast<uint64_t*>(SharedMemory());    // [kDrawBuckets]
    uint64_t* const scan = histogram + kDrawBuckets;                        // [kDrawThreads + 1]
    auto* const sums = reinterpret_cast<double*>(scan + kDrawThreads + 1);  // [blocks]
    const uint64_t* const all = a.histograms + static_cast<int64_t>(job.index) * kDrawBuckets;
    for (int b = thread; b < kDrawBuckets; b += kDrawThreads) histogram[b] = all[b];
    SyncBlock();
    cut = CutOf(histogram, scan, NeededOf(a, job, sums));
    SyncBlock();
    // Weights of two neighbouring buckets may be equal, and then the lower id is first.
    if (job.kind == DrawKind::kTopP) ++cut;
  }
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kDrawPart;
  const int n = static_cast<int>(Min(kDrawPart, a.vocab - begin));
  LoadLogits(a, job, begin, n, values);
  const bool of_weights = job.kind == DrawKind::kMinP || job.kind == DrawKind::kTopP;
  const float floor = job.kind == DrawKind::kMinP ? job.draw.min_p : 0;
  uint32_t kept = 0, num_kept = 0;  // of this thread's elements: which, how many
  for (int i = thread, bit = 0; i < n; i += kDrawThreads, ++bit) {
    const float logit = values[PartIndex(i)];
    if (!(logit > kLowestLogit)) continue;
    if (BucketOf(DistanceOf(job, logit, max)) > cut) continue;
    if (of_weights) {
      const float weight = ExactExp((logit - max) / job.temperature);
      if (!(weight >= floor) || !(weight > 0)) continue;
      values[PartIndex(i)] = weight;
    }
    kept |= uint32_t{1} << bit;
    ++num_kept;
  }
  auto* const place = reinterpret_cast<uint32_t*>(values + kPartFloats);  // [2]
  if (thread == 0) place[0] = 0;
  SyncBlock();
  const uint32_t before = AtomicAdd(&place[0], num_kept);
  SyncBlock();
  if (thread == 0) place[1] = AtomicAdd(&a.num_candidates[job.index], place[0]);
  SyncBlock();
  Candidate* const to = a.candidates + static_cast<int64_t>(job.index) * kMaxCandidates;
  uint32_t slot = place[1] + before;
  for (int i = thread, bit = 0; i < n && slot < kMaxCandidates; i += kDrawThreads, ++bit) {
    if ((kept >> bit & 1u) == 0) continue;
    to[slot++] = {values[PartIndex(i)], static_cast<int32_t>(begin + i)};
  }
}

// Behind all candidates, in both orders.
__device__ inline Candidate NoCandidate() { return {kLowestLogit, INT_MAX}; }
__device__ inline bool IsCandidate(const Candidate& c) { return c.token_id != INT_MAX; }

// Sorts a power of two by a bitonic network. Begins and ends with a barrier.
template <typename Order>
__device__ void Sort(Candidate* list, int size) {
  SyncBlock();
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kDrawThreads) {
        const int other = i ^ distance;
        if (other < i) continue;
        const bool ascends = (i & run) == 0;
        const Candidate a = list[i], b = list[other];
        if (ascends ? Order::Before(b, a) : Order::Before(a, b)) {
          list[i] = b;
          list[other] = a;
        }
      }
      SyncBlock();
    }
  }
}

// One by one, as they lie. For one thread.
__device__ double SumOf(const Candidate* list, int size) {
  double sum = 0;
  for (int i = 0; i < size && IsCandidate(list[i]); ++i) sum += static_cast<double>(list[i].value);
  return sum;
}

// Keeps of a list by value the shortest run whose sum reaches top_p of thread 0's total. `end`:
// shared. Ends with a barrier.
__device__ void KeepTopP(Candidate* list, int size, float top_p, double total, int* end) {
  if (threadIdx.x == 0) {
    const double enough = static_cast<double>(top_p) * total;
    double sum = 0;
    int n = 0;
    while (n < size && IsCandidate(list[n]) && sum < enough) {
      sum += static_cast<double>(list[n++].value);
    }
    *end = n > 0 ? n : 1;
  }
  SyncBlock();
  for (int i = *end + static_cast<int>(threadIdx.x); i < size; i += kDrawThreads) {
    list[i] = NoCandidate();
  }
  SyncBlock();
}

// What Choose has of shared memory.
struct Room {
  Candidate* list;  // [kMaxCandidates]
  double* sums;     // [blocks]
  float* weights;   // [kSumBlock + kBlockPadding]
  int* number;
};

// Loads the job's candidates, filled up to a power of two, which is returned; 0 where there are
// none or too many.
__device__ int LoadCandidates(const DrawArrays& a, const DrawJob& job, Candidate* list) {
  const uint32_t n = a.num_candidates[job.index];
  if (n == 0 || n > kMaxCandidates) return 0;
  int size = 2;
  while (size < static_cast<int>(n)) size *= 2;
  const Candidate* const from = a.candidates + static_cast<int64_t>(job.index) * kMaxCandidates;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kDrawThreads) {
    list[i] = i < static_cast<int>(n) ? from[i] : NoCandidate();
  }
  return size;
}

// The token that a filtered job draws, -1 for the host; thread 0 knows.
__device__ int32_t DrawFromCandidates(const DrawArrays& a, const DrawJob& job, float max,
                                      const Room& room) {
  const TokenDraw& draw = job.draw;
  Candidate* const list = room.list;
  const int thread = static_cast<int>(threadIdx.x);
  const int size = LoadCandidates(a, job, list);
  if (size == 0) return -1;
  const bool has_top_p = draw.top_p < 1;
  if (job.kind == DrawKind::kTopK) {
    Sort<ByValue>(list, size);
    for (int i = thread; i < size; i += kDrawThreads) {
      const float weight =
          IsCandidate(list[i]) ? ExactExp((list[i].value - max) / draw.temperature) : 0;
      const bool kept = i < draw.top_k && weight >= draw.min_p && weight > 0;
      list[i] = kept ? Candidate{weight, list[i].token_id} : NoCandidate();
    }
    if (has_top_p) {
      Sort<ByValue>(list, size);
      KeepTopP(list, size, draw.top_p, thread == 0 ? SumOf(list, size) : 0, room.number);
    }
  } else if (job.kind == DrawKind::kMinP && has_top_p) {
    Sort<ById>(list, size);
    const double total = thread == 0 ? SumOf(list, size) : 0;
    Sort<ByValue>(list, size);
    KeepTopP(list, size, draw.top_p, total, room.number);
  } else if (job.kind == DrawKind::kTopP) {
    const double total = TotalOf(a, job, room.sums);
    Sort<ByValue>(list, size);
    KeepTopP(list, size, draw.top_p, total, room.number);
  }
  Sort<ById>(list, size);
  if (thread != 0) return -1;
  const double target = draw.uniform * SumOf(list, size);
  double sum = 0;
  int32_t last = -1;
  for (int i = 0; i < size && IsCandidate(list[i]); ++i) {
    sum += static_cast<double>(list[i].value);
    last = list[i].token_id;
    if (sum > target) break;
  }
  return last;
}

// The token that a job without filters draws; thread 0 knows.
__device__ int32_t DrawFromAll(const DrawArrays& a, const DrawJob& job, float max,
                               const Room& room) {
  const int blocks = static_cast<int>(BlocksOf(a.vocab)), thread = static_cast<int>(threadIdx.x);
  const double target = job.draw.uniform * TotalOf(a, job, room.sums);
  double before = 0;
  if (thread == 0) {
    int block = 0;
    for (; block < blocks && !(before + room.sums[block] > target); ++block) {
      before += room.sums[block];
    }
    *room.number = block;
  }
  SyncBlock();
  if (*room.number == blocks) return 0;
  const int64_t begin = static_cast<int64_t>(*room.number) * kSumBlock;
  const int n = static_cast<int>(Min(kSumBlock, a.vocab - begin));
  LoadLogits(a, job, begin, n, room.weights);
  for (int i = thread; i < n; i += kDrawThreads) {
    room.weights[i] = ExactExp((room.weights[i] - max) / job.temperature);
  }
  SyncBlock();
  int64_t last = 0;
  if (thread == 0) {
    double sum = before;
    for (int i = 0; i < n && !(sum > target); ++i) {
      if (!(room.weights[i] > 0)) continue;
      sum += static_cast<double>(room.weights[i]);
      last = begin + i;
    }
  }
  return static_cast<int32_t>(last);
}

// Where there is no logit to go by.
__device__ int32_t FirstAllowed(const DrawArrays& a, const TokenDraw& draw) {
  if (draw.mask < 0) return 0;
  const int64_t words = (a.vocab + 31) / 32;
  const uint32_t* const mask = a.masks + draw.mask * words;
  int64_t id = 0;
  while (id < a.vocab && mask[id / 32] == 0) id += 32;
  for (; id < a.vocab; ++id) {
    if ((mask[id / 32] >> (id % 32) & 1u) != 0) return static_cast<int32_t>(id);
  }
  return 0;
}

__device__ void Score(const DrawArrays& a, const DrawJob& job, const Room& room,
                      DrawnToken& drawn) {
  const int thread = static_cast<int>(threadIdx.x), wanted = job.draw.num_alternatives;
  const float max = MaxOf(a, job).value;
  if (max == kLowestLogit) {
    if (thread == 0) {
      drawn.max_logit = max;
      drawn.sum = 0;
      drawn.num_alternatives = 0;
    }
    return;
  }
  const double sum = TotalOf(a, job, room.sums);
  const int size = wanted > 0 ? LoadCandidates(a, job, room.list) : 0;
  if (size > 0) Sort<ByValue>(room.list, size);
  if (thread != 0) return;
  drawn.max_logit = max;
  drawn.sum = sum;
  int n = 0;
  for (; n < size && n < wanted && IsCandidate(room.list[n]); ++n) {
    drawn.alternatives[n] = {room.list[n].token_id, room.list[n].value};
  }
  drawn.num_alternatives = wanted > 0 && size == 0 ? -1 : n;
}

__global__ void ChooseKernel(DrawArrays a) {
  BeginGrid();
  const DrawJob job = DrawJobOf(a, blockIdx.x);
  Room room;
  room.sums = reinterpret_cast<double*>(SharedMemory());
  room.list = reinterpret_cast<Candidate*>(room.sums + BlocksOf(a.vocab));
  room.weights = reinterpret_cast<float*>(room.list + kMaxCandidates);
  room.number = reinterpret_cast<int*>(room.weights + kSumBlock + kBlockPadding);
  DrawnToken& drawn = a.drawn[job.index % a.num_draws];
  if (job.kind == DrawKind::kScore) {
    Score(a, job, room, drawn);
    return;
  }
  if (job.is_score) return;
  int32_t token = job.draw.target;
  if (job.kind != DrawKind::kNothing) {
    const Candidate max = MaxOf(a, job);
    if (max.value == kLowestLogit) {
      if (threadIdx.x == 0) token = FirstAllowed(a, job.draw);
    } else if (job.kind == DrawKind::kGreedy) {
      token = max.token_id;
    } else if (job.kind == DrawKind::kAll) {
      token = DrawFromAll(a, job, max.value, room);
    } else {
      token = DrawFromCandidates(a, job, max.value, room);
    }
  }
  if (threadIdx.x != 0) return;
  a.tokens[job.index] = token;
  drawn.token_id = token;
  drawn.logit = token < 0 ? 0 : Ordinary(job.logits[token]);
}

__global__ void TakeTokensKernel(int32_t* ids, int64_t n, const int32_t* tokens,
                                 int64_t num_tokens) {
  BeginGrid();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kDrawThreads + threadIdx.x;
  if (i >= n || ids[i] >= 0) return;
  const int64_t sample = -1 - static_cast<int64_t>(ids[i]);
  const int32_t token = sample < num_tokens ? tokens[sample] : 0;
  ids[i] = token < 0 ? 0 : token;
}

}  // namespace

cudaError_t TakeTokens(int32_t* ids, int64_t n, const int32_t* tokens, int64_t num_tokens,
                       cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((n + kDrawThreads - 1) / kDrawThreads);
  return Launch("TakeTokens", TakeTokensKernel, blocks, kDrawThreads, 0, stream, ids, n, tokens,
                num_tokens);
}

cudaError_t DrawTokens(const DrawArrays& arrays, std::span<const TokenDraw> host,
                       cudaStream_t stream) {
  bool is_weighed = false, is_gathered = false, has_scores = false;
  for (const TokenDraw& draw : host) {
    for (const bool is_score : {false, true}) {
      const DrawKind kind = DrawKindOf(draw, is_score, arrays.vocab);
      is_weighed = is_weighed || IsSummed(kind) || IsCounted(kind, draw);
      is_gathered = is_gathered || IsGathered(kind, draw);
      has_scores = has_scores || kind == DrawKind::kScore;
    }
  }
  const auto jobs = static_cast<unsigned>(host.size()) * (has_scores ? 2 : 1);
  const dim3 grid(static_cast<unsigned>(PartsOf(arrays.vocab)), jobs);
  constexpr size_t kPart = kPartFloats * sizeof(float);
  cudaError_t error = Launch("FindMax", FindMaxKernel, grid, kDrawThreads,
                             kPart + kDrawThreads * sizeof(Candidate), stream, arrays);
  if (error == cudaSuccess && is_weighed) {
    error =
        Launch("Weigh", WeighKernel, grid, kDrawThreads,
               kPart + kDrawBuckets * sizeof(uint64_t) + kWarp * sizeof(double), stream, arrays);
  }
  if (error == cudaSuccess && is_gathered) {
    error = Launch("Gather", GatherKernel, grid, kDrawThreads, kPart + 2 * sizeof(uint32_t), stream,
                   arrays);
  }
  if (error != cudaSuccess) return error;
  const size_t room = static_cast<size_t>(BlocksOf(arrays.vocab)) * sizeof(double) +
                      kMaxCandidates * sizeof(Candidate) +
                      (kSumBlock + kBlockPadding) * sizeof(float) + sizeof(int);
  return Launch("Choose", ChooseKernel, jobs, kDrawThreads, room, stream, arrays);
}

}  // namespace continuo::kernels::cuda
