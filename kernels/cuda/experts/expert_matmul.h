// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "cuda_runtime_api.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/runtime/kernel_stream.h"
#include "kernels/tensor.h"

namespace continuo::kernels::cuda {

// ExpertOps::ExpertMatMul by kernels that read the numbers of rows on the device. out [entries,
// columns] has type T, float or Number; x has type Number, uint16_t (bf16) or Half, and entry i
// reads its row x_rows[i], or row i where x_rows is null. All experts are [columns, k] of Number,
// or quantised with bf16; bias f32 [experts, columns] or null. expert_begin is [experts + 1]. An
// entry's bits depend on its row and expert alone. Meant for few rows an expert: a matrix is read
// once for every 16 rows, or 32 where there are more. Returns the first launch's error.
template <typename T, typename Number>
cudaError_t ExpertMatMul(T* out, const Number* x, const int32_t* x_rows,
                         const int32_t* expert_begin, std::span<const Weight> experts,
                         const float* bias, const QuantisedGroups& groups, int64_t num_entries,
                         int64_t columns, KernelStream stream);

}  // namespace continuo::kernels::cuda
