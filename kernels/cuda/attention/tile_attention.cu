// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/tile_attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/attention/attention_results.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/byte_tile.h"
#include "kernels/cuda/attention/wgmma_attention.h"
#include "kernels/cuda/runtime/launch.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int64_t kFixedSplit = 1024;  // positions; results do not depend on the step
constexpr int kMaxSplits = 64;
constexpr int kMergeThreads = 128;

template <typename Number, typename Element>
using Shape64 = Shape<Number, Element, 64, 4, 64>;
template <typename Number, typename Element>
using Shape128 = Shape<Number, Element, 128, 4, 64>;
template <typename Number, typename Element>
using Shape256 = Shape<Number, Element, 256, 2, 32>;

// Block (x, y, z) computes tile first_tile + x of key-value head y, split z. It is bound by
// products; the next kTile positions arrive while the last are used. Bytes are widened into a tile
// of their own in between, so a stage can be filled as soon as all warps have passed that.
template <typename S>
__global__ void CONTINUO_BLOCKS_OF(S::kThreads, S::kBlocks)
    TileAttentionKernel(typename S::Number* out, const typename S::Number* q,
                        KvLayout<const typename S::Element> kv, Divisor by_block_size,
                        AttentionStep step, TileAttentionPlan plan, int64_t first_tile,
                        float* split_sums, float* split_weights) {
  WaitForPreviousKernel();
  using Number = typename S::Number;
  auto* const queries = reinterpret_cast<Number*>(SharedMemory());
  unsigned char* const stages = SharedMemory() + S::kQueryBytes;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int kv_head = static_cast<int>(blockIdx.y), split = static_cast<int>(blockIdx.z);
  const QueryTile tile = FindTile(step, kv_head, S::kQueries, first_tile + blockIdx.x);
  if (tile.num_pairs == 0) return;
  const SeenRange seen = SeenBy(step, tile, S::kTile, split, plan.num_splits, plan.split_tokens);
  const Results<Number> results = {
      out, split_sums, split_weights,
      ((int64_t{blockIdx.x} * step.num_kv_heads + kv_head) * plan.num_splits + split) *
          plan.tile_size};
  if (seen.begin >= seen.end) {
    for (int i = static_cast<int>(threadIdx.x); i < tile.num_pairs; i += S::kThreads) {
      results.Weight(i, kLowest, 0);
    }
    return;
  }

  Accumulator<S> acc;
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = warp * 16 + lane / 4 + half * 8;
    const int64_t position = query < tile.num_pairs ? tile.Position(query) : -1;
    acc.first[half] = static_cast<int32_t>(Max(seen.begin, FirstSeen(position, step)));
    acc.last[half] = static_cast<int32_t>(Min(seen.end - 1, position));
  }
  // The positions that all of the tile's queries see.
  const auto all_first =
      static_cast<int32_t>(Max(seen.begin, FirstSeen(tile.Position(tile.num_pairs - 1), step)));
  const auto all_end = static_cast<int32_t>(Min(seen.end, tile.Position(0) + 1));
  const auto rows =
      RowsOf(kv, by_block_size, step.block_tables + tile.seq * step.max_blocks, kv_head);
  StartQueries<S>(queries, q, step, tile);
  EndCopies();
  StartTile<S>(stages, rows, seen.begin, seen);
  EndCopies();
  const Number* const warp_queries = queries + warp * 16 * S::kStride;
  int stage = 0;
  for (int64_t begin = seen.begin; begin < seen.end; begin += S::kTile, stage ^= 1) {
    if (begin + S::kTile < seen.end) {
      StartTile<S>(stages + (stage ^ 1) * S::kStageBytes, rows, begin + S::kTile, seen);
    }
    EndCopies();
    AwaitCopies<1>();
    SyncBlock();
    const unsigned char* elements = stages + stage * S::kStageBytes;
    const auto first = static_cast<int32_t>(begin);
    const bool all_seen = first >= all_first && first + S::kTile <= all_end;
    float scores[S::kTile / 8][4], shrink[2];
    if constexpr (S::kHasScales) {
      unsigned char* const widened = stages + 2 * S::kStageBytes;
      WidenTile<S>(widened, elements);
      SyncBlock();
      elements = widened;
    }
    const auto* const keys = reinterpret_cast<const Number*>(elements);
    const auto* const values =
        reinterpret_cast<const typename S::ValueNumber*>(keys + S::kTile * S::kStride);
    // Scales follow the numbers, for bytes only.
    const auto* const scales =
        reinterpret_cast<const float*>(elements + S::kTileBytes - S::kScaleBytes);
    Score<S>(scores, warp_queries, keys);
    if constexpr (S::kHasScales) ScaleScores<S>(scores, scales);
    Weigh<S>(acc, shrink, scores, step, first, all_seen, scales + S::kTile);
    ShrinkSums<S>(acc, shrink);
    AddValues<S>(acc, scores, values);
    // The stage is filled again after this, unless all warps have already passed it.
    if constexpr (!S::kHasScales) SyncBlock();
  }
  acc.Reduce();
  WriteWarp(acc, results, step, tile, warp * 16);
}

// Block (x, y, z) merges the splits of query z of tile first_tile + x of key-value head y. The
// weight of each split is in shared memory, [num_splits]. Bound by reading their sums.
template <typename Number>
__global__ void CONTINUO_BLOCKS_OF(kMergeThreads, 10)
    MergeSplitsKernel(Number* out, AttentionStep step, TileAttentionPlan plan, int64_t first_tile,
                      const float* split_sums, const float* split_weights) {
  WaitForPreviousKernel();
  const int kv_head = static_cast<int>(blockIdx.y), query = static_cast<int>(blockIdx.z);
  const int num_splits = plan.num_splits, places = plan.tile_size;
  const int thread = static_cast<int>(threadIdx.x);
  const QueryTile tile = FindTile(step, kv_head, plan.tile_size, first_tile + blockIdx.x);
  if (query >= tile.num_pairs) return;
  const int64_t first =
      (int64_t{blockIdx.x} * step.num_kv_heads + kv_head) * num_splits * places + query;
  auto* const factors = reinterpret_cast<float*>(SharedMemory());
  for (int split = thread; split < num_splits; split += kMergeThreads) {
    factors[split] = split_weights[(first + int64_t{split} * places) * 2];
  }
  SyncBlock();
  float max = kLowest;
  for (int split = 0; split < num_splits; ++split) max = fmaxf(max, factors[split]);
  SyncBlock();
  for (int split = thread; split < num_splits; split += kMergeThreads) {
    // A split that saw nothing has not written its sums.
    const bool is_there = split_weights[(first + int64_t{split} * places) * 2 + 1] != 0;
    factors[split] = is_there ? Exp2(factors[split] - max) : 0;
  }
  SyncBlock();
  float weight = 0;
  for (int split = 0; split < num_splits; ++split) {
    weight = fmaf(split_weights[(first + int64_t{split} * places) * 2 + 1], factors[split], weight);
  }
  weight += SinkWeight(step, tile.Head(query), max);
  const int64_t row = tile.Row(query) * step.num_heads + tile.Head(query);
  for (int d = thread; d < step.head_dim; d += kMergeThreads) {
    float sum = 0;
    CONTINUO_UNROLL_BY(8)
    for (int split = 0; split < num_splits; ++split) {
      const float factor = factors[split];
      const float* const from = split_sums + (first + int64_t{split} * places) * step.head_dim + d;
      sum = fmaf(factor != 0 ? *from : 0, factor, sum);
    }
    Store(out + row * step.head_dim + d, sum / weight);
  }
}

int TileSize(int head_dim) {
  using T = uint16_t;  // any 16-bit type
  return head_dim > 128 ? Shape256<T, T>::kQueries : Shape128<T, T>::kQueries;
}

int64_t TilesOf(const AttentionStep& step, int tile_size) {
  return NumTiles(step.rows, step.num_seqs, MaxHeads(step), tile_size);
}

// launch_tiles(sums, weights, first, n) launches a kernel for n tiles from the first on.
template <typename Number, typename Tiles>
cudaError_t RunTiles(Number* out, const AttentionStep& step, const TileAttentionPlan& plan,
                     float* scratch, KernelStream stream, const Tiles& launch_tiles) {
  const auto heads = static_cast<unsigned>(step.num_kv_heads);
  const auto splits = static_cast<unsigned>(plan.num_splits);
  const int64_t num_tiles = TilesOf(step, plan.tile_size);
  for (int64_t first = 0; first < num_tiles; first += plan.tiles_per_launch) {
    const auto tiles = static_cast<unsigned>(std::min(plan.tiles_per_launch, num_tiles - first));
    const int64_t places = int64_t{tiles} * heads * splits * plan.tile_size;
    float* const sums = splits == 1 ? nullptr : scratch + places * 2;
    if (const cudaError_t error = launch_tiles(sums, scratch, first, tiles); error != cudaSuccess) {
      return error;
    }
    if (splits == 1) continue;
    const cudaError_t merged =
        Launch("MergeSplits", MergeSplitsKernel<Number>,
               dim3(tiles, heads, static_cast<unsigned>(plan.tile_size)), kMergeThreads,
               splits * sizeof(float), stream, out, step, plan, first, sums, scratch);
    if (merged != cudaSuccess) return merged;
  }
  return cudaSuccess;
}

template <typename S>
cudaError_t Run(typename S::Number* out, const typename S::Number* q,
                const KvLayout<const typename S::Element>& kv, const AttentionStep& step,
                const TileAttentionPlan& plan, float* scratch, KernelStream stream) {
  CONTINUO_CHECK(plan.tile_size == S::kQueries);
  return RunTiles(out, step, plan, scratch, stream,
                  [&](float* sums, float* weights, int64_t first, unsigned tiles) {
                    return Launch("TileAttention", TileAttentionKernel<S>,
                                  dim3(tiles, static_cast<unsigned>(step.num_kv_heads),
                                       static_cast<unsigned>(plan.num_splits)),
                                  S::kThreads, S::kSharedBytes, stream, out, q, kv,
                                  Divisor::Of(static_cast<uint32_t>(kv.block_size)), step, plan,
                                  first, sums, weights);
                  });
}

int64_t BytesPerTile(int num_kv_heads, int head_dim, int places, int64_t num_splits) {
  return num_kv_heads * num_splits * places * (head_dim + 2) * int64_t{sizeof(float)};
}

int64_t FixedSplits(int64_t max_kv_len) {
  return std::max<int64_t>(1, (max_kv_len + kFixedSplit - 1) / kFixedSplit);
}

}  // namespace

size_t MinTileAttentionScratch(int num_kv_heads, int head_dim, int64_t max_kv_len) {
  return static_cast<size_t>(
      BytesPerTile(num_kv_heads, head_dim, TileSize(head_dim), FixedSplits(max_kv_len)));
}

TileAttentionPlan PlanTileAttention(const AttentionStep& step, int64_t max_kv_len,
                                    int num_multiprocessors, size_t scratch_bytes,
                                    bool deterministic, bool wgmma) {
  TileAttentionPlan plan;
  plan.num_multiprocessors = num_multiprocessors;
  plan.wgmma = wgmma && !deterministic;
  plan.tile_size = plan.wgmma ? kWgmmaQueries : TileSize(step.head_dim);
  const int64_t num_tiles = TilesOf(step, plan.tile_size);
  if (deterministic) {
    plan.split_tokens = kFixedSplit;
    plan.num_splits = static_cast<int>(FixedSplits(max_kv_len));
  } else {
    // Splits make as many blocks as the device runs at once, where that makes no split shorter than
    // its cost is worth; and twice as many where splits are still long, so that few blocks are left
    // for the end.
    const int64_t at_once = plan.wgmma ? 1 : 3;
    constexpr int64_t kWorthIt = 128, kLong = 512;
    const int64_t all = at_once * num_multiprocessors;
    const int64_t blocks = std::max<int64_t>(1, num_tiles * step.num_kv_heads);
    const auto wanted = [&](int64_t total, int64_t tokens) {
      return std::min((total + blocks - 1) / blocks, max_kv_len / tokens);
    };
    int64_t splits = std::max(wanted(all, kWorthIt), wanted(2 * all, kLong));
    // Sequences that are much longer than the others would run alone at the end. Splits then have a
    // fixed length, so that the other sequences have few that are not empty. With tiles of twice as
    // many queries these fit where the splits of `deterministic` do.
    constexpr int64_t kLongest = 4096, kMostLongest = 16;
    static_assert(kLongest >= 4 * kFixedSplit && kWgmmaQueries <= 128);
    const int64_t of_longest = std::min((max_kv_len + kLongest - 1) / kLongest, kMostLongest);
    if (splits < of_longest) {
      constexpr int64_t kUnit = 128;  // a multiple of every kernel's kTile
      splits = of_longest;
      plan.split_tokens = ((max_kv_len + splits - 1) / splits + kUnit - 1) / kUnit * kUnit;
    }
    const int64_t that_fit = static_cast<int64_t>(scratch_bytes) /
                             BytesPerTile(step.num_kv_heads, step.head_dim, plan.tile_size, 1);
    if (plan.split_tokens == 0) splits = std::min(splits, that_fit);
    plan.num_splits = static_cast<int>(std::clamp<int64_t>(splits, 1, kMaxSplits));
  }
  plan.tiles_per_launch = num_tiles;
  if (plan.num_splits > 1) {
    const int64_t bytes =
        BytesPerTile(step.num_kv_heads, step.head_dim, plan.tile_size, plan.num_splits);
    CONTINUO_CHECK(bytes <= static_cast<int64_t>(scratch_bytes));
    plan.tiles_per_launch =
        std::clamp<int64_t>(static_cast<int64_t>(scratch_bytes) / bytes, 1, num_tiles);
  }
  return plan;
}

template <typename Number, typename Element>
cudaError_t TileAttention(Number* out, const Number* q, const KvLayout<const Element>& kv,
                          const AttentionStep& step, const TileAttentionPlan& plan, float* scratch,
                          KernelStream stream) {
  if (step.rows == 0 || step.num_heads == 0 || step.num_kv_heads == 0) return cudaSuccess;
  if (plan.wgmma) {
    return RunTiles(out, step, plan, scratch, stream,
                    [&](float* sums, float* weights, int64_t first, unsigned tiles) {
                      return WgmmaAttention(out, q, kv, step, plan, first, tiles, sums, weights,
                                            stream);
                    });
  }
  const auto run = step.head_dim <= 64    ? Run<Shape64<Number, Element>>
                   : step.head_dim <= 128 ? Run<Shape128<Number, Element>>
                                          : Run<Shape256<Number, Element>>;
  return run(out, q, kv, step, plan, scratch, stream);
}

#define INSTANTIATE(Number, Element)                                                         \
  template cudaError_t TileAttention(Number*, const Number*, const KvLayout<const Element>&, \
                                     const AttentionStep&, const TileAttentionPlan&, float*, \
                                     KernelStream)
CONTINUO_TENSOR_CORE_TYPES(INSTANTIATE);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
