// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "services/worker/model/load/load_options.h"

namespace continuo::model {

// The types that a Precision comes to.
struct ComputeTypes {
  kernels::WeightType weights = kernels::WeightType::kF32;
  kernels::DType activations = kernels::DType::kF32;
  kernels::DType kv = kernels::DType::kF32;
};

// "fp32", "bf16", "fp16", "int8" or "fp8", as flags, logs and the fingerprint name a type.
std::string TypeName(kernels::DType dtype);

// "auto" and the names of all types that a KV cache may have.
std::vector<std::string> KvTypeNames();

// `auto_type` is AutoType of the checkpoint. InvalidArgument lists the names that are known.
absl::StatusOr<ComputeTypes> ResolvePrecision(const Precision& precision, kernels::DType auto_type,
                                              bool is_cpu);

// InvalidArgument names the first type that `device` does not compute with or keep a KV cache in,
// and what it takes.
absl::Status CheckSupported(const kernels::Device& device, const ComputeTypes& types);

}  // namespace continuo::model
