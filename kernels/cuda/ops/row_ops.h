// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/fp8.h"

// Ops of Backend that go over rows. T and W are float, uint16_t (bf16) or Half. Every row's bits
// depend on that row alone. What launchers return is the launch's error.
namespace continuo::kernels::cuda {

inline constexpr int kRowThreads = 256;  // that share a row

// Backend::Embed. out [rows, cols]; table [table_rows, cols]; ids [rows]. W is Half where T
// is, and may be where that is float.
template <typename T, typename W>
cudaError_t Embed(T* out, const W* table, const int32_t* ids, int64_t rows, int64_t cols,
                  int64_t table_rows, int first_id, float scale, cudaStream_t stream);

// Backend::RmsNorm. x, out [rows, cols], perhaps the same; gain f32 [cols].
template <typename T>
cudaError_t RmsNorm(T* out, const T* x, const float* gain, int64_t rows, int64_t cols, float eps,
                    cudaStream_t stream);

// Backend::AddSum. x [rows, cols]; sum f32 [rows, cols]; bias f32 [cols] or null.
template <typename T>
cudaError_t AddSum(T* x, const float* sum, const float* bias, int64_t rows, int64_t cols,
                   cudaStream_t stream);

// Backend::AddSumNorm. x, out [rows, cols], apart; sum f32 [rows, cols]; bias f32 [cols] or null;
// gain f32 [cols]. Where `fp8` has memory out's rows are made e4m3 as well, of bf16 alone.
template <typename T>
cudaError_t AddSumNorm(T* out, const Fp8Rows& fp8, T* x, const float* sum, const float* bias,
                       const float* gain, int64_t rows, int64_t cols, float eps,
                       cudaStream_t stream);

// out = sum + bias (f32 [cols] or null), rounded to T: what MatMul does after its sums, whose rows
// are `stride` apart.
template <typename T>
cudaError_t AddBias(T* out, const float* sum, int64_t stride, const float* bias, int64_t rows,
                    int64_t cols, cudaStream_t stream);

// out[i] = x[rows[i]]: out [n, cols].
template <typename T>
cudaError_t GatherRows(T* out, const T* x, const int32_t* rows, int64_t n, int64_t cols,
                       cudaStream_t stream);

// out = x, bf16, widened, of n elements.
cudaError_t ToFloats(float* out, const uint16_t* x, int64_t n, cudaStream_t stream);

}  // namespace continuo::kernels::cuda
