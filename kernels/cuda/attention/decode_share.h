// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/runtime/host_device.h"

// How decode attention divides its work among thread blocks. Four words are used for it:
//   tile   the queries of one key-value head of one sequence, which has one row;
//   slice  S::kSlice positions of a tile, the unit of division;
//   share  the slices of one block, where those of all tiles follow one another, sequence by
//          sequence and head by head;
//   part   the slices of one tile in one share. A share is a list of parts.
namespace continuo::kernels::cuda {

// The slices of a sequence that its row sees. Slice i has positions [i * slice_tokens, (i + 1) *
// slice_tokens).
struct SeenSlices {
  int32_t first_seen = 0, kv_len = 0;  // positions seen: [first_seen, kv_len)
  uint32_t first = 0, num = 0;
};
CONTINUO_HOST_DEVICE inline SeenSlices SlicesOf(const AttentionStep& step, int seq,
                                                int slice_tokens) {
  SeenSlices slices;
  slices.kv_len = step.kv_len[seq];
  slices.first_seen = static_cast<int32_t>(FirstSeen(slices.kv_len - 1, step));
  const auto tokens = static_cast<uint32_t>(slice_tokens);
  slices.first = static_cast<uint32_t>(slices.first_seen) / tokens;
  slices.num = (static_cast<uint32_t>(slices.kv_len) + tokens - 1) / tokens - slices.first;
  return slices;
}

// Cuts slices into as many shares as there are blocks; the first ones have one slice more. A cut
// moves to the nearer border of its tile where it is less than `least` slices from one. So parts
// have `least` slices unless whole shares, or tiles, have fewer.
class Shares {
 public:
  Shares() = default;
  // Requires 1 <= blocks <= slices, and least >= 1.
  CONTINUO_HOST_DEVICE Shares(uint32_t slices, uint32_t blocks, uint32_t least)
      : blocks_(blocks),
        least_(least),
        each_(slices / blocks),
        num_larger_(slices - each_ * blocks) {}

  CONTINUO_HOST_DEVICE uint32_t blocks() const { return blocks_; }
  // Returns the first slice of a block's share before the cut is moved.
  CONTINUO_HOST_DEVICE uint32_t Begin(uint32_t block) const {
    return block * each_ + (block < num_larger_ ? block : num_larger_);
  }
  // Moves a cut in a tile, whose slices are [begin, end).
  CONTINUO_HOST_DEVICE uint32_t Move(uint32_t cut, uint32_t begin, uint32_t end) const {
    const uint32_t before = cut - begin, after = end - cut;
    if (before >= least_ && after >= least_) return cut;
    return before < after ? begin : end;
  }
  // Returns the first and the last block whose share begins inside of a tile. The tile is cut
  // unless the first is larger.
  CONTINUO_HOST_DEVICE uint32_t FirstInside(uint32_t begin) const {
    return LastBegunBy(begin + least_ - 1) + 1;
  }
  CONTINUO_HOST_DEVICE uint32_t LastInside(uint32_t end) const {
    return end < least_ ? 0 : LastBegunBy(end - least_);
  }

 private:
  // Returns the last block whose share begins at a slice or before it.
  CONTINUO_HOST_DEVICE uint32_t LastBegunBy(uint32_t slice) const {
    const uint32_t of_larger = num_larger_ * (each_ + 1);
    if (slice < of_larger) return slice / (each_ + 1);
    return num_larger_ + (slice - of_larger) / each_;
  }

  uint32_t blocks_ = 0, least_ = 1, each_ = 1, num_larger_ = 0;
};

// Goes through the parts of tiles in a block's share.
class Parts {
 public:
  // The share begins in sequence `seq`, and the tiles of one head of all sequences before have
  // `before` slices. `step` outlives the object.
  CONTINUO_HOST_DEVICE Parts(const AttentionStep& step, const Shares& shares, uint32_t block,
                             int slice_tokens, int seq, uint32_t before)
      : step_(step),
        shares_(shares),
        slice_tokens_(slice_tokens),
        limit_(shares.Begin(block + 1)),
        seq_(seq),
        slices_(SlicesOf(step, seq, slice_tokens)) {
    const uint32_t of_heads = before * static_cast<uint32_t>(step.num_kv_heads);
    const uint32_t cut = shares.Begin(block);
    head_ = static_cast<int>((cut - of_heads) / slices_.num);
    tile_begin_ = of_heads + static_cast<uint32_t>(head_) * slices_.num;
    begin_ = end_ = shares.Move(cut, tile_begin_, tile_end()) - tile_begin_;
  }

  // Goes to the next part, at first to the first one. Returns false if there is none.
  CONTINUO_HOST_DEVICE bool Next() {
    do {
      if (has_begun_) {
        if (limit_ <= tile_end()) return false;
        tile_begin_ = tile_end();
        if (++head_ == step_.num_kv_heads) {
          head_ = 0;
          slices_ = SlicesOf(step_, ++seq_, slice_tokens_);
        }
        begin_ = 0;
      }
      has_begun_ = true;
      end_ = limit_ >= tile_end() ? slices_.num
                                  : shares_.Move(limit_, tile_begin_, tile_end()) - tile_begin_;
    } while (begin_ >= end_);  // a cut has been moved, and nothing of the tile is in the share
    return true;
  }

  CONTINUO_HOST_DEVICE int seq() const { return seq_; }
  CONTINUO_HOST_DEVICE int head() const { return head_; }
  CONTINUO_HOST_DEVICE const SeenSlices& slices() const { return slices_; }
  // The part's slices among those of its tile.
  CONTINUO_HOST_DEVICE uint32_t begin() const { return begin_; }
  CONTINUO_HOST_DEVICE uint32_t end() const { return end_; }
  CONTINUO_HOST_DEVICE bool is_whole_tile() const { return begin_ == 0 && end_ == slices_.num; }
  // The tile's slices among all.
  CONTINUO_HOST_DEVICE uint32_t tile_begin() const { return tile_begin_; }
  CONTINUO_HOST_DEVICE uint32_t tile_end() const { return tile_begin_ + slices_.num; }

 private:
  const AttentionStep& step_;
  const Shares shares_;
  const int slice_tokens_;
  const uint32_t limit_;  // the next share's begin before the cut is moved
  int seq_, head_ = 0;
  SeenSlices slices_;
  uint32_t tile_begin_ = 0, begin_ = 0, end_ = 0;
  bool has_begun_ = false;
};

}  // namespace continuo::kernels::cuda
