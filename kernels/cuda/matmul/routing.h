// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"

// Mixture of experts, but for the products. What launchers return is the launch's error.
namespace continuo::kernels::cuda {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsPerRow = 32;

// The arrays of ExpertRoutes (kernels/backend.h).
struct RouteArrays {
  float* weights = nullptr;         // [rows, per_row]
  int32_t* entries = nullptr;       // [rows, per_row]
  int32_t* rows = nullptr;          // [rows * per_row]
  int32_t* expert_begin = nullptr;  // [num_experts + 1]
};

// Backend::RouteExperts, with the CPU's exponentials and order of sums. logits [rows, num_experts];
// at most kMaxExperts, of which a row takes at most kMaxExpertsPerRow.
cudaError_t RouteExperts(const RouteArrays& routes, const float* logits, int64_t rows,
                         int num_experts, int per_row, bool normalise, cudaStream_t stream);

// Backend::CombineExperts: out [rows, cols], x [rows * per_row, cols].
cudaError_t CombineExperts(float* out, const float* x, const float* weights, const int32_t* entries,
                           int64_t rows, int64_t cols, int per_row, cudaStream_t stream);

}  // namespace continuo::kernels::cuda
