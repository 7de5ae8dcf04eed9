// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/load/precision.h"

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/weight_schemes.h"

namespace continuo::model {
namespace {

constexpr kernels::DType kKvTypes[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                       kernels::DType::kF16, kernels::DType::kI8,
                                       kernels::DType::kF8};

absl::StatusOr<kernels::DType> FindKvType(const std::string& name, kernels::DType activations) {
  if (name == "auto") return activations;
  for (const kernels::DType type : kKvTypes) {
    if (name == TypeName(type)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("kv_dtype is \"", name, "\"; it must be auto, fp32, bf16, fp16, int8 or fp8"));
}

absl::Status CheckWeightType(const kernels::Device& device, kernels::WeightType weights) {
  if (device.ops().matmul.SupportsWeights(weights)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weights is ", kernels::NameOf(weights), ", with which ", device.name(),
                   " does not compute; it needs ", std::string(SchemeOf(weights).needs)));
}

absl::Status CheckKvType(const kernels::Device& device, kernels::DType kv,
                         kernels::DType activations) {
  if (device.ops().attention.SupportsKvType(kv, activations)) return absl::OkStatus();
  std::string taken = "auto";
  for (const kernels::DType type : kKvTypes) {
    if (device.ops().attention.SupportsKvType(type, activations))
      absl::StrAppend(&taken, ", ", TypeName(type));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "kv_dtype is ", TypeName(kv), ", in which ", device.name(),
      " keeps no keys and values beside activations in ", TypeName(activations), "; it takes ",
      taken, kv == kernels::DType::kF16 ? "; fp16 goes with fp16 weights on CUDA devices" : ""));
}

}  // namespace

std::string TypeName(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kBF16:
      return "bf16";
    case kernels::DType::kF16:
      return "fp16";
    case kernels::DType::kI8:
      return "int8";
    case kernels::DType::kF8:
      return "fp8";
    default:
      return "fp32";
  }
}

std::vector<std::string> KvTypeNames() {
  std::vector<std::string> names = {"auto"};
  for (const kernels::DType type : kKvTypes) names.push_back(TypeName(type));
  return names;
}

absl::StatusOr<ComputeTypes> ResolvePrecision(const Precision& precision, kernels::DType auto_type,
                                              bool is_cpu) {
  ComputeTypes types;
  ASSIGN_OR_RETURN(const WeightScheme* const scheme,
                   FindWeightScheme(precision.weights, auto_type));
  types.weights = scheme->dense;
  types.activations = scheme->activations.value_or(is_cpu ? auto_type : kernels::DType::kBF16);
  ASSIGN_OR_RETURN(types.kv, FindKvType(precision.kv_dtype, types.activations));
  return types;
}

absl::Status CheckSupported(const kernels::Device& device, const ComputeTypes& types) {
  RETURN_IF_ERROR(CheckWeightType(device, types.weights));
  return CheckKvType(device, types.kv, types.activations);
}

}  // namespace continuo::model
