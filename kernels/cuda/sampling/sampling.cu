// SPDX-License-Identifier: Apache-2.0
// A batch of requests takes up to four kernels. A grid's y is a job: a request, or the score of
// one. Its x is a part of the vocabulary. Each kernel computes the logits of its part after mask,
// bias and penalties anew in shared memory, since reading them once more from the L2 cache is
// cheaper than writing them. FindMax keeps them in registers where there are no biases or
// penalties.
//
//   FindMax  finds each part's largest logit
//   Weigh    sums weights by blocks; counts how many logits, or what weight, lie how far below it
//   Gather   collects the logits or weights that a filter can keep
//   Choose   filters and samples, one block per job
//
// Sums that decide bits are taken by one thread each in the order of kernels/sampling.h.
#include "kernels/cuda/sampling/sampling.h"

#include <climits>

#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/sampling/sample_job.h"
#include "kernels/math/exact_math.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kLanes = 4;                                       // lanes of a block's sum
constexpr float kFine = 16, kFineSteps = 16, kCoarseSteps = 4;  // bucket widths
// A histogram of weights counts in units of 2^-38, rounded down. A part sums each half of a
// weight's bits in 32 bits, since shared memory adds no 64 bits at once.
constexpr int kHalfBits = 19;
constexpr float kHalf = 1 << kHalfBits;
constexpr double kMassUnit = double{kHalf} * kHalf;
constexpr float kBelowOne = 1 - 0x1p-24f;
static_assert(int64_t{kVocabularyPart} << kHalfBits <= int64_t{1} << 32);
static_assert(kBlocksOfPart * kLanes == kWarp && kVocabularyPart / kSampleThreads <= 32);
static_assert(kBuckets == 2 * kSampleThreads);

// Returns how far a logit is below the largest: in temperatures for filters by weight and for the
// score, as it is for top_k.
__device__ inline float DistanceOf(const SampleJob& job, float logit, float max) {
  return job.kind == SampleKind::kTopK ? max - logit : (max - logit) / job.temperature;
}
// Returns the bucket of a distance: in sixteenths up to 16, in quarters from there on. The last
// bucket has all that is further away. Equal logits have equal buckets, and a smaller logit never
// has a smaller one.
__device__ inline int BucketOf(float distance) {
  const float steps = distance < kFine ? distance * kFineSteps
                                       : kFine * kFineSteps + (distance - kFine) * kCoarseSteps;
  return steps < kBuckets - 1 ? static_cast<int>(steps) : kBuckets - 1;
}

// Orders larger values first, of equal ones the lower id.
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

__global__ void CONTINUO_BLOCKS_OF(kSampleThreads, 4) FindMaxKernel(SampleArrays a) {
  WaitForPreviousKernel();
  const SampleJob job = SampleJobOf(a, blockIdx.y);
  if (blockIdx.x == 0 && threadIdx.x == 0 && !job.is_score) a.sampled[job.index] = SampledToken();
  if (job.kind == SampleKind::kNothing) return;
  auto* const logits = reinterpret_cast<float*>(SharedMemory());          // [kPartFloats]
  auto* const best = reinterpret_cast<Candidate*>(logits + kPartFloats);  // [kSampleThreads]
  const int thread = static_cast<int>(threadIdx.x);
  if (blockIdx.x == 0) {  // the next kernels count in these
    for (int b = thread; b < kBuckets; b += kSampleThreads) {
      a.histograms[static_cast<int64_t>(job.index) * kBuckets + b] = 0;
    }
    if (thread == 0) a.num_candidates[job.index] = 0;
  }
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kVocabularyPart;
  const int n = static_cast<int>(Min(kVocabularyPart, a.vocab - begin));
  Candidate mine = {kLowestLogit, INT_MAX};
  const auto take = [&](int i, float logit) {
    if (logit > mine.value) mine = {logit, static_cast<int32_t>(begin + i)};
  };
  if (HasLists(job)) {
    LoadLogits(a, job, begin, n, logits);
    for (int i = thread; i < n; i += kSampleThreads) take(i, logits[PartIndex(i)]);
  } else {
    ReadLogits(a, job, begin, n, [&](int i, const auto& chunk) {
      CONTINUO_UNROLL
      for (int j = 0; j < static_cast<int>(sizeof(chunk) / sizeof(float)); ++j)
        take(i + j, chunk.at[j]);
    });
  }
  best[thread] = mine;
  for (int half = kSampleThreads / 2; half > 0; half /= 2) {
    SyncBlock();
    if (thread < half && ByValue::Before(best[thread + half], best[thread])) {
      best[thread] = best[thread + half];
    }
  }
  if (thread == 0) a.maxima[job.index * PartsOf(a.vocab) + blockIdx.x] = best[0];
}

// One warp sums the blocks of a part; each lane sums one lane of a block.
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

__global__ void WeighKernel(SampleArrays a) {
  WaitForPreviousKernel();
  const SampleJob job = SampleJobOf(a, blockIdx.y);
  const bool is_summed = IsSummed(job.kind), is_counted = IsCounted(job.kind, job.request);
  if (!is_summed && !is_counted) return;
  const float max = MaxOf(a, job).value;
  if (max == kLowestLogit) return;
  auto* const lanes = reinterpret_cast<double*>(SharedMemory());  // [kWarp]
  auto* const values = reinterpret_cast<float*>(lanes + kWarp);   // [kPartFloats]
  // Counts, or halves of weights: [kBuckets] each.
  auto* const low = reinterpret_cast<uint32_t*>(values + kPartFloats);
  uint32_t* const high = low + kBuckets;
  const int thread = static_cast<int>(threadIdx.x);
  for (int b = thread; b < 2 * kBuckets; b += kSampleThreads) low[b] = 0;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kVocabularyPart;
  const int n = static_cast<int>(Min(kVocabularyPart, a.vocab - begin));
  LoadLogits(a, job, begin, n, values);
  for (int i = thread; i < n; i += kSampleThreads) {
    const float logit = values[PartIndex(i)];
    const float weight = is_summed ? ExactExp((logit - max) / job.temperature) : 0;
    // The last bucket has by far the most, and need not be counted: if its content is needed,
    // everything is.
    const int bucket = is_counted ? BucketOf(DistanceOf(job, logit, max)) : kBuckets - 1;
    if (bucket < kBuckets - 1) {
      if (job.kind == SampleKind::kTopP) {
        const float halves = fminf(weight, kBelowOne) * kHalf;
        const auto first = static_cast<uint32_t>(halves);
        const auto second = static_cast<uint32_t>((halves - static_cast<float>(first)) * kHalf);
        if (first > 0) AtomicAdd(&high[bucket], first);
        if (second > 0) AtomicAdd(&low[bucket], second);
      } else {
        AtomicAdd(&low[bucket], 1u);
      }
    }
    values[PartIndex(i)] = weight;
  }
  SyncBlock();
  if (is_counted) {
    uint64_t* const all = a.histograms + static_cast<int64_t>(job.index) * kBuckets;
    for (int b = thread; b < kBuckets; b += kSampleThreads) {
      const uint64_t sum = (uint64_t{high[b]} << kHalfBits) + low[b];
      if (sum > 0) AtomicAdd(&all[b], sum);
    }
  }
  if (is_summed) {
    SumBlocks(values, n, lanes,
              a.block_sums + job.index * BlocksOf(a.vocab) +
                  static_cast<int64_t>(blockIdx.x) * kBlocksOfPart);
  }
}

// Returns how much a histogram has to hold so that the wanted tokens are in it. Thread 0 knows.
__device__ uint64_t NeededOf(const SampleArrays& a, const SampleJob& job, double* sums) {
  if (job.kind == SampleKind::kTopK) return static_cast<uint64_t>(job.request.top_k);
  if (job.kind == SampleKind::kScore) return static_cast<uint64_t>(job.request.num_alternatives);
  const double enough = static_cast<double>(job.request.top_p) * TotalOf(a, job, sums);
  // The histogram's weights are rounded down, and a sum in another order may be a little less.
  return static_cast<uint64_t>(enough * (1 + 0x1p-30) * kMassUnit) + 1;
}

// Returns the last of the first buckets that hold `needed` together, or the last bucket if they do
// not. `histogram` [kBuckets], which is filled, and `scan` [kSampleThreads + 1] are shared. Ends
// with a barrier.
__device__ int CutOf(const uint64_t* histogram, uint64_t* scan, uint64_t needed_by_thread_0) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) scan[kSampleThreads] = needed_by_thread_0;
  const uint64_t own = histogram[2 * thread] + histogram[2 * thread + 1];
  scan[thread] = own;
  SyncBlock();
  const uint64_t needed = scan[kSampleThreads];
  for (int step = 1; step < kSampleThreads; step *= 2) {
    const uint64_t before = thread >= step ? scan[thread - step] : 0;
    SyncBlock();
    scan[thread] += before;
    SyncBlock();
  }
  const uint64_t to = scan[thread], from = to - own, all = scan[kSampleThreads - 1];
  SyncBlock();
  if (from < needed && needed <= to) {
    scan[0] =
        static_cast<uint64_t>(from + histogram[2 * thread] >= needed ? 2 * thread : 2 * thread + 1);
  } else if (thread == 0 && all < needed) {
    scan[0] = kBuckets - 1;
  }
  SyncBlock();
  return static_cast<int>(scan[0]);
}

__global__ void GatherKernel(SampleArrays a) {
  WaitForPreviousKernel();
  const SampleJob job = SampleJobOf(a, blockIdx.y);
  if (!IsGathered(job.kind, job.request)) return;
  const float max = MaxOf(a, job).value;
  if (max == kLowestLogit) return;
  const int thread = static_cast<int>(threadIdx.x);
  auto* const values = reinterpret_cast<float*>(SharedMemory());  // [kPartFloats]
  int cut = kBuckets - 1;
  if (job.kind != SampleKind::kMinP) {  // this uses the memory of `values`
    auto* const histogram = reinterpret_cast<uint64_t*>(SharedMemory());  // [kBuckets]
    uint64_t* const scan = histogram + kBuckets;                          // [kSampleThreads + 1]
    auto* const sums = reinterpret_cast<double*>(scan + kSampleThreads + 1);  // [blocks]
    const uint64_t* const all = a.histograms + static_cast<int64_t>(job.index) * kBuckets;
    for (int b = thread; b < kBuckets; b += kSampleThreads) histogram[b] = all[b];
    SyncBlock();
    cut = CutOf(histogram, scan, NeededOf(a, job, sums));
    SyncBlock();
    // Weights of two neighbouring buckets may be equal, and then the lower id comes first.
    if (job.kind == SampleKind::kTopP) ++cut;
  }
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kVocabularyPart;
  const int n = static_cast<int>(Min(kVocabularyPart, a.vocab - begin));
  LoadLogits(a, job, begin, n, values);
  const bool of_weights = job.kind == SampleKind::kMinP || job.kind == SampleKind::kTopP;
  const float floor = job.kind == SampleKind::kMinP ? job.request.min_p : 0;
  uint32_t kept = 0, num_kept = 0;  // which of this thread's elements are kept, and how many
  for (int i = thread, bit = 0; i < n; i += kSampleThreads, ++bit) {
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
  for (int i = thread, bit = 0; i < n && slot < kMaxCandidates; i += kSampleThreads, ++bit) {
    if ((kept >> bit & 1u) == 0) continue;
    to[slot++] = {values[PartIndex(i)], static_cast<int32_t>(begin + i)};
  }
}

// An entry that sorts behind all candidates in both orders.
__device__ inline Candidate NoCandidate() { return {kLowestLogit, INT_MAX}; }
__device__ inline bool IsCandidate(const Candidate& c) { return c.token_id != INT_MAX; }

// Sorts a power of two of candidates by a bitonic network. Begins and ends with a barrier.
template <typename Order>
__device__ void Sort(Candidate* list, int size) {
  SyncBlock();
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kSampleThreads) {
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

// Sums a list one by one, in its order. One thread calls it.
__device__ double SumOf(const Candidate* list, int size) {
  double sum = 0;
  for (int i = 0; i < size && IsCandidate(list[i]); ++i) sum += static_cast<double>(list[i].value);
  return sum;
}

// Keeps the shortest run of a list, ordered by value, whose sum reaches top_p of thread 0's total.
// `end` is shared. Ends with a barrier.
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
  for (int i = *end + static_cast<int>(threadIdx.x); i < size; i += kSampleThreads) {
    list[i] = NoCandidate();
  }
  SyncBlock();
}

// The shared memory of Choose.
struct Room {
  float* weights;   // [kSumBlock + kBlockPadding]
  Candidate* list;  // [kMaxCandidates]
  double* sums;     // [blocks]
  int* number;
};

// Loads the job's candidates, filled up to a power of two, and returns that number; 0 if there are
// none or too many.
__device__ int LoadCandidates(const SampleArrays& a, const SampleJob& job, Candidate* list) {
  const uint32_t n = a.num_candidates[job.index];
  if (n == 0 || n > kMaxCandidates) return 0;
  int size = 2;
  while (size < static_cast<int>(n)) size *= 2;
  const Candidate* const from = a.candidates + static_cast<int64_t>(job.index) * kMaxCandidates;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kSampleThreads) {
    list[i] = i < static_cast<int>(n) ? from[i] : NoCandidate();
  }
  return size;
}

// Samples the token of a filtered job, -1 to leave it to the host. Thread 0 knows the result.
__device__ int32_t SampleFromCandidates(const SampleArrays& a, const SampleJob& job, float max,
                                        const Room& room) {
  const SampleRequest& request = job.request;
  Candidate* const list = room.list;
  const int thread = static_cast<int>(threadIdx.x);
  const int size = LoadCandidates(a, job, list);
  if (size == 0) return -1;
  const bool has_top_p = request.top_p < 1;
  if (job.kind == SampleKind::kTopK) {
    Sort<ByValue>(list, size);
    for (int i = thread; i < size; i += kSampleThreads) {
      const float weight =
          IsCandidate(list[i]) ? ExactExp((list[i].value - max) / request.temperature) : 0;
      const bool kept = i < request.top_k && weight >= request.min_p && weight > 0;
      list[i] = kept ? Candidate{weight, list[i].token_id} : NoCandidate();
    }
    if (has_top_p) {
      Sort<ByValue>(list, size);
      KeepTopP(list, size, request.top_p, thread == 0 ? SumOf(list, size) : 0, room.number);
    }
  } else if (job.kind == SampleKind::kMinP && has_top_p) {
    Sort<ById>(list, size);
    const double total = thread == 0 ? SumOf(list, size) : 0;
    Sort<ByValue>(list, size);
    KeepTopP(list, size, request.top_p, total, room.number);
  } else if (job.kind == SampleKind::kTopP) {
    const double total = TotalOf(a, job, room.sums);
    Sort<ByValue>(list, size);
    KeepTopP(list, size, request.top_p, total, room.number);
  }
  Sort<ById>(list, size);
  if (thread != 0) return -1;
  const double target = request.uniform * SumOf(list, size);
  double sum = 0;
  int32_t last = -1;
  for (int i = 0; i < size && IsCandidate(list[i]); ++i) {
    sum += static_cast<double>(list[i].value);
    last = list[i].token_id;
    if (sum > target) break;
  }
  return last;
}

// Samples the token of a job without filters. Thread 0 knows the result.
__device__ int32_t SampleFromAll(const SampleArrays& a, const SampleJob& job, float max,
                                 const Room& room) {
  const int blocks = static_cast<int>(BlocksOf(a.vocab)), thread = static_cast<int>(threadIdx.x);
  const double target = job.request.uniform * TotalOf(a, job, room.sums);
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
  for (int i = thread; i < n; i += kSampleThreads) {
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

// Returns the token where all logits are -infinity.
__device__ int32_t FirstAllowed(const SampleArrays& a, const SampleRequest& request) {
  if (request.mask < 0) return 0;
  const int64_t words = (a.vocab + 31) / 32;
  const uint32_t* const mask = a.masks + request.mask * words;
  int64_t id = 0;
  while (id < a.vocab && mask[id / 32] == 0) id += 32;
  for (; id < a.vocab; ++id) {
    if ((mask[id / 32] >> (id % 32) & 1u) != 0) return static_cast<int32_t>(id);
  }
  return 0;
}

__device__ void Score(const SampleArrays& a, const SampleJob& job, const Room& room,
                      SampledToken& sampled) {
  const int thread = static_cast<int>(threadIdx.x), wanted = job.request.num_alternatives;
  const float max = MaxOf(a, job).value;
  if (max == kLowestLogit) {
    if (thread == 0) {
      sampled.max_logit = max;
      sampled.sum = 0;
      sampled.num_alternatives = 0;
    }
    return;
  }
  const double sum = TotalOf(a, job, room.sums);
  const int size = wanted > 0 ? LoadCandidates(a, job, room.list) : 0;
  if (size > 0) Sort<ByValue>(room.list, size);
  if (thread != 0) return;
  sampled.max_logit = max;
  sampled.sum = sum;
  int n = 0;
  for (; n < size && n < wanted && IsCandidate(room.list[n]); ++n) {
    sampled.alternatives[n] = {room.list[n].token_id, room.list[n].value};
  }
  sampled.num_alternatives = wanted > 0 && size == 0 ? -1 : n;
}

__global__ void ChooseKernel(SampleArrays a) {
  WaitForPreviousKernel();
  const SampleJob job = SampleJobOf(a, blockIdx.x);
  Room room;
  room.weights = reinterpret_cast<float*>(SharedMemory());
  room.list = reinterpret_cast<Candidate*>(room.weights + kSumBlock + kBlockPadding);
  room.sums = reinterpret_cast<double*>(room.list + kMaxCandidates);
  room.number = reinterpret_cast<int*>(room.sums + BlocksOf(a.vocab));
  SampledToken& sampled = a.sampled[job.index % a.num_requests];
  if (job.kind == SampleKind::kScore) {
    Score(a, job, room, sampled);
    return;
  }
  if (job.is_score) return;
  int32_t token = job.request.target;
  if (job.kind != SampleKind::kNothing) {
    const Candidate max = MaxOf(a, job);
    if (max.value == kLowestLogit) {
      if (threadIdx.x == 0) token = FirstAllowed(a, job.request);
    } else if (job.kind == SampleKind::kGreedy) {
      token = max.token_id;
    } else if (job.kind == SampleKind::kAll) {
      token = SampleFromAll(a, job, max.value, room);
    } else {
      token = SampleFromCandidates(a, job, max.value, room);
    }
  }
  if (threadIdx.x != 0) return;
  a.tokens[job.index] = token;
  sampled.token_id = token;
  sampled.logit = token < 0 ? 0 : Ordinary(job.logits[token]);
}

__global__ void ResolveSampledIdsKernel(int32_t* ids, int64_t n, const int32_t* tokens,
                                        int64_t num_tokens) {
  WaitForPreviousKernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSampleThreads + threadIdx.x;
  if (i >= n || ids[i] >= 0) return;
  const int64_t sample = -1 - static_cast<int64_t>(ids[i]);
  const int32_t token = sample < num_tokens ? tokens[sample] : 0;
  ids[i] = token < 0 ? 0 : token;
}

}  // namespace

cudaError_t ResolveSampledIds(int32_t* ids, int64_t n, const int32_t* tokens, int64_t num_tokens,
                              KernelStream stream) {
  if (n == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((n + kSampleThreads - 1) / kSampleThreads);
  return Launch("ResolveSampledIds", ResolveSampledIdsKernel, blocks, kSampleThreads, 0, stream,
                ids, n, tokens, num_tokens);
}

cudaError_t SampleTokens(const SampleArrays& arrays, std::span<const SampleRequest> host,
                         KernelStream stream) {
  bool is_weighed = false, is_gathered = false, has_scores = false;
  for (const SampleRequest& request : host) {
    for (const bool is_score : {false, true}) {
      const SampleKind kind = SampleKindOf(request, is_score, arrays.vocab);
      is_weighed = is_weighed || IsSummed(kind) || IsCounted(kind, request);
      is_gathered = is_gathered || IsGathered(kind, request);
      has_scores = has_scores || kind == SampleKind::kScore;
    }
  }
  const auto jobs = static_cast<unsigned>(host.size()) * (has_scores ? 2 : 1);
  const dim3 grid(static_cast<unsigned>(PartsOf(arrays.vocab)), jobs);
  constexpr size_t kPart = kPartFloats * sizeof(float);
  cudaError_t error = Launch("FindMax", FindMaxKernel, grid, kSampleThreads,
                             kPart + kSampleThreads * sizeof(Candidate), stream, arrays);
  if (error == cudaSuccess && is_weighed) {
    error =
        Launch("Weigh", WeighKernel, grid, kSampleThreads,
               kPart + 2 * kBuckets * sizeof(uint32_t) + kWarp * sizeof(double), stream, arrays);
  }
  if (error == cudaSuccess && is_gathered) {
    error = Launch("Gather", GatherKernel, grid, kSampleThreads, kPart + 2 * sizeof(uint32_t),
                   stream, arrays);
  }
  if (error != cudaSuccess) return error;
  const size_t room = static_cast<size_t>(BlocksOf(arrays.vocab)) * sizeof(double) +
                      kMaxCandidates * sizeof(Candidate) +
                      (kSumBlock + kBlockPadding) * sizeof(float) + sizeof(int);
  return Launch("Choose", ChooseKernel, jobs, kSampleThreads, room, stream, arrays);
}

}  // namespace continuo::kernels::cuda
