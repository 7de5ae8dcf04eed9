// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/attention/query_tile.h"

namespace continuo::kernels::cuda {

// Backend::PagedAttention on tensor cores, of bf16 or f16 queries over keys and values of the same
// type, int8 or e4m3. Queries, rows times the heads that share a key-value head, are computed in
// tiles of 16 or 64, so that each key and value is read once for all of them; positions are cut
// into splits, each by a block of its own, where there are too few tiles to fill the device. In a
// split: scores are sums of products in f32, of bytes, which are numbers of the queries' type
// exactly, times the key's scale; times `scale`, capped; weights e^(score − maximum so far) in f32,
// rounded to the values' type where they meet them, or, of bytes, times the value's scale and
// rounded to bf16; their sum is of what was neither scaled nor rounded; what was summed up is
// scaled down when a larger maximum comes ("Online normalizer calculation for softmax", Milakov and
// Gimelshein, 2018). Splits meet in ascending order.
//
// A row's bits depend on the other rows through the splits and the tiles' size alone: with
// split_tokens and `one_size` not at all. NaN in a value that a row does not see reaches it where
// both are of the same sequence and tile.
struct TileAttentionPlan {
  bool small_tiles = false;  // 16 queries, the warps sharing out the positions, a tile for each
                             // sequence; else 64 (32 where heads are larger than 128)
  bool warpgroups = false;   // by PromptAttention, 128 queries
  int tile_size = 0;         // that number of queries
  int places = 0;            // of a tile's queries in scratch
  int num_splits = 1;
  int64_t split_tokens = 0;  // as SeenBy's
  int64_t tiles_per_launch = 0;
};

// Whether there is a kernel for heads of this size.
constexpr bool HasTileAttention(int head_dim) { return head_dim % 8 == 0 && head_dim <= 256; }

// Whether sequences of one row each may have small tiles: if none of their key-value heads has more
// heads than a tile has queries.
bool FitsSmallTiles(const AttentionStep& step);

// scratch_bytes: of what is handed to TileAttention. max_kv_len: no sequence is longer. single:
// each sequence has one row, and FitsSmallTiles. deterministic: tiles of one size, splits at fixed
// positions. warpgroups: prompts may be PromptAttention's, where it is not.
TileAttentionPlan PlanTileAttention(const AttentionStep& step, int64_t max_kv_len,
                                    int num_multiprocessors, size_t scratch_bytes, bool single,
                                    bool deterministic, bool warpgroups);

// At least so much scratch.
size_t MinTileAttentionScratch(int num_kv_heads, int head_dim, int64_t max_kv_len);

// out, q [rows, num_heads * head_dim] of Number, uint16_t (bf16) or Half, 16-byte aligned; Element
// is Number, int8_t or uint8_t. The error is that of a launch.
template <typename Number, typename Element>
cudaError_t TileAttention(Number* out, const Number* q, const KvLayout<const Element>& kv,
                          const AttentionStep& step, const TileAttentionPlan& plan, float* scratch,
                          cudaStream_t stream);

}  // namespace continuo::kernels::cuda
