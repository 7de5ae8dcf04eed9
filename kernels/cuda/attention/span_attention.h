// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/attention/query_tile.h"

namespace continuo::kernels::cuda {

// Backend::PagedAttention for any type and size of head, without tensor cores: each row and head by
// itself, in spans of kAttentionSpan positions as the CPU does it (kernels/README.md), all in f32.
// Bits depend on the row and its sequence alone. T: of out and q, float, uint16_t (bf16) or Half;
// Element: of the cache, bytes, Half where T is, or else float or uint16_t.
template <typename T, typename Element>
cudaError_t SpanAttention(T* out, const T* q, const KvLayout<const Element>& kv,
                          const AttentionStep& step, cudaStream_t stream);

}  // namespace continuo::kernels::cuda
