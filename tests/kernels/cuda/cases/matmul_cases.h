// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/cublaslt_matmul.h"
#include "services/base/check.h"

// The products that cuBLASLt has algorithms for. The cases run on whatever is linked: the shim or a
// device.
namespace continuo::testing {

// A matrix of a model's weights, [columns, k].
struct WeightShape {
  const char* name;
  int64_t columns, k;
  bool is_vocabulary = false;  // never in e4m3
};

inline constexpr WeightShape kModelShapes[] = {
    {"Llama-3.1-8B's queries and output", 4096, 4096},
    {"Llama-3.1-8B's keys", 1024, 4096},
    {"Llama-3.1-8B's gate", 14336, 4096},
    {"Llama-3.1-8B's down", 4096, 14336},
    {"Llama-3.1-8B's vocabulary", 128256, 4096, true},
    {"Qwen3-0.6B's queries", 2048, 1024},
    {"Qwen3-0.6B's keys", 1024, 1024},
    {"Qwen3-0.6B's output", 1024, 2048},
    {"Qwen3-0.6B's gate", 3072, 1024},
    {"Qwen3-0.6B's down", 1024, 3072},
    {"Qwen3-0.6B's vocabulary", 151936, 1024, true},
    // The following are of one of eight ranks.
    {"a 70B's queries", 1024, 8192},
    {"a 70B's keys", 128, 8192},
    {"a 70B's output", 8192, 1024},
    {"a 70B's gate", 3584, 8192},
    {"a 70B's down", 8192, 3584},
    {"a 70B's vocabulary", 16032, 8192, true},
    // H100 is known to refuse this with scales.
    {"k 9216", 3072, 9216},
};
inline constexpr int64_t kModelRows[] = {1, 2, 16, 64, 127, 256, 257, 2048};

// Returns all products that matmul has no algorithm for; of e4m3 those that have one neither with
// scales nor without. `without_scales` gets those that have one only without.
inline std::vector<std::string> MissingAlgorithms(kernels::cuda::CublasLtMatMul& matmul,
                                                  bool with_fp8,
                                                  std::vector<std::string>* without_scales) {
  std::vector<std::string> missing;
  const auto has = [&](const kernels::cuda::CublasLtShape& shape, const std::string& name) {
    const absl::StatusOr<bool> found = matmul.Has(shape);
    if (!found.ok()) missing.push_back(absl::StrCat(name, ": ", found.status().message()));
    return found.value_or(true);
  };
  for (const WeightShape& w : kModelShapes) {
    for (const int64_t rows : kModelRows) {
      for (const kernels::DType in : {kernels::DType::kF32, kernels::DType::kBF16,
                                      kernels::DType::kF16, kernels::DType::kF8}) {
        const bool is_fp8 = in == kernels::DType::kF8;
        if (is_fp8 && (!with_fp8 || w.is_vocabulary)) continue;
        for (const kernels::DType out :
             {kernels::DType::kF32, is_fp8 ? kernels::DType::kBF16 : in}) {
          const std::string name =
              absl::StrCat(rows, " rows of ", w.name, " [", w.columns, ", ", w.k, "] in type ",
                           static_cast<int>(in), " to ", static_cast<int>(out));
          kernels::cuda::CublasLtShape shape = {.rows = rows,
                                                .columns = w.columns,
                                                .k = w.k,
                                                .in = in,
                                                .out = out,
                                                .has_scales = is_fp8};
          if (has(shape, name)) continue;
          if (is_fp8) {
            without_scales->push_back(name);
            shape.out = kernels::DType::kF32;
            shape.has_scales = false;
            if (has(shape, name)) continue;
          }
          missing.push_back(name);
        }
      }
    }
  }
  return missing;
}

}  // namespace continuo::testing
