// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/worker/quantised/matrix.h"
#include "services/worker/quantised/quantisation_config.h"

namespace continuo::quantised {

// The matrices that a checkpoint's tensors give, and what becomes of the tensors.
struct Assembly {
  std::vector<std::shared_ptr<const Matrix>> matrices;
  std::vector<std::string> read;    // tensors that are parts of them
  std::vector<std::string> unused;  // tensors that tell of activations or the KV cache
};

// Joins the tensors of each quantised module. Those of other modules are not mentioned in the
// result. Any tensors may be passed whose bytes fit dtype and shape: InvalidArgument names the
// tensor that is missing, has another type or shape than its format asks for, or a value beyond its
// range; every read of Matrix::Decode then lies within the parts. The result refers to the bytes.
absl::StatusOr<Assembly> Assemble(const QuantisationConfig& config,
                                  const absl::flat_hash_map<std::string, StoredPart>& tensors);

}  // namespace continuo::quantised
