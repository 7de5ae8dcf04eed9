// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"

namespace continuo::model {

// Says how the matrices of a model are kept in memory: one value of --weights. Gains and biases are
// f32 in every scheme.
struct WeightScheme {
  kernels::WeightType dense;       // attention's and dense MLPs' matrices; names the scheme
  kernels::WeightType sensitive;   // those of values, and the last ones of some dense MLPs
  kernels::WeightType experts;     // matrices of experts
  kernels::WeightType vocabulary;  // embedding and head
  kernels::WeightType router;      // router of a layer of experts
  // Type of the activations. Empty: bf16 on CUDA devices, on the CPU as AutoType says.
  std::optional<kernels::DType> activations;
  // The devices that compute with it, where not all do; for error messages.
  std::string_view needs = "CUDA devices";

  const char* name() const { return kernels::NameOf(dense); }
};

// The table of schemes, in the order in which errors and --help list them. A new weight format is a
// row here; what computes with it is in kernels/.
std::span<const WeightScheme> WeightSchemes();

// The scheme whose dense matrices have this type.
const WeightScheme& SchemeOf(kernels::WeightType dense);

// The scheme that a value of --weights names; "auto" is the one of `auto_type`, f32 or bf16.
// InvalidArgument lists all names.
absl::StatusOr<const WeightScheme*> FindWeightScheme(const std::string& name,
                                                     kernels::DType auto_type);

// "auto" and the names of all schemes.
std::vector<std::string> WeightSchemeNames();

}  // namespace continuo::model
