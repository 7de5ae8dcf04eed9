// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/kernel_stream.h"

// Mixture of experts without the products. Launchers return the launch's error.
namespace continuo::kernels::cuda {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsPerRow = 32;

// The device arrays of ExpertRoutes (kernels/expert_ops.h).
struct RouteArrays {
  float* weights = nullptr;         // [rows, per_row]
  int32_t* entries = nullptr;       // [rows, per_row]
  int32_t* rows = nullptr;          // [rows * per_row]
  int32_t* expert_begin = nullptr;  // [num_experts + 1]
};

// The members of Routing.
struct RoutingRule {
  bool by_sigmoid = false, normalise = false, chooses_by_logits = false;
  const float* correction = nullptr;  // [num_experts], or null
  int num_groups = 1, top_groups = 1;
  bool by_top_two = false;
  float factor = 1;
  const float* expert_factors = nullptr;  // [num_experts], or null
};

// The members of ExpertAddends; any may be null.
struct AddendArrays {
  const float* bias = nullptr;         // [num_experts, cols]
  const float* shared = nullptr;       // [rows, cols]
  const float* shared_gate = nullptr;  // [rows]
};

// ExpertOps::RouteExperts with the CPU's exponentials and order of sums. logits [rows,
// num_experts]; at most kMaxExperts experts, and kMaxExpertsPerRow for a row.
cudaError_t RouteExperts(const RouteArrays& routes, const float* logits, int64_t rows,
                         int num_experts, int per_row, const RoutingRule& rule,
                         KernelStream stream);

// ExpertOps::WeighInputs: out [rows * per_row, cols], x [rows, cols], of float, uint16_t (bf16) or
// Half.
template <typename T>
cudaError_t WeighInputs(T* out, const T* x, const float* weights, const int32_t* entries,
                        int64_t rows, int64_t cols, int per_row, KernelStream stream);

// ExpertOps::CombineExperts: out [rows, cols], x [rows * per_row, cols]. At most kMaxExpertsPerRow
// for a row.
cudaError_t CombineExperts(float* out, const float* x, const RouteArrays& routes,
                           const AddendArrays& addends, int64_t rows, int64_t cols, int per_row,
                           int num_experts, KernelStream stream);

}  // namespace continuo::kernels::cuda
