// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/tensor.h"
#include "services/base/check.h"

// Checks that several groups of ops share. A failed one ends the process.
namespace continuo::kernels {

inline bool IsActivation(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// f32 [columns], or empty.
inline void CheckBias(const Tensor& bias, int64_t columns) {
  CONTINUO_CHECK(bias.size() == 0 || (bias.dtype == DType::kF32 && bias.size() == columns));
}

// K splits of k columns: a power of two of them, perhaps empty.
inline void CheckSplits(std::span<const int64_t> split_begin, int64_t k) {
  CONTINUO_CHECK(split_begin.size() >= 2);
  const size_t num_splits = split_begin.size() - 1;
  CONTINUO_CHECK((num_splits & (num_splits - 1)) == 0);
  CONTINUO_CHECK(split_begin.front() == 0 && split_begin.back() == k);
  CONTINUO_CHECK(std::is_sorted(split_begin.begin(), split_begin.end()));
}

}  // namespace continuo::kernels
