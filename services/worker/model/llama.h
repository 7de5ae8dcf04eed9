// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/model/model.h"

namespace continuo {

// Llama, Mistral and Qwen: pre-norm layers of rotary grouped-query attention and a gated MLP.
// What differs (biases, norms of query and key, windows, rope scaling, a tied head) is in the
// configuration.
absl::StatusOr<std::unique_ptr<Model>> MakeLlama(const ModelParts& parts);

// Frequencies of the rotation, [head_dim / 2]: theta^(-2i / head_dim), scaled as `rope` says
// (Hugging Face's "linear" and "llama3" in modeling_rope_utils), rounded to f32 once.
std::vector<float> RopeFrequencies(const RopeConfig& rope, int head_dim);

}  // namespace continuo
