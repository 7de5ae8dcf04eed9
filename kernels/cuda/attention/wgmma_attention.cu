// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/wgmma_attention.h"

#include <algorithm>

#include "kernels/cuda/attention/attention_results.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/byte_tile.h"
#include "kernels/cuda/attention/warp_roles.h"
#include "kernels/cuda/attention/wgmma.h"
#include "kernels/cuda/attention/wgmma_tiles.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

// Starts the scores of a warpgroup's queries for a tile's keys, a group of
// products.
template <typename S>
__device__ void StartTileScores(float (&scores)[S::kTile / 8][4], uint64_t queries,
                                const unsigned char* keys) {
  const uint64_t matrix = DescribeMatrix(SharedAddress(keys), 0);
  CONTINUO_UNROLL
  for (int d = 0; d < S::kDim; d += 16) {
    const int in_part = d % 64 * 2;
    StartScores<typename S::Number>(scores, Behind(queries, d / 64 * S::kGroupPart + in_part),
                                    Behind(matrix, d / 64 * S::kTilePart + in_part), d > 0);
  }
  EndProducts();
}

// Starts adding a tile's values times their weights, a group of products.
template <typename S>
__device__ void StartTileValues(Accumulator<S>& acc, const uint32_t (&weights)[S::kTile / 16][4],
                                const unsigned char* values) {
  const uint64_t matrix = DescribeMatrix(SharedAddress(values), S::kTilePart);
  CONTINUO_UNROLL
  for (int i = 0; i < S::kTile / 16; ++i) {
    StartValues<typename S::ValueNumber>(acc.sums, weights[i],
                                         Behind(matrix, i * 16 * S::kRowBytes));
  }
  EndProducts();
}

template <typename S>
__device__ void RoundTile(uint32_t (&weights)[S::kTile / 16][4],
                          const float (&scores)[S::kTile / 8][4]) {
  CONTINUO_UNROLL
  for (int i = 0; i < S::kTile / 16; ++i) {
    RoundWeights<typename S::ValueNumber>(weights[i], scores[2 * i], scores[2 * i + 1]);
  }
}

// Turns a tile's scores into weights.
template <typename S>
struct Weigher {
  const AttentionStep& step;
  const TileStages<S>& stages;
  int first;                   // number of the item's first tile in the block
  int32_t seen_begin;          // first position of that tile
  int32_t all_first, all_end;  // positions that all of the item's queries see

  __device__ void operator()(Accumulator<S>& acc, float (&shrink)[2],
                             float (&scores)[S::kTile / 8][4], int tile) const {
    const int32_t begin = seen_begin + tile * S::kTile;
    const bool all_seen = begin >= all_first && begin + S::kTile <= all_end;
    if constexpr (S::kIsBytes) ScaleScores<S>(scores, stages.Scales(0, first + tile));
    Weigh<S>(acc, shrink, scores, step, begin, all_seen, nullptr);
    if constexpr (S::kIsBytes) {
      ScaleWeights(acc, scores, begin, all_seen, stages.Scales(1, first + tile));
    }
  }

  // Multiplies weights by the scales of 8-bit values. A position that a row
  // does not see keeps weight 0 whatever its scale.
  static __device__ void ScaleWeights(const Accumulator<S>& acc, float (&weights)[S::kTile / 8][4],
                                      int32_t begin, bool all_seen, const float* scales) {
    const int c = static_cast<int>(threadIdx.x) % 4 * 2;
    if (all_seen) {
      ScaleScores<S>(weights, scales);
      return;
    }
    CONTINUO_UNROLL
    for (int i = 0; i < S::kTile / 8; ++i) {
      const Chunk<float, 2> scale = LoadChunk<2>(scales + i * 8 + c);
      CONTINUO_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int32_t position = begin + i * 8 + c + j % 2;
        if (position >= acc.first[j / 2] && position <= acc.last[j / 2]) {
          weights[i][j] *= scale.at[j % 2];
        }
      }
    }
  }
};

// The work of a warpgroup that multiplies. The scores of a tile and the values
// of the one before are multiplied while weights are computed. The two
// warpgroups take turns in starting products, so that one computes weights
// while the tensor cores multiply for the other.
template <typename S>
__device__ void MultiplyTiles(Accumulator<S>& acc, const TileStages<S>& stages,
                              const Weigher<S>& weigh, int group, int num_tiles) {
  constexpr int kTurn = 1;  // name of the first warpgroup's barrier for its turn
  constexpr int kBoth = S::kGroups * S::kGroupThreads;
  const uint64_t queries = DescribeMatrix(SharedAddress(stages.Queries(group)), 0);
  const int first = weigh.first;
  float scores[S::kTile / 8][4], shrink[2];
  uint32_t weights[S::kTile / 16][4];
  stages.AwaitFull(0, first);
  BeginProducts();
  StartTileScores<S>(scores, queries, stages.Tile(0, first));
  AwaitProducts<0>(scores);
  stages.HasUsed(stages.Empty(0, first));
  if (num_tiles == 1) stages.HasUsed(stages.QueriesUsed());
  weigh(acc, shrink, scores, 0);
  RoundTile<S>(weights, scores);

  if (group == 1 && num_tiles > 1) JoinThreads<kBoth>(kTurn);
  for (int tile = 1; tile < num_tiles; ++tile) {
    stages.AwaitFull(0, first + tile);
    stages.AwaitFull(1, first + tile - 1);
    SyncThreads<kBoth>(kTurn + group);
    BeginProducts();
    StartTileScores<S>(scores, queries, stages.Tile(0, first + tile));
    StartTileValues<S>(acc, weights, stages.Tile(1, first + tile - 1));
    if (group == 0 || tile < num_tiles - 1) JoinThreads<kBoth>(kTurn + (group ^ 1));
    AwaitProducts<1>(scores);
    stages.HasUsed(stages.Empty(0, first + tile));
    if (tile == num_tiles - 1) stages.HasUsed(stages.QueriesUsed());
    weigh(acc, shrink, scores, tile);
    AwaitProducts<0>(acc.sums);
    CONTINUO_UNROLL
    for (int i = 0; i < S::kTile / 16; ++i) HasBeenRead(weights[i]);
    stages.HasUsed(stages.Empty(1, first + tile - 1));
    ShrinkSums<S>(acc, shrink);
    RoundTile<S>(weights, scores);
  }
  stages.AwaitFull(1, first + num_tiles - 1);
  BeginProducts();
  StartTileValues<S>(acc, weights, stages.Tile(1, first + num_tiles - 1));
  AwaitProducts<0>(acc.sums);
  stages.HasUsed(stages.Empty(1, first + num_tiles - 1));
  acc.Reduce();
}

// Moves sums to where other kernels have them: WidenFour has swapped the second
// and the third of each four columns.
template <typename S>
__device__ void PermuteSums(Accumulator<S>& acc) {
  const bool is_odd = threadIdx.x % 2 != 0;
  CONTINUO_UNROLL
  for (int i = 0; i < S::kDim / 8; ++i) {
    CONTINUO_UNROLL
    for (int j = 0; j < 4; j += 2) {
      float& low = acc.sums[i][j];
      float& high = acc.sums[i][j + 1];
      const float other = ShuffleXor(is_odd ? low : high, 1);
      low = is_odd ? other : low;
      high = is_odd ? high : other;
    }
  }
}

// A warpgroup computes its queries of an item.
template <typename S>
__device__ void ComputeItem(const Results<typename S::Number>& results, const AttentionStep& step,
                            const TileStages<S>& stages, const WorkItem<S>& item, int first) {
  const int thread = static_cast<int>(threadIdx.x) - S::kGroupThreads;
  const QueryTile& tile = item.tile;
  if (item.num_tiles == 0) {
    for (int i = thread; i < tile.num_pairs; i += S::kGroups * S::kGroupThreads) {
      results.Weight(i, kLowest, 0);
    }
    return;
  }
  const int first_query = thread / kWarp * 16;
  Accumulator<S> acc;
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + thread % kWarp / 4 + half * 8;
    const int64_t position = query < tile.num_pairs ? tile.Position(query) : -1;
    acc.first[half] = static_cast<int32_t>(Max(item.seen.begin, FirstSeen(position, step)));
    acc.last[half] = static_cast<int32_t>(Min(item.seen.end - 1, position));
  }
  const int64_t all_first =
      Max(item.seen.begin, FirstSeen(tile.Position(tile.num_pairs - 1), step));
  const int64_t all_end = Min(item.seen.end, tile.Position(0) + 1);
  const Weigher<S> weigh = {step,
                            stages,
                            first,
                            static_cast<int32_t>(item.seen.begin),
                            static_cast<int32_t>(all_first),
                            static_cast<int32_t>(all_end)};
  MultiplyTiles<S>(acc, stages, weigh, thread / S::kGroupThreads, item.num_tiles);
  if constexpr (S::kIsBytes) PermuteSums<S>(acc);
  WriteWarp(acc, results, step, tile, first_query);
}

// A block computes several items, one after the other. Bound by products, for
// which two warpgroups take turns while a third brings queries, keys and
// values, those of the next item as well.
template <typename S>
__global__ void CONTINUO_BLOCKS_OF(S::kThreads, 1)
    WgmmaAttentionKernel(typename S::Number* out, const typename S::Number* q,
                         KvLayout<const typename S::Element> kv, Divisor by_block_size,
                         AttentionStep step, TileAttentionPlan plan, int64_t first_tile,
                         unsigned tiles, unsigned items, float* split_sums, float* split_weights) {
  WaitForPreviousKernel();
  RequireWgmma();
  if (!kHasWgmma) return;
  const auto stages = TileStages<S>::In(SharedMemory());
  if (threadIdx.x == 0) stages.Init();
  SyncBlock();
  int first = 0;
  if (threadIdx.x < S::kGroupThreads) {
    GiveRegisters<S::kCopyRegisters>();
    int num_items = 0;
    ForEachItem(items, [&](unsigned number) {
      const auto item = WorkItem<S>::Find(step, plan, first_tile, tiles, number);
      if (item.num_tiles == 0) return;
      const int32_t* const table = step.block_tables + item.tile.seq * step.max_blocks;
      BringTiles<S>(stages,
                    {RowsOf(kv, by_block_size, table, item.kv_head), item.seen, item.num_tiles},
                    first, [&] {
                      AwaitPhase(stages.QueriesUsed(), num_items % 2 ^ 1);
                      StartWgmmaQueries<S>(stages.queries, q, step, item.tile);
                    });
      first += item.num_tiles;
      ++num_items;
    });
  } else {
    TakeRegisters<S::kProductRegisters>();
    ForEachItem(items, [&](unsigned number) {
      const auto item = WorkItem<S>::Find(step, plan, first_tile, tiles, number);
      const Results<typename S::Number> results = {out, split_sums, split_weights,
                                                   item.first_place};
      ComputeItem<S>(results, step, stages, item, first);
      first += item.num_tiles;
    });
  }
}

}  // namespace

template <typename Number, typename Element>
cudaError_t WgmmaAttention(Number* out, const Number* q, const KvLayout<const Element>& kv,
                           const AttentionStep& step, const TileAttentionPlan& plan,
                           int64_t first_tile, unsigned tiles, float* split_sums,
                           float* split_weights, KernelStream stream) {
  const unsigned items =
      tiles * static_cast<unsigned>(step.num_kv_heads) * static_cast<unsigned>(plan.num_splits);
  const dim3 grid(std::min(items, static_cast<unsigned>(plan.num_multiprocessors)));
  const Divisor by_size = Divisor::Of(static_cast<uint32_t>(kv.block_size));
  const auto launch = [&]<typename S>(S) {
    return Launch("WgmmaAttention", WgmmaAttentionKernel<S>, grid, S::kThreads, S::kSharedBytes,
                  stream, out, q, kv, by_size, step, plan, first_tile, tiles, items, split_sums,
                  split_weights);
  };
  return step.head_dim <= 64 ? launch(WgmmaShape<Number, Element, 64>{})
                             : launch(WgmmaShape<Number, Element, 128>{});
}

#define INSTANTIATE(Number, Element)                                                           \
  template cudaError_t WgmmaAttention(Number*, const Number*, const KvLayout<const Element>&,  \
                                      const AttentionStep&, const TileAttentionPlan&, int64_t, \
                                      unsigned, float*, float*, KernelStream)
CONTINUO_TENSOR_CORE_TYPES(INSTANTIATE);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
