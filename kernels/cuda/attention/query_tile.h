// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/runtime/host_device.h"

namespace continuo::kernels::cuda {

// A step's sequences and heads as kernels see them: the device arrays of PagedKv and the numbers of
// AttentionParams (kernels/attention_ops.h).
struct AttentionStep {
  const int32_t* block_tables = nullptr;  // [num_seqs, max_blocks]
  const int32_t* kv_len = nullptr;        // [num_seqs]
  const int32_t* query_begin = nullptr;   // [num_seqs + 1]
  int64_t first_row = 0, rows = 0;        // rows of these sequences; times all heads below 2^31
  int64_t max_blocks = 0;
  int num_seqs = 0;

  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int heads_per_kv_head = 1, first_head = 0, first_kv_head = 0;
  float scale = 1, softcap = 0;
  int window = 0, chunk = 0;
  const float* sinks = nullptr;  // [num_heads], or null
};

// Returns the first position that a query at `position` sees. The last one is its own. It never
// decreases from one position to the next.
CONTINUO_HOST_DEVICE inline int64_t FirstSeen(int64_t position, const AttentionStep& step) {
  const int64_t of_window = step.window == 0 ? 0 : Max(0, position - step.window + 1);
  if (step.chunk == 0) return of_window;
  // In 32 bits, since a division of 64 takes registers that wgmma needs.
  const uint32_t in_chunk = static_cast<uint32_t>(position) % static_cast<uint32_t>(step.chunk);
  return Max(of_window, position - in_chunk);
}

// The query heads of this rank that read a key-value head: [begin, end).
struct HeadRange {
  int begin = 0, end = 0;
  CONTINUO_HOST_DEVICE int size() const { return end - begin; }
};
CONTINUO_HOST_DEVICE inline HeadRange HeadsOf(const AttentionStep& step, int kv_head) {
  const int64_t first = int64_t{kv_head + step.first_kv_head} * step.heads_per_kv_head;
  const int64_t begin = Max(0, first - step.first_head);
  const int64_t end = Min(step.num_heads, first + step.heads_per_kv_head - step.first_head);
  return {static_cast<int>(begin), static_cast<int>(Max(begin, end))};
}
// Returns the most query heads that read one key-value head.
inline int MaxHeads(const AttentionStep& step) {
  int heads = 0;
  for (int i = 0; i < step.num_kv_heads; ++i) heads = std::max(heads, HeadsOf(step, i).size());
  return heads;
}

// Returns the sequence of a row of the step: the last one that begins at or before it. Sequences
// without rows are never found.
CONTINUO_HOST_DEVICE inline int SequenceOf(const AttentionStep& step, int64_t row) {
  int low = 0, high = step.num_seqs;  // the result is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (step.query_begin[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Queries of one sequence that are computed together: its (row, head) pairs, row by row, for the
// heads that share a key-value head. A sequence's pairs are cut into tiles of tile_size.
struct QueryTile {
  int seq = 0;
  HeadRange heads;
  int64_t first_pair = 0;  // index among the sequence's pairs
  int num_pairs = 0;
  int64_t first_row = 0;       // of the sequence, in the step
  int64_t first_position = 0;  // of that row

  CONTINUO_HOST_DEVICE int64_t Row(int i) const { return first_row + RowOfSequence(i); }
  CONTINUO_HOST_DEVICE int Head(int i) const {
    return heads.begin + static_cast<int>(Pair(i) % static_cast<uint32_t>(heads.size()));
  }
  CONTINUO_HOST_DEVICE int64_t Position(int i) const { return first_position + RowOfSequence(i); }

 private:
  // Devices divide 32-bit numbers several times as fast as 64-bit ones.
  CONTINUO_HOST_DEVICE uint32_t Pair(int i) const { return static_cast<uint32_t>(first_pair + i); }
  CONTINUO_HOST_DEVICE uint32_t RowOfSequence(int i) const {
    return Pair(i) / static_cast<uint32_t>(heads.size());
  }
};

// Numbers tiles so that each finds its sequence without a table. Sequence s begins with number
// TilesBefore(s), and some of its numbers may have no pair.
CONTINUO_HOST_DEVICE inline int64_t TilesBefore(const AttentionStep& step, int num_heads,
                                                int tile_size, int seq) {
  return (step.query_begin[seq] - step.first_row) * num_heads / tile_size + seq;
}
// Returns the largest number of tiles that such sequences can have.
CONTINUO_HOST_DEVICE inline int64_t NumTiles(int64_t rows, int num_seqs, int num_heads,
                                             int tile_size) {
  return rows * num_heads / tile_size + num_seqs;
}

// Returns the tile with this number of a key-value head. Its num_pairs is 0 if there is none.
CONTINUO_HOST_DEVICE inline QueryTile FindTile(const AttentionStep& step, int kv_head,
                                               int tile_size, int64_t number) {
  QueryTile tile;
  tile.heads = HeadsOf(step, kv_head);
  const int num_heads = tile.heads.size();
  if (num_heads == 0) return tile;
  int low = 0, high = step.num_seqs;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (TilesBefore(step, num_heads, tile_size, middle) <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  tile.seq = low;
  tile.first_row = step.query_begin[low];
  const int64_t num_rows = step.query_begin[low + 1] - tile.first_row;
  tile.first_position = step.kv_len[low] - num_rows;
  tile.first_pair = (number - TilesBefore(step, num_heads, tile_size, low)) * tile_size;
  tile.num_pairs = static_cast<int>(Max(0, Min(tile_size, num_rows * num_heads - tile.first_pair)));
  return tile;
}

// The positions that a tile sees, and those of them that belong to a split: [begin, end). begin and
// the borders of splits are multiples of `unit`. No query sees positions before `first`.
struct SeenRange {
  int64_t first = 0, begin = 0, end = 0;
};
// split_tokens: the length of each split, at the same positions for every tile. With 0 the tile's
// positions are divided evenly.
CONTINUO_HOST_DEVICE inline SeenRange SeenBy(const AttentionStep& step, const QueryTile& tile,
                                             int unit, int split, int num_splits,
                                             int64_t split_tokens) {
  SeenRange range;
  range.first = FirstSeen(tile.Position(0), step);
  const int64_t all_begin = range.first / unit * unit;
  const int64_t all_end = tile.Position(tile.num_pairs - 1) + 1;
  int64_t begin = split * split_tokens, tokens = split_tokens;
  if (split_tokens == 0) {
    const int64_t units = (all_end - all_begin + unit - 1) / unit;
    tokens = (units + num_splits - 1) / num_splits * unit;
    begin = all_begin + split * tokens;
  }
  range.begin = Max(begin, all_begin);
  range.end = Min(begin + tokens, all_end);
  return range;
}

}  // namespace continuo::kernels::cuda
