// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// Groups of rows that one launch takes; they travel as a kernel's parameter.
inline constexpr int kMaxAdapterGroups = 32;
// K splits of a product, whose sums are kept in shared memory.
inline constexpr int kMaxAdapterSplits = 8;

// What a group's rows are multiplied with, as ShrinkGroup and ExpandGroup say. Pointers are to
// device memory.
struct AdapterGroup {
  int64_t begin = 0, end = 0;  // entries
  const void* factors = nullptr;
  bool is_bf16 = false;  // the type of the factors; else f32
  int width = 0;         // columns of A, or rows of B
  int64_t first = 0;     // Expand: the column of `inner` at which its values begin
  float factor = 1;      // Expand: of the product
  int64_t column = 0;    // Expand: of `out`, at which the product's columns begin
  int64_t columns = 0;   // Expand: of the product
};

// The rows of a launch.
struct AdapterJob {
  AdapterGroup groups[kMaxAdapterGroups];
  int num_groups = 0;
  const int32_t* rows = nullptr;  // of the entries
};

// The K splits [begin[i], begin[i + 1]) of a product.
struct AdapterSplits {
  int64_t begin[kMaxAdapterSplits + 1] = {};
  int count = 1;  // a power of two
};

// AdapterOps::Shrink of the job's groups: inner f32 [entries, inner_columns], x [rows, k]. T:
// float, uint16_t (bf16) or Half.
template <typename T>
cudaError_t ShrinkAdapters(float* inner, int64_t inner_columns, const T* x, int64_t k,
                           const AdapterJob& job, const AdapterSplits& splits, KernelStream stream);

// AdapterOps::Expand of the job's groups: out [rows, out_columns].
template <typename T>
cudaError_t ExpandAdapters(T* out, int64_t out_columns, const float* inner, int64_t inner_columns,
                           const AdapterJob& job, KernelStream stream);

}  // namespace continuo::kernels::cuda
