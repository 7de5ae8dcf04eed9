// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "cuda_runtime_api.h"
#include "kernels/cuda/matmul/quantised_layout.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cuda {

// Backend::ExpertMatMul by kernels that read the numbers of rows on the device: out [entries,
// columns] of T, float or Number; x of Number, uint16_t (bf16) or Half, its row of entry i is
// x_rows[i], or i where that is null; all experts [columns, k] of Number, or quantised where that
// is bf16; expert_begin [experts + 1]. An entry's bits depend on its row and expert alone. For few
// rows an expert: a matrix is read once for every 16 of them, or 32 where they are more. Returns
// the first launch's error.
template <typename T, typename Number>
cudaError_t ExpertMatMul(T* out, const Number* x, const int32_t* x_rows,
                         const int32_t* expert_begin, std::span<const Weight> experts,
                         const QuantisedGroups& groups, int64_t num_entries, int64_t columns,
                         cudaStream_t stream);

}  // namespace continuo::kernels::cuda
