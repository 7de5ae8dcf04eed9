// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/attention/tile_attention.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// Computes tiles of TileAttention with kWgmmaQueries queries each, for prefill. Products are wgmma
// (wgmma.h), so the device needs compute capability 9.0.
inline constexpr int kWgmmaQueries = 128;

// Returns whether there is a kernel for heads of this size.
constexpr bool HasWgmmaAttention(int head_dim) { return head_dim % 8 == 0 && head_dim <= 128; }

// Computes `tiles` tiles from first_tile on, for every key-value head and split. split_sums is null
// with one split, otherwise [tiles, num_kv_heads, num_splits, places, head_dim]; split_weights has
// 2 in the place of head_dim. The rest is as in TileAttention.
template <typename Number, typename Element>
cudaError_t WgmmaAttention(Number* out, const Number* q, const KvLayout<const Element>& kv,
                           const AttentionStep& step, const TileAttentionPlan& plan,
                           int64_t first_tile, unsigned tiles, float* split_sums,
                           float* split_weights, KernelStream stream);

}  // namespace continuo::kernels::cuda
