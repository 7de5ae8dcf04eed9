// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/matmul/quantised_layout.h"

// Ops with int8 and int4 matrices. T is float or uint16_t (bf16). What launchers return is the
// launch's error.
namespace continuo::kernels::cuda {

// out [n, k] bf16: what columns [first, first + n) of w stand for, rounded; first is a multiple of
// kTileColumns.
template <bool kFour>
cudaError_t Dequantise(uint16_t* out, const QuantisedMatrix<kFour>& w, int64_t first, int64_t n,
                       cudaStream_t stream);

// Backend::Embed. out [rows, k]; a row of the table is a column of `table`; ids [rows].
template <bool kFour, typename T>
cudaError_t EmbedQuantised(T* out, const QuantisedMatrix<kFour>& table, const int32_t* ids,
                           int64_t rows, int64_t table_rows, int first_id, float scale,
                           cudaStream_t stream);

}  // namespace continuo::kernels::cuda
