// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/attention_ops.h"
#include "kernels/cuda/runtime/kernel_stream.h"

// Launchers return the launch's error.
namespace continuo::kernels::cuda {

// AttentionOps::RopeAngles with the CPU's bits (kernels/math/exact_math.h in f64). angles f32
// [rows, 2 * num_frequencies]; positions [rows].
cudaError_t RopeAngles(float* angles, const int32_t* positions, const float* frequencies,
                       int64_t rows, int64_t num_frequencies, float scale, KernelStream stream);

// AttentionOps::GrowAngles with the CPU's bits. out and angles f32 [rows, cols]; positions [rows].
cudaError_t GrowAngles(float* out, const float* angles, const int32_t* positions, int64_t rows,
                       int64_t cols, const QueryGrowth& growth, KernelStream stream);

// AttentionOps::Rope. T is float, uint16_t (bf16) or Half; x [rows, num_heads * head_dim]; angles
// as above.
template <typename T>
cudaError_t Rope(T* x, const float* angles, int64_t rows, int64_t num_heads, int64_t head_dim,
                 int64_t num_frequencies, KernelStream stream);

}  // namespace continuo::kernels::cuda
