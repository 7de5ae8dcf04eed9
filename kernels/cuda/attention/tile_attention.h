// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// AttentionOps::PagedAttention on tensor cores, for bf16 or f16 queries over keys and values of the
// same type, int8 or e4m3.
//
// Queries are (row, head) pairs of the heads that share a key-value head. They are computed in
// tiles of 64, so that each key and value is read once for all of them. Positions are cut into
// splits, each computed by a block of its own, where there are too few tiles to fill the device.
//
// A split sums products of queries and keys in f32; 8-bit keys are exact in the queries' type, and
// the sum is multiplied by the key's scale. Scores are multiplied by `scale` and capped. Weights
// e^(score − maximum so far) are f32, rounded to the values' type where they meet values; for 8-bit
// values they are multiplied by the value's scale and rounded to bf16. The sum of weights is of the
// unrounded, unscaled ones. Sums are scaled down when a larger maximum comes ("Online normalizer
// calculation for softmax", Milakov and Gimelshein, 2018). Splits are merged in ascending order.
//
// A row's bits depend on the other rows through the splits and the tile size alone: not at all with
// fixed split_tokens and tiles of one size. NaN in a value that a row does not see reaches the row
// where both are in one sequence and tile.
struct TileAttentionPlan {
  bool wgmma = false;  // computed by WgmmaAttention, 128 queries
  int tile_size = 0;   // queries of a tile, otherwise 64, or 32 where heads are larger than 128
  int num_splits = 1;
  int64_t split_tokens = 0;  // as SeenBy has it
  int64_t tiles_per_launch = 0;
  int num_multiprocessors = 0;
};

// Returns whether there is a kernel for heads of this size.
constexpr bool HasTileAttention(int head_dim) { return head_dim % 8 == 0 && head_dim <= 256; }

// scratch_bytes is the size of TileAttention's scratch. No sequence is longer than max_kv_len.
// deterministic: splits are at fixed positions. wgmma: WgmmaAttention may compute the tiles unless
// they are deterministic.
TileAttentionPlan PlanTileAttention(const AttentionStep& step, int64_t max_kv_len,
                                    int num_multiprocessors, size_t scratch_bytes,
                                    bool deterministic, bool wgmma);

// Returns the least scratch that TileAttention needs, in bytes.
size_t MinTileAttentionScratch(int num_kv_heads, int head_dim, int64_t max_kv_len);

// out and q [rows, num_heads * head_dim] have type Number, uint16_t (bf16) or Half, and are 16-byte
// aligned. Element is Number, int8_t or uint8_t. Returns the error of a launch.
template <typename Number, typename Element>
cudaError_t TileAttention(Number* out, const Number* q, const KvLayout<const Element>& kv,
                          const AttentionStep& step, const TileAttentionPlan& plan, float* scratch,
                          KernelStream stream);

}  // namespace continuo::kernels::cuda
