// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/attention/tile_attention.h"

namespace continuo::kernels::cuda {

// The tiles of TileAttention with kPromptQueries queries each, for prompts: products are a
// warpgroup's (warpgroup.h), so for devices of compute capability 9.0 alone.
inline constexpr int kPromptQueries = 128;

// Whether there is a kernel for heads of this size.
constexpr bool HasPromptAttention(int head_dim) { return head_dim % 8 == 0 && head_dim <= 128; }

// `tiles` of them from first_tile on, for every key-value head and split. The rest is as in
// TileAttention; split_sums is null where there is one split, else [tiles, num_kv_heads,
// num_splits, places, head_dim], split_weights the same with 2 in the place of head_dim.
template <typename Number>
cudaError_t PromptAttention(Number* out, const Number* q, const KvLayout<const Number>& kv,
                            const AttentionStep& step, const TileAttentionPlan& plan,
                            int64_t first_tile, unsigned tiles, float* split_sums,
                            float* split_weights, cudaStream_t stream);

}  // namespace continuo::kernels::cuda
