// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/byte_tile.h"
#include "kernels/cuda/attention/warp_roles.h"
#include "kernels/cuda/attention/wgmma.h"
#include "kernels/cuda/attention/wgmma_attention.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

// How queries, keys and values come to shared memory as wgmma takes them. Only
// .cu files include this header.
namespace continuo::kernels::cuda {

// The shape of a kernel. The first warpgroup of a block brings queries, keys
// and values, kTile positions at a time, to two others of 64 queries each.
// Matrices of 16-bit elements are stored in parts of 64 columns. Number and
// Element are those of Shape (attention_tile.h).
template <typename Number_, typename Element_, int kDim_>
struct WgmmaShape {
  using Number = Number_;
  using Element = Element_;
  static constexpr bool kIsBytes = KvLayout<Element>::kHasScales;
  static constexpr bool kHasScales = false;  // for Weigh; weights are scaled after it
  using ValueNumber = std::conditional_t<kIsBytes, uint16_t, Number>;
  static constexpr int kDim = kDim_, kTile = 128;
  static constexpr int kGroups = 2, kQueries = kWgmmaQueries, kOfGroup = kQueries / kGroups;
  static constexpr int kGroupThreads = 4 * kWarp, kThreads = kGroupThreads * (1 + kGroups);
  // Registers of a thread that copies and of one that multiplies. A block
  // starts with as many for each thread, in eights, as a multiprocessor has: 64
  // Ki.
  static constexpr int kCopyRegisters = kIsBytes ? 72 : 56;
  static constexpr int kProductRegisters = kIsBytes ? 216 : 224;
  static_assert(kCopyRegisters + kGroups * kProductRegisters <=
                (1 + kGroups) * ((64 << 10) / kThreads / 8 * 8));
  static constexpr int kParts = kDim / 64;
  static constexpr int kRowBytes = 128;  // of a part
  // bytes of a part of a warpgroup's queries
  static constexpr int kGroupPart = kOfGroup * kRowBytes;
  static constexpr int kTilePart = kTile * kRowBytes;  // bytes of a part of a tile's keys or values
  // Bytes of a warpgroup's queries, and of the keys or values of a tile.
  static constexpr int kGroupBytes = kParts * kGroupPart, kTileBytes = kParts * kTilePart;
  static constexpr int kStages = kIsBytes ? 2 : 3;  // of keys, and of values
  // This many halves of tiles, keys or values, are on their way while one is
  // awaited. 8-bit elements arrive in a ring of such halves and are widened
  // from there. Scales come with keys, those of values too, and have a stage
  // more: they are still used when the keys are not.
  static constexpr int kAhead = 2;
  static constexpr int kRing = kIsBytes ? kAhead + 1 : 0;
  static constexpr int kScaleBytes = kIsBytes ? kTile * static_cast<int>(sizeof(float)) : 0;
  static constexpr int kScaleStages = kStages + 1;
  static constexpr int kArrivingBytes = kTile * kDim + 2 * kScaleBytes;
  static constexpr int kAlignment = 1024;
  static constexpr size_t kSharedBytes = kAlignment + kGroups * kGroupBytes +
                                         2 * kStages * kTileBytes + 2 * kScaleStages * kScaleBytes +
                                         kRing * kArrivingBytes +
                                         (4 * kStages + 1) * sizeof(PhaseBarrier);
  // The place of a 16-byte chunk in a part.
  static constexpr int kChunks = kRowBytes / 16;
  static CONTINUO_HOST_DEVICE constexpr int PlaceIn(int row, int chunk) {
    return row * kRowBytes + SwizzleIn128(row, chunk) * 16;
  }
  static_assert(kDim % 64 == 0 && kOfGroup == 64 && kTile == kGroupThreads);
  static_assert(kSharedBytes <= size_t{227} << 10);
};

// A block's shared memory. Keys and values have stages, each with a barrier for
// when it is full and one for when it is empty again. Tile t of all that the
// block computes, one after the other, has stage t % kStages. Queries arrive
// with the first keys, and have a barrier for when they are not used any more.
template <typename S>
struct TileStages {
  unsigned char* queries;  // [kGroups, kGroupBytes]
  unsigned char* tiles;    // keys, then values: [2, kStages, kTileBytes]
  unsigned char* scales;   // of 8-bit elements, f32 [2, kScaleStages, kTile]
  unsigned char* ring;     // [kRing, kArrivingBytes]
  PhaseBarrier* barriers;  // [2, kStages, full and empty], then the one of queries

  static __device__ TileStages In(unsigned char* shared) {
    TileStages stages;
    stages.queries = shared + (-SharedAddress(shared) & (S::kAlignment - 1));
    stages.tiles = stages.queries + S::kGroups * S::kGroupBytes;
    stages.scales = stages.tiles + 2 * S::kStages * S::kTileBytes;
    stages.ring = stages.scales + 2 * S::kScaleStages * S::kScaleBytes;
    stages.barriers = reinterpret_cast<PhaseBarrier*>(stages.ring + S::kRing * S::kArrivingBytes);
    return stages;
  }

  __device__ unsigned char* Queries(int group) const { return queries + group * S::kGroupBytes; }
  // is_value: 0 for keys, 1 for values
  __device__ unsigned char* Tile(int is_value, int tile) const {
    return tiles + (is_value * S::kStages + tile % S::kStages) * S::kTileBytes;
  }
  __device__ float* Scales(int is_value, int tile) const {
    return reinterpret_cast<float*>(scales + (is_value * S::kScaleStages + tile % S::kScaleStages) *
                                                 S::kScaleBytes);
  }
  __device__ PhaseBarrier* Full(int is_value, int tile) const {
    return barriers + (is_value * S::kStages + tile % S::kStages) * 2;
  }
  __device__ PhaseBarrier* Empty(int is_value, int tile) const { return Full(is_value, tile) + 1; }
  __device__ PhaseBarrier* QueriesUsed() const { return barriers + 4 * S::kStages; }

  // One thread calls this before all use the barriers.
  __device__ void Init() const {
    constexpr int kWarps = S::kGroupThreads / kWarp;
    for (int i = 0; i < 2 * S::kStages; ++i) {
      InitBarrier(barriers + i * 2, kWarps);
      InitBarrier(barriers + i * 2 + 1, S::kGroups * kWarps);
    }
    InitBarrier(QueriesUsed(), S::kGroups * kWarps);
  }
  // Whole warps call these.
  __device__ void AwaitFull(int is_value, int tile) const {
    AwaitPhase(Full(is_value, tile), tile / S::kStages % 2);
  }
  __device__ void AwaitEmpty(int is_value, int tile) const {
    AwaitPhase(Empty(is_value, tile), tile / S::kStages % 2 ^ 1);
  }
  __device__ void HasFilled(int is_value, int tile) const {
    ShowToProducts();
    SyncWarp();
    if (threadIdx.x % kWarp == 0) Arrive(Full(is_value, tile));
  }
  __device__ void HasUsed(PhaseBarrier* barrier) const {
    SyncWarp();
    if (threadIdx.x % kWarp == 0) Arrive(barrier);
  }
};

// One work item of a block: a split of a tile of queries. Every thread finds the same one.
template <typename S>
struct WorkItem {
  QueryTile tile;
  SeenRange seen;
  int kv_head = 0, num_tiles = 0;  // of positions
  int64_t first_place = 0;         // in scratch

  // Returns one of `tiles` times key-value heads times splits. Those that see
  // the most come first, for one sequence.
  static __device__ WorkItem Find(const AttentionStep& step, const TileAttentionPlan& plan,
                                  int64_t first_tile, unsigned tiles, unsigned number) {
    const auto heads = static_cast<unsigned>(step.num_kv_heads);
    const unsigned of_head = number / heads;
    const auto splits = static_cast<unsigned>(plan.num_splits);
    const int64_t of_launch = tiles - 1 - of_head / splits;
    const auto split = static_cast<int>(of_head % splits);
    WorkItem item;
    item.kv_head = static_cast<int>(number - of_head * heads);
    item.tile = FindTile(step, item.kv_head, S::kQueries, first_tile + of_launch);
    if (item.tile.num_pairs == 0) return item;
    item.seen = SeenBy(step, item.tile, S::kTile, split, plan.num_splits, plan.split_tokens);
    item.num_tiles =
        static_cast<int>(Max(0, item.seen.end - item.seen.begin + S::kTile - 1) / S::kTile);
    item.first_place =
        ((of_launch * step.num_kv_heads + item.kv_head) * plan.num_splits + split) * plan.tile_size;
    return item;
  }
};

// Calls compute(number) for the block's part of `items`. Rounds go forwards and
// backwards in turn, so that blocks have about the same number of positions
// where items become shorter evenly.
template <typename Compute>
__device__ void ForEachItem(unsigned items, const Compute& compute) {
  unsigned first = 0;
  for (bool backwards = false; first < items; first += gridDim.x, backwards = !backwards) {
    const unsigned number = first + (backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    if (number < items) compute(number);
  }
}

// The first warpgroup starts copying queries. A thread copies the chunks that
// it may permute.
template <typename S>
__device__ void StartWgmmaQueries(unsigned char* queries, const typename S::Number* q,
                                  const AttentionStep& step, const QueryTile& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  const int chunk = thread % S::kChunks;
  for (int query = thread / S::kChunks; query < S::kQueries;
       query += S::kGroupThreads / S::kChunks) {
    unsigned char* const shared =
        queries + query / S::kOfGroup * S::kGroupBytes + S::PlaceIn(query % S::kOfGroup, chunk);
    const typename S::Number* from = q;
    if (query < tile.num_pairs) {
      from += (tile.Row(query) * step.num_heads + tile.Head(query)) * step.head_dim;
    }
    CONTINUO_UNROLL
    for (int part = 0; part < S::kParts; ++part) {
      const int d = part * 64 + chunk * 8;
      const bool wanted = query < tile.num_pairs && d < step.head_dim;
      StartCopy16(shared + part * S::kGroupPart, from + (wanted ? d : 0), wanted);
    }
  }
}

// Swaps the second and the third of each four elements, as WidenFour does with
// keys. Each thread has awaited what it copied itself.
template <typename S>
__device__ void PermuteQueries(unsigned char* queries) {
  const int thread = static_cast<int>(threadIdx.x);
  const int chunk = thread % S::kChunks;
  for (int query = thread / S::kChunks; query < S::kQueries;
       query += S::kGroupThreads / S::kChunks) {
    CONTINUO_UNROLL
    for (int part = 0; part < S::kParts; ++part) {
      auto* const words = reinterpret_cast<uint32_t*>(
          queries + query / S::kOfGroup * S::kGroupBytes + part * S::kGroupPart +
          S::PlaceIn(query % S::kOfGroup, chunk));
      Chunk<uint32_t, 4> pairs = LoadChunk<4>(words);
      CONTINUO_UNROLL
      for (int i = 0; i < 4; i += 2) {
        const uint32_t low = pairs.at[i], high = pairs.at[i + 1];
        pairs.at[i] = (low & 0xffff) | high << 16;
        pairs.at[i + 1] = low >> 16 | (high & 0xffff0000);
      }
      StoreChunk<4>(words, pairs);
    }
  }
}

// The rows that a block's queries see, tile by tile, and the order in which
// keys and values are needed: the keys of tile 0, then those of each tile
// before the values of the last.
template <typename S>
struct TileRows {
  PagedRows<const typename S::Element> rows;
  SeenRange seen;
  int num_tiles;

  struct Half {
    int is_value, tile;
  };
  __device__ int NumHalves() const { return 2 * num_tiles; }
  __device__ Half HalfAt(int i) const {
    if (i == 0) return {0, 0};
    if (i == NumHalves() - 1) return {1, num_tiles - 1};
    return i % 2 == 1 ? Half{0, (i + 1) / 2} : Half{1, i / 2 - 1};
  }
  // Rows of a tile that some query sees: [from, until).
  __device__ int64_t Begin(int tile) const { return seen.begin + int64_t{tile} * S::kTile; }
  __device__ int From(int tile) const { return static_cast<int>(Max(0, seen.first - Begin(tile))); }
  __device__ int Until(int tile) const {
    return static_cast<int>(Min(S::kTile, seen.end - Begin(tile)));
  }
  // Returns the address of a row's keys or values, whatever it is where the row
  // is not wanted.
  __device__ const unsigned char* Row(const Half& half, int row, bool wanted) const {
    const auto place =
        rows.PlaceOf(static_cast<uint32_t>(Begin(half.tile)) + static_cast<uint32_t>(row), wanted);
    constexpr auto kBytes = static_cast<uint32_t>(sizeof(typename S::Element));
    return place.block + (half.is_value != 0 ? rows.half_bytes : 0) +
           place.row * (static_cast<uint32_t>(rows.head_dim) * kBytes);
  }
  // Returns the address of the scale of a row's key; that of its value is
  // half_bytes behind.
  __device__ const unsigned char* Scale(int tile, int row, bool wanted) const {
    const auto place =
        rows.PlaceOf(static_cast<uint32_t>(Begin(tile)) + static_cast<uint32_t>(row), wanted);
    return place.block + (rows.size * static_cast<uint32_t>(rows.head_dim) + place.row * 4);
  }
};

// Starts copying 16-bit keys or values, with zeros where no query sees them.
template <typename S>
__device__ void StartHalf(unsigned char* to, const TileRows<S>& rows,
                          const typename TileRows<S>::Half& half) {
  constexpr int kAtOnce = S::kGroupThreads / S::kChunks;
  const int from = rows.From(half.tile), until = rows.Until(half.tile);
  const int first = static_cast<int>(threadIdx.x) / S::kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % S::kChunks;
  CONTINUO_UNROLL
  for (int i = 0; i < S::kTile; i += kAtOnce) {
    const int row = first + i;
    const bool wanted = row >= from && row < until;
    const unsigned char* const elements = rows.Row(half, row, wanted);
    CONTINUO_UNROLL
    for (int part = 0; part < S::kParts; ++part) {
      const int d = part * 64 + chunk * 8;
      const bool in_head = d < rows.rows.head_dim;
      StartCopy16(to + part * S::kTilePart + S::PlaceIn(row, chunk),
                  elements + (in_head ? d * 2 : 0), wanted && in_head);
    }
  }
}

// The 16-byte chunks of a half of a tile of bytes that a thread copies and
// later widens, so that no other thread has to wait for them: chunk `chunk` of
// each part, of some rows. Eight neighbours have four chunks of two rows, whose
// places in the tile are in different banks.
template <typename S>
struct OwnChunks {
  static constexpr int kOfPart = 64 / 16;
  static constexpr int kAtOnce = S::kGroupThreads / kOfPart;
  static constexpr int kNumRows = S::kTile / kAtOnce;
  int chunk = static_cast<int>(threadIdx.x) % kOfPart;
  int first = static_cast<int>(threadIdx.x) / kOfPart;

  __device__ int Row(int i) const { return first + i * kAtOnce; }
  // The place of a chunk among those that arrive.
  static __device__ int Arriving(int i, int part) {
    return ((i * S::kParts + part) * S::kGroupThreads + static_cast<int>(threadIdx.x)) * 16;
  }
};

// Starts copying 8-bit keys, with the scales of keys and values, or values to
// `arriving`, with zeros where no query sees them. kIn16: rows are 16-byte
// aligned, otherwise 4-byte aligned.
template <typename S, bool kIn16>
__device__ void StartBytes(unsigned char* arriving, const TileRows<S>& rows,
                           const typename TileRows<S>::Half& half) {
  using Own = OwnChunks<S>;
  const Own own;
  const int from = rows.From(half.tile), until = rows.Until(half.tile);
  CONTINUO_UNROLL
  for (int i = 0; i < Own::kNumRows; ++i) {
    const int row = own.Row(i);
    const bool wanted = row >= from && row < until;
    const unsigned char* const elements = rows.Row(half, row, wanted);
    CONTINUO_UNROLL
    for (int part = 0; part < S::kParts; ++part) {
      const int d = part * 64 + own.chunk * 16, rest = rows.rows.head_dim - d;
      unsigned char* const to = arriving + Own::Arriving(i, part);
      const unsigned char* const of_part = elements + (rest > 0 ? d : 0);
      if constexpr (kIn16) {
        StartCopy16(to, of_part, wanted && rest > 0);
      } else {
        StartWords(to, of_part, rest, wanted);
      }
    }
  }
  if (half.is_value != 0) return;
  const int row = static_cast<int>(threadIdx.x);
  const bool wanted = row >= from && row < until;
  const unsigned char* const scale = rows.Scale(half.tile, row, wanted);
  unsigned char* const to = arriving + S::kTile * S::kDim + row * 4;
  StartCopy4(to, scale, wanted);
  StartCopy4(to + S::kScaleBytes, scale + rows.rows.half_bytes, wanted);
}

// Widens four bytes to four Numbers, of which the second and the third are
// swapped: so no byte has to be moved first.
template <typename Number, typename Element>
__device__ inline void WidenFour(uint32_t (&pairs)[4], int i, uint32_t bytes) {
  pairs[i] = WidenPair<Number, Element>(bytes);
  pairs[i + 1] = WidenPair<Number, Element>(bytes >> 8);
}

// Widens a thread's chunks to Number, and stores them in a tile.
template <typename S, typename Number>
__device__ void WidenBytes(unsigned char* tile, const unsigned char* arriving) {
  using Own = OwnChunks<S>;
  const Own own;
  CONTINUO_UNROLL
  for (int i = 0; i < Own::kNumRows; ++i) {
    CONTINUO_UNROLL
    for (int part = 0; part < S::kParts; ++part) {
      const auto bytes =
          LoadChunk<4>(reinterpret_cast<const uint32_t*>(arriving + Own::Arriving(i, part)));
      CONTINUO_UNROLL
      for (int half = 0; half < 2; ++half) {
        Chunk<uint32_t, 4> pairs;
        WidenFour<Number, typename S::Element>(pairs.at, 0, bytes.at[half * 2]);
        WidenFour<Number, typename S::Element>(pairs.at, 2, bytes.at[half * 2 + 1]);
        StoreChunk<4>(reinterpret_cast<uint32_t*>(tile + part * S::kTilePart +
                                                  S::PlaceIn(own.Row(i), own.chunk * 2 + half)),
                      pairs);
      }
    }
  }
}
template <typename S>
__device__ void StoreScales(const TileStages<S>& stages, int tile, const unsigned char* arriving) {
  const auto* const from = reinterpret_cast<const float*>(arriving + S::kTile * S::kDim);
  const int row = static_cast<int>(threadIdx.x);
  stages.Scales(0, tile)[row] = from[row];
  stages.Scales(1, tile)[row] = from[S::kTile + row];
}

// Brings an item's queries, keys and values to their places as soon as these
// are empty: the work of the first warpgroup. `first` is the number of the
// item's first tile in the block, and bring_queries() starts copying queries.
template <typename S, typename BringQueries>
__device__ void BringTiles(const TileStages<S>& stages, const TileRows<S>& rows, int first,
                           const BringQueries& bring_queries) {
  const int num_halves = rows.NumHalves();
  if constexpr (!S::kIsBytes) {
    for (int i = 0; i < num_halves + S::kAhead; ++i) {
      if (i < num_halves) {
        const auto half = rows.HalfAt(i);
        stages.AwaitEmpty(half.is_value, first + half.tile);
        StartHalf<S>(stages.Tile(half.is_value, first + half.tile), rows, half);
        if (i == 0) bring_queries();
      }
      EndCopies();
      if (i < S::kAhead) continue;
      AwaitCopies<S::kAhead>();
      const auto arrived = rows.HalfAt(i - S::kAhead);
      stages.HasFilled(arrived.is_value, first + arrived.tile);
    }
  } else {
    const bool in_16 = rows.rows.head_dim % 16 == 0 && rows.rows.size % 4 == 0;
    int to = 0, from = 0;  // places in the ring
    const auto start = [&](int i) {
      if (i < num_halves) {
        if (in_16) {
          StartBytes<S, true>(stages.ring + to * S::kArrivingBytes, rows, rows.HalfAt(i));
        } else {
          StartBytes<S, false>(stages.ring + to * S::kArrivingBytes, rows, rows.HalfAt(i));
        }
      }
      EndCopies();
      to = to == S::kRing - 1 ? 0 : to + 1;
    };
    for (int i = 0; i < S::kAhead; ++i) start(i);
    for (int i = 0; i < num_halves; ++i) {
      const auto half = rows.HalfAt(i);
      start(i + S::kAhead);
      stages.AwaitEmpty(half.is_value, first + half.tile);
      AwaitCopies<S::kAhead>();
      unsigned char* const tile = stages.Tile(half.is_value, first + half.tile);
      const unsigned char* const arriving = stages.ring + from * S::kArrivingBytes;
      constexpr bool kAlike = std::is_same_v<typename S::Number, typename S::ValueNumber>;
      if (kAlike || half.is_value == 0) {
        WidenBytes<S, typename S::Number>(tile, arriving);
      } else {
        WidenBytes<S, typename S::ValueNumber>(tile, arriving);
      }
      if (half.is_value == 0) StoreScales<S>(stages, first + half.tile, arriving);
      if (i == 0) {
        ShowToProducts();
        bring_queries();
        EndCopies();
        AwaitCopies<0>();
        PermuteQueries<S>(stages.queries);
      }
      stages.HasFilled(half.is_value, first + half.tile);
      from = from == S::kRing - 1 ? 0 : from + 1;
    }
  }
  AwaitCopies<0>();  // empty groups
}

}  // namespace continuo::kernels::cuda
