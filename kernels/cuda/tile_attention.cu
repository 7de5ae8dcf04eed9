// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tile_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/launch.h"

namespace continuo::cuda {
namespace {

constexpr int64_t kFixedSplit = 1024;  // positions, where results must not depend on the step
constexpr int kMaxSplits = 64;

template <typename Number, typename Element>
using Small64 = Shape<Number, Element, 64, 1, 4, 64>;
template <typename Number, typename Element>
using Large64 = Shape<Number, Element, 64, 4, 1, 64>;
template <typename Number, typename Element>
using Small128 = Shape<Number, Element, 128, 1, 4, 64>;
template <typename Number, typename Element>
using Large128 = Shape<Number, Element, 128, 4, 1, 64>;
template <typename Number, typename Element>
using Small256 = Shape<Number, Element, 256, 1, 2, 32>;
template <typename Number, typename Element>
using Large256 = Shape<Number, Element, 256, 2, 1, 32>;

// Where a block's results go: rows of out, or, for a split, places in scratch.
template <typename Number>
struct Results {
  Number* out;
  float* sums;     // [place, head_dim]; null: to out
  float* weights;  // [place, 2]: maximum and sum of weights
  int64_t first_place;

  __device__ void Weight(int query, float max, float weight) const {
    if (sums == nullptr) return;
    weights[(first_place + query) * 2] = max;
    weights[(first_place + query) * 2 + 1] = weight;
  }
  // Two elements, d and d + 1, of a query's sums.
  __device__ void Sums(const AttentionStep& step, const QueryTile& tile, int query, int d, float a,
                       float b, float weight) const {
    if (sums != nullptr) {
      float* const to = sums + (first_place + query) * step.head_dim + d;
      to[0] = a;
      to[1] = b;
      return;
    }
    Number* const to =
        out + (tile.Row(query) * step.num_heads + tile.Head(query)) * step.head_dim + d;
    *reinterpret_cast<uint32_t*>(to) = Pack<Number>(a / weight, b / weight);
  }
};

template <typename S>
__device__ void WriteWarp(const Accumulator<S>& acc, const Results<typename S::Number>& results,
                          const AttentionStep& step, const QueryTile& tile, int first_query) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + lane / 4 + half * 8;
    if (query >= tile.num_pairs) continue;
    if (lane % 4 == 0) results.Weight(query, acc.max[half], acc.weight[half]);
    CONTINUO_UNROLL
    for (int i = 0; i < S::kDim / 8; ++i) {
      const int d = i * 8 + lane % 4 * 2;
      if (d < step.head_dim) {
        results.Sums(step, tile, query, d, acc.sums[i][half * 2], acc.sums[i][half * 2 + 1],
                     acc.weight[half]);
      }
    }
  }
}

// The warps that shared out the positions meet in shared memory, in ascending order.
template <typename S>
__device__ void WriteMerged(const Accumulator<S>& acc, const Results<typename S::Number>& results,
                            const AttentionStep& step, const QueryTile& tile, int query_warp,
                            int kv_warp) {
  auto* const sums = reinterpret_cast<float*>(SharedMemory());        // [kKvWarps, kQueries, kDim]
  float* const weights = sums + S::kKvWarps * S::kQueries * S::kDim;  // [kKvWarps, kQueries, 2]
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  SyncBlock();  // before what was computed with is written over
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int place = kv_warp * S::kQueries + query_warp * 16 + lane / 4 + half * 8;
    weights[place * 2] = acc.max[half];
    weights[place * 2 + 1] = acc.weight[half];
    CONTINUO_UNROLL
    for (int i = 0; i < S::kDim / 8; ++i) {
      float* const to = sums + place * S::kDim + i * 8 + lane % 4 * 2;
      to[0] = acc.sums[i][half * 2];
      to[1] = acc.sums[i][half * 2 + 1];
    }
  }
  SyncBlock();
  const int pairs = step.head_dim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < tile.num_pairs * pairs; i += S::kThreads) {
    const int query = i / pairs, d = i % pairs * 2;
    float max = kLowest;
    for (int w = 0; w < S::kKvWarps; ++w) {
      max = fmaxf(max, weights[(w * S::kQueries + query) * 2]);
    }
    float a = 0, b = 0, weight = 0;
    for (int w = 0; w < S::kKvWarps; ++w) {
      const int place = w * S::kQueries + query;
      if (weights[place * 2 + 1] == 0) continue;  // it saw nothing
      const float factor = exp2f((weights[place * 2] - max) * kLog2E);
      weight += weights[place * 2 + 1] * factor;
      a += sums[place * S::kDim + d] * factor;
      b += sums[place * S::kDim + d + 1] * factor;
    }
    if (d == 0) results.Weight(query, max, weight);
    results.Sums(step, tile, query, d, a, b, weight);
  }
}

// Block (x, y, z): tile first_tile + x of key-value head y, split z. Many queries are bound by the
// products, few by reading keys and values, of which the next kTile arrive while the last are
// computed with. Bytes become numbers of 16 bits in between, in a tile of its own, so a stage can
// be filled as soon as all warps have passed that.
template <typename S>
__global__ void CONTINUO_BLOCK_OF(S::kThreads)
    TileAttentionKernel(typename S::Number* out, const typename S::Number* q,
                        KvLayout<const typename S::Element> kv, AttentionStep step,
                        TileAttentionPlan plan, int64_t first_tile, float* split_sums,
                        float* split_weights) {
  using Number = typename S::Number;
  auto* const queries = reinterpret_cast<Number*>(SharedMemory());
  unsigned char* const stages = SharedMemory() + S::kQueryBytes;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int query_warp = warp % S::kQueryWarps, kv_warp = warp / S::kQueryWarps;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int kv_head = static_cast<int>(blockIdx.y), split = static_cast<int>(blockIdx.z);
  const QueryTile tile = FindTile(step, kv_head, S::kQueries, first_tile + blockIdx.x);
  if (tile.num_pairs == 0) return;
  const SeenRange seen = SeenBy(step, tile, S::kTile, split, plan.num_splits, plan.split_tokens);
  const Results<Number> results = {
      out, split_sums, split_weights,
      ((int64_t{blockIdx.x} * step.num_kv_heads + kv_head) * plan.num_splits + split) *
          S::kQueries};
  if (seen.begin >= seen.end) {
    for (int i = static_cast<int>(threadIdx.x); i < tile.num_pairs; i += S::kThreads) {
      results.Weight(i, kLowest, 0);
    }
    return;
  }

  Accumulator<S> acc;
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = query_warp * 16 + lane / 4 + half * 8;
    acc.position[half] = query < tile.num_pairs ? tile.Position(query) : -1;
  }
  const int32_t* const table = step.block_tables + tile.seq * step.max_blocks;
  StartQueries<S>(queries, q, step, tile);
  StartTile<S>(stages, kv, table, kv_head, seen.begin, seen);
  EndCopies();
  int stage = 0;
  for (int64_t begin = seen.begin; begin < seen.end; begin += S::kTile, stage ^= 1) {
    if (begin + S::kTile < seen.end) {
      StartTile<S>(stages + (stage ^ 1) * S::kStageBytes, kv, table, kv_head, begin + S::kTile,
                   seen);
    }
    EndCopies();
    AwaitCopies<1>();
    SyncBlock();
    const unsigned char* elements = stages + stage * S::kStageBytes;
    if constexpr (S::kHasScales) {
      unsigned char* const widened = stages + 2 * S::kStageBytes;
      WidenTile<S>(widened, elements);
      SyncBlock();
      elements = widened;
    }
    const int first = kv_warp * S::kSlice;  // of the tile's positions
    const auto* const keys = reinterpret_cast<const Number*>(elements) + first * S::kStride;
    const auto* const values =
        reinterpret_cast<const typename S::ValueNumber*>(keys + S::kTile * S::kStride);
    // Behind them; of bytes alone.
    const float* const scales = reinterpret_cast<const float*>(
        elements + S::kTileBytes - S::kScaleBytes + first * sizeof(float));
    float scores[S::kSlice / 8][4];
    Score<S>(scores, queries + query_warp * 16 * S::kStride, keys);
    if constexpr (S::kHasScales) ScaleScores<S>(scores, scales);
    Weigh<S>(acc, scores, step, seen, begin + first, scales + S::kTile);
    AddValues<S>(acc, scores, values);
    if constexpr (!S::kHasScales) SyncBlock();  // before the stage is filled again
  }
  acc.Reduce();
  if constexpr (S::kKvWarps == 1) {
    WriteWarp(acc, results, step, tile, query_warp * 16);
  } else {
    WriteMerged(acc, results, step, tile, query_warp, kv_warp);
  }
}

// Block (x, y): the splits of tile first_tile + x of key-value head y meet. Bound by reading them.
template <typename Number>
__global__ void MergeSplitsKernel(Number* out, AttentionStep step, int tile_size, int num_splits,
                                  int64_t first_tile, const float* split_sums,
                                  const float* split_weights) {
  const int kv_head = static_cast<int>(blockIdx.y);
  const QueryTile tile = FindTile(step, kv_head, tile_size, first_tile + blockIdx.x);
  const int64_t first =
      (int64_t{blockIdx.x} * step.num_kv_heads + kv_head) * num_splits * tile_size;
  for (int i = static_cast<int>(threadIdx.x); i < tile.num_pairs * step.head_dim;
       i += static_cast<int>(blockDim.x)) {
    const int query = i / step.head_dim, d = i % step.head_dim;
    float max = kLowest;
    for (int split = 0; split < num_splits; ++split) {
      max = fmaxf(max, split_weights[(first + split * tile_size + query) * 2]);
    }
    float sum = 0, weight = 0;
    for (int split = 0; split < num_splits; ++split) {
      const int64_t place = first + split * tile_size + query;
      if (split_weights[place * 2 + 1] == 0) continue;  // its sums were not written
      const float factor = exp2f((split_weights[place * 2] - max) * kLog2E);
      weight += split_weights[place * 2 + 1] * factor;
      sum += split_sums[place * step.head_dim + d] * factor;
    }
    Store(out + (tile.Row(query) * step.num_heads + tile.Head(query)) * step.head_dim + d,
          sum / weight);
  }
}

template <typename S>
cudaError_t Run(typename S::Number* out, const typename S::Number* q,
                const KvLayout<const typename S::Element>& kv, const AttentionStep& step,
                const TileAttentionPlan& plan, int64_t num_tiles, float* scratch,
                cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(step.num_kv_heads);
  for (int64_t first = 0; first < num_tiles; first += plan.tiles_per_launch) {
    const auto tiles = static_cast<unsigned>(std::min(plan.tiles_per_launch, num_tiles - first));
    const int64_t places = int64_t{tiles} * heads * plan.num_splits * S::kQueries;
    float* const sums = plan.num_splits == 1 ? nullptr : scratch + places * 2;
    const cudaError_t error =
        Launch("TileAttention", TileAttentionKernel<S>,
               dim3(tiles, heads, static_cast<unsigned>(plan.num_splits)), S::kThreads,
               S::kSharedBytes, stream, out, q, kv, step, plan, first, sums, scratch);
    if (error != cudaSuccess) return error;
    if (plan.num_splits == 1) continue;
    constexpr int kMergeThreads = 128;
    const cudaError_t merged = Launch("MergeSplits", MergeSplitsKernel<typename S::Number>,
                                      dim3(tiles, heads), kMergeThreads, 0, stream, out, step,
                                      S::kQueries, plan.num_splits, first, sums, scratch);
    if (merged != cudaSuccess) return merged;
  }
  return cudaSuccess;
}

int TileSize(int head_dim, bool small) {
  using T = uint16_t;  // any
  return small            ? Small128<T, T>::kQueries
         : head_dim > 128 ? Large256<T, T>::kQueries
                          : Large128<T, T>::kQueries;
}

int MaxHeads(const AttentionStep& step) {
  int heads = 0;
  for (int i = 0; i < step.num_kv_heads; ++i) heads = std::max(heads, HeadsOf(step, i).size());
  return heads;
}

int64_t BytesPerTile(int num_kv_heads, int head_dim, int tile_size, int64_t num_splits) {
  return num_kv_heads * num_splits * tile_size * (head_dim + 2) * int64_t{sizeof(float)};
}

int64_t FixedSplits(int64_t max_kv_len) {
  return std::max<int64_t>(1, (max_kv_len + kFixedSplit - 1) / kFixedSplit);
}

}  // namespace

size_t MinTileAttentionScratch(int num_kv_heads, int head_dim, int64_t max_kv_len) {
  return static_cast<size_t>(
      BytesPerTile(num_kv_heads, head_dim, TileSize(head_dim, false), FixedSplits(max_kv_len)));
}

TileAttentionPlan PlanTileAttention(const AttentionStep& step, int64_t max_kv_len,
                                    int num_multiprocessors, size_t scratch_bytes,
                                    bool deterministic) {
  TileAttentionPlan plan;
  const int heads = MaxHeads(step);
  const bool one_row_each = step.rows == step.num_seqs;
  plan.small_tiles = !deterministic && one_row_each && heads <= 16;
  const int tile_size = TileSize(step.head_dim, plan.small_tiles);
  const int64_t num_tiles = NumTiles(step.rows, step.num_seqs, heads, tile_size);
  if (deterministic) {
    plan.split_tokens = kFixedSplit;
    plan.num_splits = static_cast<int>(FixedSplits(max_kv_len));
  } else {
    // Two blocks for each multiprocessor, and no split that is shorter than what it costs.
    constexpr int64_t kWorthIt = 256;
    const int64_t blocks = std::max<int64_t>(1, num_tiles * step.num_kv_heads);
    const int64_t wanted = (2 * int64_t{num_multiprocessors} + blocks - 1) / blocks;
    plan.num_splits = static_cast<int>(
        std::clamp<int64_t>(std::min(wanted, max_kv_len / kWorthIt), 1, kMaxSplits));
  }
  plan.tiles_per_launch = num_tiles;
  if (plan.num_splits > 1) {
    const int64_t bytes =
        BytesPerTile(step.num_kv_heads, step.head_dim, tile_size, plan.num_splits);
    plan.tiles_per_launch =
        std::clamp<int64_t>(static_cast<int64_t>(scratch_bytes) / bytes, 1, num_tiles);
  }
  return plan;
}

template <typename Number, typename Element>
cudaError_t TileAttention(Number* out, const Number* q, const KvLayout<const Element>& kv,
                          const AttentionStep& step, const TileAttentionPlan& plan, float* scratch,
                          cudaStream_t stream) {
  if (step.rows == 0 || step.num_heads == 0 || step.num_kv_heads == 0) return cudaSuccess;
  const bool small = plan.small_tiles;
  const int64_t num_tiles =
      NumTiles(step.rows, step.num_seqs, MaxHeads(step), TileSize(step.head_dim, small));
  const auto run = step.head_dim <= 64
                       ? (small ? Run<Small64<Number, Element>> : Run<Large64<Number, Element>>)
                   : step.head_dim <= 128
                       ? (small ? Run<Small128<Number, Element>> : Run<Large128<Number, Element>>)
                       : (small ? Run<Small256<Number, Element>> : Run<Large256<Number, Element>>);
  return run(out, q, kv, step, plan, num_tiles, scratch, stream);
}

#define INSTANTIATE(Number, Element)                                                         \
  template cudaError_t TileAttention(Number*, const Number*, const KvLayout<const Element>&, \
                                     const AttentionStep&, const TileAttentionPlan&, float*, \
                                     cudaStream_t)
INSTANTIATE(uint16_t, uint16_t);
INSTANTIATE(uint16_t, int8_t);
INSTANTIATE(uint16_t, uint8_t);
INSTANTIATE(Half, Half);
INSTANTIATE(Half, int8_t);
INSTANTIATE(Half, uint8_t);
#undef INSTANTIATE

}  // namespace continuo::cuda
