// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/tensor.h"

// What launchers return is the launch's error.
namespace continuo::kernels::cuda {

// Backend::WriteKv. k, v [rows, num_heads * head_dim] of T, float, uint16_t (bf16) or Half, slots
// [rows]; Element is of bytes, Half where T is, or else float or uint16_t. Into int8_t each row is
// rounded to the nearest of -127 … 127 times its scale, the bytes being the CPU's; into uint8_t
// likewise to those of e4m3, the largest being 448.
template <typename T, typename Element>
cudaError_t WriteKv(const KvLayout<Element>& kv, const T* k, const T* v, const int32_t* slots,
                    int64_t rows, cudaStream_t stream);

// Backend::HeadRotation, as a kernel sees it: gains f32 [head_dim] or null, angles as Rope takes
// them.
struct HeadRotationArrays {
  const float* q_gain;
  const float* k_gain;
  float eps;
  const float* angles;
  int num_frequencies;
};

// The largest head that RotateAndWriteKv takes: what a warp's threads load in 16 bytes each.
constexpr int64_t MaxHeadDim(DType dtype) { return 32 * 16 / static_cast<int64_t>(SizeOf(dtype)); }

// Backend::RotateAndWriteKv of q [rows, num_heads * head_dim]; heads lie at 16 bytes, and none is
// larger than MaxHeadDim.
template <typename T, typename Element>
cudaError_t RotateAndWriteKv(const KvLayout<Element>& kv, T* q, T* k, const T* v,
                             const int32_t* slots, int64_t rows, int num_heads,
                             const HeadRotationArrays& how, cudaStream_t stream);

// Backend::CopyKvBlocks of blocks of block_bytes (a multiple of 4): pairs [num_pairs, 2].
cudaError_t CopyKvBlocks(void* cache, int64_t block_bytes, const int32_t* pairs, int64_t num_pairs,
                         cudaStream_t stream);

}  // namespace continuo::kernels::cuda
