// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "services/worker/model/checkpoint/safetensors.h"

namespace continuo::model {

// Replaces each tensor that holds the matrices, or the biases, of all experts of a layer by views
// of every expert's, under the names that ListWeights gives: experts.0.gate_proj.weight … Files
// stack them as [experts, out, in]; or as [experts, in, out] where biases are there too, or where
// their block is feed_forward and has a router (Llama 4). The rows of gate and up follow one
// another, or take turns where there are biases. A tensor of another shape stays, and is told of
// as one that is not read. InvalidArgument names a tensor that would have the name of another.
absl::Status UnstackExperts(absl::flat_hash_map<std::string, StoredTensor>& tensors);

}  // namespace continuo::model
