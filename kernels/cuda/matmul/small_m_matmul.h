// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "cuda_runtime_api.h"
#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/runtime/kernel_stream.h"

// Products of few rows (small M). They are bound by reading matrices and, where these are small, by
// launches.
namespace continuo::kernels::cuda {

inline constexpr int kMaxJoinedProducts = 3;

// One product out = x · wᵀ + bias: out [rows, columns]; w [columns, k] lies at `data`; bias is f32
// [columns] or null.
struct SmallMProduct {
  void* out;
  const void* data;
  const float* bias;
  const float* scales;  // of e4m3 columns, or null
  int64_t columns;
};

// Computes up to kMaxJoinedProducts products of x [rows, k] in one launch. Number is uint16_t
// (bf16) or Half; T, the type of all outs, is float or Number. `format` is kDense, row-major of
// Number, or with bf16 kInt8Panels or kInt4Panels; `groups` is GroupsOf(format, …). Sums are f32,
// on tensor cores, and every row's bits depend on that row alone. A matrix is read once for every
// 32 rows. The device has num_multiprocessors, and bits do not depend on their number. Returns the
// launch's error.
template <typename T, typename Number>
cudaError_t SmallMMatMul(std::span<const SmallMProduct> products, WeightFormat format,
                         const Number* x, const QuantisedGroups& groups, int64_t rows,
                         int num_multiprocessors, KernelStream stream);

// Does the same with matrices in kFp8Rows, whose row scales are SmallMProduct::scales, and x in
// e4m3 [rows, k filled up]. `groups` is GroupsOf(kDense, …) of k filled up. A matrix is read once
// for every 64 rows.
template <typename T>
cudaError_t SmallMMatMul(std::span<const SmallMProduct> products, const Fp8Rows& x,
                         const QuantisedGroups& groups, int64_t rows, int num_multiprocessors,
                         KernelStream stream);

}  // namespace continuo::kernels::cuda
