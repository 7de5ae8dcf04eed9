// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/kv_layout.h"

// What launchers return is the launch's error.
namespace continuo::cuda {

// Backend::WriteKv. k, v [rows, num_heads * head_dim] of T, float or uint16_t (bf16), slots [rows].
// Into int8_t each row is rounded to the nearest of -127 … 127 times its scale, the bytes being the
// CPU's.
template <typename T, typename Element>
cudaError_t WriteKv(const KvLayout<Element>& kv, const T* k, const T* v, const int32_t* slots,
                    int64_t rows, cudaStream_t stream);

// Backend::CopyKvBlocks of blocks of block_bytes (a multiple of 4): pairs [num_pairs, 2].
cudaError_t CopyKvBlocks(void* cache, int64_t block_bytes, const int32_t* pairs, int64_t num_pairs,
                         cudaStream_t stream);

}  // namespace continuo::cuda
