// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/attention/decode_share.h"
#include "kernels/cuda/attention/decode_tile.h"
#include "kernels/cuda/runtime/launch.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Tile, slice, share and part are defined in decode_share.h. The step is divided among as many
// blocks as the device runs at once, but not among more than leave each share kLeastShare
// positions, or than there are tiles: one more part of a tile costs about what reading 256
// positions does. Parts have kLeastPart positions unless whole shares, or tiles, have fewer.
constexpr int kLeastShare = 256, kLeastPart = kLeastShare / 2;

// The queries of a sequence and key-value head: those of heads [first_head, first_head + num).
struct Queries {
  int64_t first = 0;  // of their elements in out and q
  int num = 0;
};
__device__ Queries QueriesOf(const AttentionStep& step, const Parts& part) {
  const HeadRange heads = HeadsOf(step, part.head());
  return {((step.first_row + part.seq()) * step.num_heads + heads.begin) * step.head_dim,
          heads.size()};
}
// Returns the sinks of a part's queries, [QueriesOf().num], or null. The loop over positions leaves
// no register to keep them in.
__device__ const float* SinksOf(const AttentionStep& step, const Parts& part) {
  if (step.sinks == nullptr) return nullptr;
  return step.sinks + HeadsOf(step, ComputedAnew(part.head())).begin;
}

// The results of parts whose tile is divided among several blocks, in device memory: sums
// [2 * blocks, places, head_dim], then maxima and sums of weights, [2 * blocks, places, 2]. A block
// has number 2 * block for a part that continues a tile, and the next one for a part that begins a
// tile. `places` counts queries.
struct SharedParts {
  float* sums;
  int places, head_dim;
  uint32_t blocks;

  __device__ float* Sums(int64_t part, int query) const {
    return sums + (part * places + query) * head_dim;
  }
  __device__ float* Stats(int64_t part, int query) const {
    return sums + int64_t{2} * blocks * places * head_dim + (part * places + query) * 2;
  }
};

// Finds the sequence in which the block's share begins, by all of its threads.
struct ShareBegin {
  Shares shares;
  int seq;
  uint32_t before;  // slices of a head of all sequences before
};
template <typename S>
__device__ ShareBegin FindShare(const AttentionStep& step) {
  const int thread = static_cast<int>(threadIdx.x);
  auto* const sums = reinterpret_cast<uint32_t*>(SharedMemory());  // [kThreads]
  auto* const words = reinterpret_cast<uint32_t*>(SharedMemory() + S::kWordsAt);
  const int each = (step.num_seqs + S::kThreads - 1) / S::kThreads;
  const int first = thread * each;
  const int end = static_cast<int>(Min(first + each, step.num_seqs));
  uint32_t own = 0;
  CONTINUO_UNROLL_BY(1)
  for (int seq = first; seq < end; ++seq) own += SlicesOf(step, seq, S::kSlice).num;
  sums[thread] = own;
  SyncBlock();
  uint32_t before = 0, all = 0;
  CONTINUO_UNROLL_BY(2)
  for (int i = 0; i * each < step.num_seqs; i += 4) {
    const Chunk<uint32_t, 4> four = LoadChunk<4>(sums + i);
    CONTINUO_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (i + j < thread) before += four.at[j];
      all += four.at[j];
    }
  }
  const auto heads = static_cast<uint32_t>(step.num_kv_heads);
  const uint32_t slices = all * heads, tiles = static_cast<uint32_t>(step.num_seqs) * heads;
  if (slices == 0) return {};
  const auto wanted = static_cast<uint32_t>(Max(tiles, slices / (kLeastShare / S::kSlice)));
  ShareBegin share = {};
  share.shares = Shares(slices, static_cast<uint32_t>(Min(gridDim.x, Min(wanted, slices))),
                        kLeastPart / S::kSlice);
  if (blockIdx.x >= share.shares.blocks()) return share;
  const uint32_t begin = share.shares.Begin(blockIdx.x);
  if (begin >= before * heads && begin < (before + own) * heads) {
    int seq = first;
    while (true) {
      const uint32_t of_seq = SlicesOf(step, seq, S::kSlice).num;
      if (begin < (before + of_seq) * heads) break;
      before += of_seq;
      ++seq;
    }
    words[0] = static_cast<uint32_t>(seq);
    words[1] = before;
  }
  SyncBlock();
  share.seq = static_cast<int>(words[0]);
  share.before = words[1];
  return share;
}

// The rows of a slice that are seen: [from, until).
struct SeenRows {
  int from, until;
};
template <typename S>
__device__ SeenRows SeenIn(const SeenSlices& slices, uint32_t slice) {
  const int32_t begin = static_cast<int32_t>(slices.first + slice) * S::kSlice;
  return {slices.first_seen > begin ? slices.first_seen - begin : 0,
          slices.kv_len - begin < S::kSlice ? slices.kv_len - begin : S::kSlice};
}

// Starts a warp's copies, slice by slice of its block's share.
template <typename S>
class SliceCopies {
 public:
  __device__ SliceCopies(const KvLayout<const typename S::Element>& kv, Divisor by_block_size,
                         const AttentionStep& step, const Parts& parts, int warp)
      : step_(step),
        keys_(kv.cache),
        rows_(RowsOf(kv, by_block_size, nullptr, 0)),
        parts_(parts),
        warp_(static_cast<uint32_t>(warp)),
        in_groups_(kv.block_size % 16 == 0 && kv.head_dim == S::kDim),
        slice_(parts.end()) {}

  // Starts copying the warp's next slice, if there is one, and ends the group of copies.
  __device__ void Start(unsigned char* stage) {
    while (is_there_ && slice_ >= parts_.end()) {
      is_there_ = parts_.Next();
      slice_ = parts_.begin() + warp_;
      rows_.table = step_.block_tables + parts_.seq() * step_.max_blocks;
      const uint32_t of_head = rows_.half_bytes / sizeof(*keys_) * 2;
      rows_.keys = keys_ + of_head * static_cast<uint32_t>(parts_.head());
    }
    if (is_there_) {
      const SeenRows seen = SeenIn<S>(parts_.slices(), slice_);
      StartSlice<S>(stage, rows_, in_groups_, (parts_.slices().first + slice_) * S::kSlice,
                    seen.from, seen.until);
      slice_ += S::kWarps;
    }
    EndCopies();
  }

 private:
  const AttentionStep& step_;
  const typename S::Element* const keys_;
  PagedRows<const typename S::Element> rows_;  // of the part's sequence and head
  Parts parts_;
  const uint32_t warp_;
  const bool in_groups_;
  bool is_there_ = true;
  uint32_t slice_;
};

// Elements of a query's result, summed over warps or blocks.
struct Merged {
  float sums[4] = {}, max = 0, weight = 0;

  // Adds a part's elements, the weights of which are relative to another maximum.
  __device__ void Add(const Chunk<float, 4>& of_part, float max_of_part, float weight_of_part) {
    const float factor = Exp2(max_of_part - max);
    weight = fmaf(weight_of_part, factor, weight);
    CONTINUO_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = fmaf(of_part.at[i], factor, sums[i]);
  }
  // `sink` is the query's, or null.
  template <typename Number>
  __device__ void Store(Number* out, const float* sink) const {
    const float inverse = Reciprocal(weight + SinkWeight(sink, max));
    const Chunk<uint32_t, 2> pairs = {{RoundPair<Number>(sums[0] * inverse, sums[1] * inverse),
                                       RoundPair<Number>(sums[2] * inverse, sums[3] * inverse)}};
    StoreChunk<2>(reinterpret_cast<uint32_t*>(out), pairs);
  }
};

// Calls body(query, d) for every fourth element of the queries, by all threads of a block.
template <typename S, typename Body>
__device__ void ForElements(int num_queries, int head_dim, const Body& body) {
  constexpr int kFours = S::kDim / 4;
  CONTINUO_UNROLL_BY(1)
  for (int i = static_cast<int>(threadIdx.x); i < num_queries * kFours; i += S::kThreads) {
    const int d = i % kFours * 4;
    if (d < head_dim) body(i / kFours, d);
  }
}

// Writes a warp's sums over its free stage.
template <typename S>
__device__ void WriteSums(const DecodeSums<S>& sums, unsigned char* stage) {
  auto* const to = reinterpret_cast<float*>(stage);
  float* const stats = to + S::kQueries * S::kSumStride;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane / 4;
  CONTINUO_UNROLL
  for (int n = 0; n < S::kEights; ++n) {
    CONTINUO_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int query = n * 8 + lane % 4 * 2 + j;
      CONTINUO_UNROLL
      for (int i = 0; i < S::kSteps; ++i) {
        CONTINUO_UNROLL
        for (int half = 0; half < 2; ++half) {
          to[query * S::kSumStride + S::ElementOf(i, r, half)] = sums.sums[i][n][half * 2 + j];
        }
      }
      if (r == 0) {
        stats[query * 2] = sums.max[n][j];
        stats[query * 2 + 1] = sums.weight[n][j];
      }
    }
  }
}

// Merges the sums of all warps, in ascending order, to the result or to a part of it. words has
// each warp's stage, `sinks` the queries' sinks, or it is null.
template <typename S>
__device__ void MergeWarps(typename S::Number* out, const SharedParts& shared, int64_t place,
                           int num_queries, bool is_whole_tile, const uint32_t* words,
                           const float* sinks) {
  const auto of_warp = [&](int warp) {
    return reinterpret_cast<const float*>(
        SharedMemory() + (warp * S::kStages + static_cast<int>(words[warp])) * S::kStageBytes);
  };
  ForElements<S>(num_queries, shared.head_dim, [&](int query, int d) {
    const int stats_at = S::kQueries * S::kSumStride + query * 2;
    Merged merged;
    merged.max = of_warp(0)[stats_at];
    CONTINUO_UNROLL
    for (int warp = 1; warp < S::kWarps; ++warp) {
      merged.max = fmaxf(merged.max, of_warp(warp)[stats_at]);
    }
    CONTINUO_UNROLL
    for (int warp = 0; warp < S::kWarps; ++warp) {
      const float* const from = of_warp(warp);
      merged.Add(LoadChunk<4>(from + query * S::kSumStride + d), from[stats_at],
                 from[stats_at + 1]);
    }
    if (is_whole_tile) {
      merged.Store(out + query * shared.head_dim + d, sinks == nullptr ? nullptr : sinks + query);
    } else {
      StoreChunk<4>(
          shared.Sums(place, query) + d,
          Chunk<float, 4>{{merged.sums[0], merged.sums[1], merged.sums[2], merged.sums[3]}});
      if (d == 0) {
        StoreChunk<2>(shared.Stats(place, query), Chunk<float, 2>{{merged.max, merged.weight}});
      }
    }
  });
}

// Merges the parts of a tile that begins in block `first` and ends in block `last`. `sinks` are
// those of its queries, or null.
template <typename S>
__device__ void MergeParts(typename S::Number* out, const SharedParts& shared, uint32_t first,
                           uint32_t last, int num_queries, const float* sinks) {
  ForElements<S>(num_queries, shared.head_dim, [&](int query, int d) {
    const auto place_of = [&](int64_t block) { return 2 * block + (block == first ? 1 : 0); };
    Merged merged;
    merged.max = DecodeSums<S>::kNothing;
    CONTINUO_UNROLL_BY(4)
    for (int64_t block = first; block <= last; ++block) {
      merged.max = fmaxf(merged.max, *shared.Stats(place_of(block), query));
    }
    CONTINUO_UNROLL_BY(4)
    for (int64_t block = first; block <= last; ++block) {
      const Chunk<float, 2> stats = LoadChunk<2>(shared.Stats(place_of(block), query));
      merged.Add(LoadChunk<4>(shared.Sums(place_of(block), query) + d), stats.at[0], stats.at[1]);
    }
    merged.Store(out + query * shared.head_dim + d, sinks == nullptr ? nullptr : sinks + query);
  });
}

// A block computes its share of the step's positions, part by part. Its warps take the slices of a
// part in turn and merge their sums behind it; each goes on copying the next slices, of the next
// part, too, while it computes.
template <typename S>
__global__ void CONTINUO_BLOCKS_OF(S::kThreads, S::kBlocks)
    DecodeAttentionKernel(typename S::Number* out, const typename S::Number* q,
                          KvLayout<const typename S::Element> kv, Divisor by_block_size,
                          AttentionStep step, int places, float* scratch, uint32_t* counters) {
  WaitForPreviousKernel();
  const ShareBegin share = FindShare<S>(step);
  if (blockIdx.x >= share.shares.blocks()) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const SharedParts shared = {scratch, places, step.head_dim, share.shares.blocks()};
  unsigned char* const stages = SharedMemory() + warp * S::kStages * S::kStageBytes;
  auto* const units = reinterpret_cast<float*>(SharedMemory() + S::kUnitsAt) + warp * S::kQueries;
  auto* const words = reinterpret_cast<uint32_t*>(SharedMemory() + S::kWordsAt) + 4;
  uint32_t* const is_last = words + S::kWarps;

  Parts part(step, share.shares, blockIdx.x, S::kSlice, share.seq, share.before);
  SliceCopies<S> copies(kv, by_block_size, step, part, warp);
  // The next slice arrives in stage `arriving`, and the copies of others behind it have been
  // started. Where all but one have been, the one before `arriving` is free.
  int arriving = 0, num_started = 0;
  const auto free_stage = [&] { return arriving == 0 ? S::kStages - 1 : arriving - 1; };
  while (part.Next()) {
    const Queries row = QueriesOf(step, part);
    DecodeQueries<S> queries;  // loaded while the first slice arrives
    DecodeSums<S> sums;
    bool is_first = true;
    for (uint32_t i = part.begin() + static_cast<uint32_t>(warp); i < part.end(); i += S::kWarps) {
      for (; num_started < S::kStages; ++num_started) {
        const int stage = arriving + num_started;
        copies.Start(stages + (stage < S::kStages ? stage : stage - S::kStages) * S::kStageBytes);
      }
      if (is_first) queries.Load(q + row.first, row.num, step, units);
      is_first = false;
      AwaitCopies<S::kStages - 1>();
      SyncWarp();
      const unsigned char* const stage = stages + arriving * S::kStageBytes;
      const SeenRows seen = SeenIn<S>(part.slices(), i);
      SliceScores<S> scores;
      ScoreSlice<S>(scores, queries, stage);
      WeighSlice<S>(scores, sums, queries, SliceScales<S>(stage), step, seen.from, seen.until);
      AddSlice<S>(sums, scores, stage);
      SyncWarp();  // the stage is filled again after this
      --num_started;
      arriving = arriving + 1 == S::kStages ? 0 : arriving + 1;
    }
    sums.Reduce();
    WriteSums<S>(sums, stages + free_stage() * S::kStageBytes);
    if (threadIdx.x % kWarp == 0) words[warp] = static_cast<uint32_t>(free_stage());
    SyncBlock();
    const int64_t place = int64_t{2} * blockIdx.x + (part.begin() == 0 ? 1 : 0);
    MergeWarps<S>(out + row.first, shared, place, row.num, part.is_whole_tile(), words,
                  SinksOf(step, part));
    if (part.is_whole_tile()) {
      SyncBlock();
      continue;
    }
    const uint32_t first = share.shares.FirstInside(part.tile_begin());
    const uint32_t last = share.shares.LastInside(part.tile_end());
    FenceMemory();
    SyncBlock();
    if (threadIdx.x == 0) {
      const bool is_so = AtomicAdd(counters + first, 1) == last - first + 1;
      if (is_so) counters[first] = 0;
      *is_last = is_so ? 1 : 0;
    }
    SyncBlock();
    if (*is_last == 0) continue;
    FenceMemory();
    MergeParts<S>(out + row.first, shared, first - 1, last, row.num, SinksOf(step, part));
  }
}

template <typename S>
cudaError_t Run(typename S::Number* out, const typename S::Number* q,
                const KvLayout<const typename S::Element>& kv, const AttentionStep& step,
                const DecodePlan& plan, float* scratch, uint32_t* counters, KernelStream stream) {
  return Launch("DecodeAttention", DecodeAttentionKernel<S>,
                dim3(static_cast<unsigned>(plan.blocks)), S::kThreads, S::kSharedBytes, stream, out,
                q, kv, Divisor::Of(static_cast<uint32_t>(kv.block_size)), step, MaxHeads(step),
                scratch, counters);
}

}  // namespace

bool FitsDecodeAttention(const AttentionStep& step) {
  // Registers have no room for more.
  return MaxHeads(step) <= (step.head_dim <= 128 ? 16 : 8);
}

DecodePlan PlanDecodeAttention(const AttentionStep& step, int64_t max_kv_len,
                               int num_multiprocessors) {
  const int64_t tiles = int64_t{step.num_seqs} * step.num_kv_heads;
  const int64_t of_tile = (max_kv_len + kLeastShare - 1) / kLeastShare;
  const int at_once = DecodeBlocksAtOnce(MaxHeads(step)) * num_multiprocessors;
  const int64_t most = std::min(at_once, kMostDecodeBlocks);
  DecodePlan plan;
  plan.blocks = static_cast<int>(std::clamp<int64_t>(tiles * of_tile, 1, most));
  plan.scratch_bytes = size_t{2} * static_cast<size_t>(plan.blocks) *
                       static_cast<size_t>(MaxHeads(step) * (step.head_dim + 2)) * sizeof(float);
  return plan;
}

template <typename Number, typename Element>
cudaError_t DecodeAttention(Number* out, const Number* q, const KvLayout<const Element>& kv,
                            const AttentionStep& step, const DecodePlan& plan, float* scratch,
                            uint32_t* counters, KernelStream stream) {
  if (step.rows == 0 || step.num_heads == 0 || step.num_kv_heads == 0) return cudaSuccess;
  CONTINUO_CHECK(FitsDecodeAttention(step));
  const bool few = MaxHeads(step) <= 8;
  const auto run = step.head_dim <= 64    ? (few ? Run<DecodeShape<Number, Element, 64, 1>>
                                                 : Run<DecodeShape<Number, Element, 64, 2>>)
                   : step.head_dim <= 128 ? (few ? Run<DecodeShape<Number, Element, 128, 1>>
                                                 : Run<DecodeShape<Number, Element, 128, 2>>)
                                          : Run<DecodeShape<Number, Element, 256, 1>>;
  return run(out, q, kv, step, plan, scratch, counters, stream);
}

#define INSTANTIATE(Number, Element)                                                               \
  template cudaError_t DecodeAttention(Number*, const Number*, const KvLayout<const Element>&,     \
                                       const AttentionStep&, const DecodePlan&, float*, uint32_t*, \
                                       KernelStream)
CONTINUO_TENSOR_CORE_TYPES(INSTANTIATE);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
