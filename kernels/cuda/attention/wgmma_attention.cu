// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/wgmma_attention.h"

#include "kernels/cuda/attention/attention_results.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/wgmma.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

// The shape of the kernel: two warpgroups of 64 queries each see the same kTile positions at a
// time. Matrices of 16-bit elements are stored in shared memory as products take them, in parts of
// 64 columns.
template <typename Number_, int kDim_>
struct WgmmaShape {
  using Number = Number_;
  static constexpr bool kHasScales = false;
  static constexpr int kDim = kDim_, kTile = 128, kSlice = kTile;
  static constexpr int kGroups = 2, kQueries = kWgmmaQueries, kOfGroup = kQueries / kGroups;
  static constexpr int kThreads = 4 * kWarp * kGroups;
  static constexpr int kParts = kDim / 64;
  static constexpr int kRowBytes = 128;  // of a part
  // bytes of a part of a warpgroup's queries
  static constexpr int kGroupPart = kOfGroup * kRowBytes;
  static constexpr int kTilePart = kTile * kRowBytes;  // bytes of a part of a tile's keys or values
  // Bytes of a warpgroup's queries, and of the keys or values of a tile.
  static constexpr int kGroupBytes = kParts * kGroupPart, kTileBytes = kParts * kTilePart;
  // Keys have two stages and values three, since values are read one tile later.
  static constexpr int kKeyStages = 2, kValueStages = 3;
  static constexpr int kAlignment = 1024;
  static constexpr size_t kSharedBytes =
      kAlignment + kGroups * kGroupBytes + (kKeyStages + kValueStages) * kTileBytes;
  // The place of a 16-byte chunk in a part, and the rows that a thread copies.
  static constexpr int kChunks = kRowBytes / 16, kRowsAtOnce = kThreads / kChunks;
  static CONTINUO_HOST_DEVICE constexpr int PlaceIn(int row, int chunk) {
    return row * kRowBytes + SwizzleIn128(row, chunk) * 16;
  }
  static_assert(kDim % 64 == 0 && kOfGroup == 64 && kSharedBytes <= size_t{227} << 10);
};

template <typename S>
__device__ void StartWgmmaQueries(unsigned char* shared, const typename S::Number* q,
                                  const AttentionStep& step, const QueryTile& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  const int chunk = thread % S::kChunks;
  for (int query = thread / S::kChunks; query < S::kQueries; query += S::kRowsAtOnce) {
    unsigned char* const to =
        shared + query / S::kOfGroup * S::kGroupBytes + S::PlaceIn(query % S::kOfGroup, chunk);
    CONTINUO_UNROLL
    for (int part = 0; part < S::kParts; ++part) {
      const int d = part * 64 + chunk * 8;
      const bool wanted = query < tile.num_pairs && d < step.head_dim;
      const typename S::Number* from = q;
      if (wanted) from += (tile.Row(query) * step.num_heads + tile.Head(query)) * step.head_dim + d;
      StartCopy16(to + part * S::kGroupPart, from, wanted);
    }
  }
}

// Starts copying the keys and values of positions [tile_begin, tile_begin + kTile), with zeros
// where no query sees them.
template <typename S>
__device__ void StartWgmmaTile(unsigned char* keys, unsigned char* values,
                               const PagedRows<const typename S::Number>& rows, int64_t tile_begin,
                               const SeenRange& seen) {
  const auto begin = static_cast<uint32_t>(tile_begin);
  const auto from = static_cast<int>(Max(0, seen.first - tile_begin));
  const auto until = static_cast<int>(Min(S::kTile, seen.end - tile_begin));
  const int first = static_cast<int>(threadIdx.x) / S::kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % S::kChunks;
  const auto row_bytes = static_cast<uint32_t>(rows.head_dim) * 2;
  CONTINUO_UNROLL
  for (int i = 0; i < S::kTile; i += S::kRowsAtOnce) {
    const int row = first + i, to = S::PlaceIn(row, chunk);
    const bool wanted = row >= from && row < until;
    const auto place = rows.PlaceOf(begin + static_cast<uint32_t>(row), wanted);
    const unsigned char* const key = place.block + place.row * row_bytes;
    CONTINUO_UNROLL
    for (int part = 0; part < S::kParts; ++part) {
      const int d = part * 64 + chunk * 8;
      const bool in_head = d < rows.head_dim;
      const unsigned char* const of_part = key + (in_head ? d * 2 : 0);
      StartCopy16(keys + part * S::kTilePart + to, of_part, wanted && in_head);
      StartCopy16(values + part * S::kTilePart + to, of_part + rows.half_bytes, wanted && in_head);
    }
  }
}

// Starts the scores of a warpgroup's queries for a tile's keys, a group of products.
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
    StartValues<typename S::Number>(acc.sums, weights[i], Behind(matrix, i * 16 * S::kRowBytes));
  }
  EndProducts();
}

template <typename S>
__device__ void RoundTile(uint32_t (&weights)[S::kTile / 16][4],
                          const float (&scores)[S::kTile / 8][4]) {
  CONTINUO_UNROLL
  for (int i = 0; i < S::kTile / 16; ++i) {
    RoundWeights<typename S::Number>(weights[i], scores[2 * i], scores[2 * i + 1]);
  }
}

// Block (x, y, z) computes the x-th last tile of the launch, so that those that see the most come
// first, of key-value head y, split z. Bound by products: the scores of a tile and the values of
// the one before are multiplied while weights are computed and the tile after next arrives.
template <typename S>
__global__ void CONTINUO_BLOCKS_OF(S::kThreads, 1)
    WgmmaAttentionKernel(typename S::Number* out, const typename S::Number* q,
                         KvLayout<const typename S::Number> kv, Divisor by_block_size,
                         AttentionStep step, TileAttentionPlan plan, int64_t first_tile,
                         float* split_sums, float* split_weights) {
  WaitForPreviousKernel();
  RequireWgmma();
  if (!kHasWgmma) return;
  using Number = typename S::Number;
  unsigned char* const queries =
      SharedMemory() + (-SharedAddress(SharedMemory()) & (S::kAlignment - 1));
  unsigned char* const keys = queries + S::kGroups * S::kGroupBytes;
  unsigned char* const values = keys + S::kKeyStages * S::kTileBytes;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int kv_head = static_cast<int>(blockIdx.y), split = static_cast<int>(blockIdx.z);
  const int64_t of_launch = gridDim.x - 1 - blockIdx.x;
  const QueryTile tile = FindTile(step, kv_head, S::kQueries, first_tile + of_launch);
  if (tile.num_pairs == 0) return;
  const SeenRange seen = SeenBy(step, tile, S::kTile, split, plan.num_splits, plan.split_tokens);
  const Results<Number> results = {
      out, split_sums, split_weights,
      ((of_launch * step.num_kv_heads + kv_head) * plan.num_splits + split) * plan.places};
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
    acc.first[half] = static_cast<int32_t>(Max(seen.begin, FirstSeen(position, step.window)));
    acc.last[half] = static_cast<int32_t>(Min(seen.end - 1, position));
  }
  // The positions that all of the tile's queries see.
  const auto all_first = static_cast<int32_t>(
      Max(seen.begin, FirstSeen(tile.Position(tile.num_pairs - 1), step.window)));
  const auto all_end = static_cast<int32_t>(Min(seen.end, tile.Position(0) + 1));
  const auto weigh = [&](float(&scores)[S::kTile / 8][4], float(&shrink)[2], int64_t tile_begin) {
    const auto begin = static_cast<int32_t>(tile_begin);
    const bool all_seen = begin >= all_first && begin + S::kTile <= all_end;
    Weigh<S>(acc, shrink, scores, step, begin, all_seen, nullptr, /*few_queries=*/false);
  };
  const auto rows =
      RowsOf(kv, by_block_size, step.block_tables + tile.seq * step.max_blocks, kv_head);
  const uint64_t group_queries =
      DescribeMatrix(SharedAddress(queries + warp / 4 * S::kGroupBytes), 0);
  StartWgmmaQueries<S>(queries, q, step, tile);
  StartWgmmaTile<S>(keys, values, rows, seen.begin, seen);
  EndCopies();
  if (seen.begin + S::kTile < seen.end) {
    StartWgmmaTile<S>(keys + S::kTileBytes, values + S::kTileBytes, rows, seen.begin + S::kTile,
                      seen);
  }
  EndCopies();
  AwaitCopies<1>();
  ShowToProducts();
  SyncBlock();
  float scores[S::kTile / 8][4], shrink[2];
  uint32_t weights[S::kTile / 16][4];
  BeginProducts();
  StartTileScores<S>(scores, group_queries, keys);
  AwaitProducts<0>(scores);
  weigh(scores, shrink, seen.begin);
  RoundTile<S>(weights, scores);

  int key_stage = 0, value_stage = 0;  // stages of the tile whose values are added
  int64_t begin = seen.begin;          // first position of that tile
  for (; begin + S::kTile < seen.end; begin += S::kTile) {
    AwaitCopies<0>();  // the next tile has arrived
    ShowToProducts();
    SyncBlock();  // all warps are done with the tile before, and with these keys
    BeginProducts();
    StartTileScores<S>(scores, group_queries, keys + (key_stage ^ 1) * S::kTileBytes);
    StartTileValues<S>(acc, weights, values + value_stage * S::kTileBytes);
    if (begin + 2 * S::kTile < seen.end) {
      const int last = value_stage == 0 ? S::kValueStages - 1 : value_stage - 1;
      StartWgmmaTile<S>(keys + key_stage * S::kTileBytes, values + last * S::kTileBytes, rows,
                        begin + 2 * S::kTile, seen);
    }
    EndCopies();
    AwaitProducts<1>(scores);
    weigh(scores, shrink, begin + S::kTile);
    AwaitProducts<0>(acc.sums);
    CONTINUO_UNROLL
    for (int i = 0; i < S::kTile / 16; ++i) HasBeenRead(weights[i]);
    ShrinkSums<S>(acc, shrink);
    RoundTile<S>(weights, scores);
    key_stage ^= 1;
    value_stage = value_stage == S::kValueStages - 1 ? 0 : value_stage + 1;
  }
  BeginProducts();
  StartTileValues<S>(acc, weights, values + value_stage * S::kTileBytes);
  AwaitProducts<0>(acc.sums);
  AwaitCopies<0>();  // with a single tile this group is empty
  acc.Reduce();
  WriteWarp(acc, results, step, tile, warp * 16);
}

}  // namespace

template <typename Number>
cudaError_t WgmmaAttention(Number* out, const Number* q, const KvLayout<const Number>& kv,
                           const AttentionStep& step, const TileAttentionPlan& plan,
                           int64_t first_tile, unsigned tiles, float* split_sums,
                           float* split_weights, KernelStream stream) {
  const dim3 grid(tiles, static_cast<unsigned>(step.num_kv_heads),
                  static_cast<unsigned>(plan.num_splits));
  const Divisor by_size = Divisor::Of(static_cast<uint32_t>(kv.block_size));
  const auto launch = [&]<typename S>(S) {
    return Launch("WgmmaAttention", WgmmaAttentionKernel<S>, grid, S::kThreads, S::kSharedBytes,
                  stream, out, q, kv, by_size, step, plan, first_tile, split_sums, split_weights);
  };
  return step.head_dim <= 64 ? launch(WgmmaShape<Number, 64>{}) : launch(WgmmaShape<Number, 128>{});
}

#define INSTANTIATE(Number)                                                                    \
  template cudaError_t WgmmaAttention(Number*, const Number*, const KvLayout<const Number>&,   \
                                      const AttentionStep&, const TileAttentionPlan&, int64_t, \
                                      unsigned, float*, float*, KernelStream)
INSTANTIATE(uint16_t);
INSTANTIATE(Half);
#undef INSTANTIATE

}  // namespace continuo::kernels::cuda
