// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/runtime/kernel_stream.h"
#include "kernels/row_ops.h"

// Ops on rows. T and W are float, uint16_t (bf16) or Half. Every row's bits depend on that row
// alone. Launchers return the launch's error.
namespace continuo::kernels::cuda {

inline constexpr int kRowThreads = 256;  // threads that share a row

// RowOps::Embed. out [rows, cols]; table [table_rows, cols]; ids [rows]. W is Half where T is, and
// may be Half where T is float.
template <typename T, typename W>
cudaError_t Embed(T* out, const W* table, const int32_t* ids, int64_t rows, int64_t cols,
                  int64_t table_rows, int first_id, float scale, KernelStream stream);

// RowOps::Embed with an int8 or int4 table. out [rows, k] of float or uint16_t; a row of the table
// is a column of `table`; ids [rows].
template <bool kFour, typename T>
cudaError_t EmbedQuantised(T* out, const QuantisedMatrix<kFour>& table, const int32_t* ids,
                           int64_t rows, int64_t table_rows, int first_id, float scale,
                           KernelStream stream);

// RowOps::RmsNorm. x and out [rows, cols] may be the same; gain f32 [cols].
template <typename T>
cudaError_t RmsNorm(T* out, const T* x, const float* gain, int64_t rows, int64_t cols, float eps,
                    KernelStream stream);

// RowOps::LayerNorm. x and out [rows, cols] may be the same; gain f32 [cols]; bias f32 [cols] or
// null.
template <typename T>
cudaError_t LayerNorm(T* out, const T* x, const float* gain, const float* bias, int64_t rows,
                      int64_t cols, float eps, KernelStream stream);

// RowOps::SumSquares. out f32 [rows, groups]; x: the first group of the first row of [rows, cols].
template <typename T>
cudaError_t SumSquares(float* out, const T* x, int64_t rows, int64_t cols, int64_t groups,
                       int64_t width, KernelStream stream);

// RowOps::RmsNormBySquares. x [rows, cols]; squares f32 [rows, heads]; gain f32 [cols].
template <typename T>
cudaError_t RmsNormBySquares(T* x, const float* squares, const float* gain, int64_t rows,
                             int64_t cols, int64_t heads, int64_t count, float eps,
                             const NormGroups& groups, KernelStream stream);

// RowOps::AddSum. x [rows, cols]; sum f32 [rows, cols]; bias f32 [cols] or null.
template <typename T>
cudaError_t AddSum(T* x, const float* sum, const float* bias, int64_t rows, int64_t cols,
                   KernelStream stream);

// RowOps::AddSumNorm. x and out [rows, cols] do not overlap; sum f32 [rows, cols]; bias f32 [cols]
// or null; gain f32 [cols]. Where `fp8` has memory, out's rows are also rounded to e4m3, from bf16
// only.
template <typename T>
cudaError_t AddSumNorm(T* out, const Fp8Rows& fp8, T* x, const float* sum, const float* bias,
                       const float* gain, int64_t rows, int64_t cols, float eps,
                       KernelStream stream);

// out = sum + bias (f32 [cols] or null), rounded to T: the last step of a product. Rows of `sum`
// are `stride` elements apart.
template <typename T>
cudaError_t AddBias(T* out, const float* sum, int64_t stride, const float* bias, int64_t rows,
                    int64_t cols, KernelStream stream);

// out[i] = x[rows[i]]: out [n, cols].
template <typename T>
cudaError_t GatherRows(T* out, const T* x, const int32_t* rows, int64_t n, int64_t cols,
                       KernelStream stream);

// RowOps::CopyHeads of rows of out_cols and x_cols elements.
template <typename T>
cudaError_t CopyHeads(T* out, const T* x, int64_t rows, int64_t out_cols, int64_t x_cols,
                      const HeadPlaces& places, KernelStream stream);

// out = x, n elements of bf16 widened to f32.
cudaError_t ToFloats(float* out, const uint16_t* x, int64_t n, KernelStream stream);

}  // namespace continuo::kernels::cuda
