// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// AttentionOps::PagedAttention without tensor cores, for any type and head size. Each row and head
// is computed by itself, in chunks of kKvChunk positions as on the CPU (docs/arithmetic.md), all in
// f32. Bits depend on the row and its sequence alone. T is the type of out and q: float, uint16_t
// (bf16) or Half. Element is the type of the cache: bytes, Half where T is, or else float or
// uint16_t.
template <typename T, typename Element>
cudaError_t SimpleAttention(T* out, const T* q, const KvLayout<const Element>& kv,
                            const AttentionStep& step, KernelStream stream);

}  // namespace continuo::kernels::cuda
