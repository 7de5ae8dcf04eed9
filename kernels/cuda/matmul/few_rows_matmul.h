// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "cuda_runtime_api.h"
#include "kernels/cuda/matmul/quantised_layout.h"

// Products of few rows, which are bound by reading matrices and, where those are small, by
// launches.
namespace continuo::kernels::cuda {

inline constexpr int kMostJoined = 3;

// out = x · wᵀ + bias: out [rows, columns]; w [columns, k] lies at `data`; bias f32 [columns] or
// null.
struct FewRowsProduct {
  void* out;
  const void* data;
  const float* bias;
  int64_t columns;
};

// Up to kMostJoined products of x [rows, k], Number being uint16_t (bf16) or Half, in one launch.
// T, of all outs, is float or Number. `format` is kDense, of Number and row-major, or of bf16 alone
// kInt8Panels or kInt4Panels; `groups` are what GroupsOf gives for it. Sums are f32, on tensor
// cores, and every row's bits depend on that row alone. A matrix is read once for each 32 rows.
// What is returned is the launch's error.
template <typename T, typename Number>
cudaError_t FewRowsMatMul(std::span<const FewRowsProduct> products, WeightFormat format,
                          const Number* x, const QuantisedGroups& groups, int64_t rows,
                          cudaStream_t stream);

}  // namespace continuo::kernels::cuda
