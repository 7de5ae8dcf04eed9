// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/runtime/kernel_stream.h"
#include "kernels/tensor.h"

// Launchers return the launch's error.
namespace continuo::kernels::cuda {

// AttentionOps::WriteKv. k and v [rows, num_heads * head_dim] have type T: float, uint16_t (bf16)
// or Half; slots [rows]. Element is a byte type, Half where T is, or else float or uint16_t. For
// int8_t each row is rounded to the nearest of -127 … 127 times its scale, with the CPU's bytes;
// for uint8_t to e4m3, whose largest number is 448.
template <typename T, typename Element>
cudaError_t WriteKv(const KvLayout<Element>& kv, const T* k, const T* v, const int32_t* slots,
                    int64_t rows, KernelStream stream);

// HeadRotation as a kernel sees it: gains are f32 [head_dim] or null, and angles are as Rope takes
// them.
struct HeadRotationArrays {
  const float* q_gain;
  const float* k_gain;
  float eps;
  const float* angles;
  int num_frequencies;
};

// The largest head that RotateAndWriteKv takes: a warp's threads load 16 bytes each.
constexpr int64_t MaxHeadDim(DType dtype) { return 32 * 16 / static_cast<int64_t>(SizeOf(dtype)); }

// The heads of rows of T. Rows of q are q_stride elements apart, those of k and v kv_stride.
template <typename T>
struct HeadArrays {
  const T* q;    // num_heads of them
  T* rotated_q;  // [rows, num_heads * head_dim]; may be q where that lies side by side
  T* k;          // holds anything afterwards
  const T* v;
  int64_t q_stride, kv_stride;
  int num_heads;
};

// AttentionOps::RotateAndWriteKv. Heads are 16-byte aligned, and none is larger than MaxHeadDim.
template <typename T, typename Element>
cudaError_t RotateAndWriteKv(const KvLayout<Element>& kv, const HeadArrays<T>& heads,
                             const int32_t* slots, int64_t rows, const HeadRotationArrays& how,
                             KernelStream stream);

// AttentionOps::CopyKvBlocks with blocks of block_bytes (a multiple of 4); pairs [num_pairs, 2].
cudaError_t CopyKvBlocks(void* cache, int64_t block_bytes, const int32_t* pairs, int64_t num_pairs,
                         KernelStream stream);

}  // namespace continuo::kernels::cuda
