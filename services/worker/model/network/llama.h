// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/worker/model/network/model.h"

namespace continuo::model {

// Llama, Mistral, Mixtral, Qwen, Gemma 2 and Phi-3: pre-norm layers of rotary grouped-query
// attention and a gated MLP or a choice of several. What differs (biases, norms, windows, caps,
// activation, rope scaling, experts, a tied head) is in the configuration.
absl::StatusOr<std::unique_ptr<Model>> MakeLlama(const ModelParts& parts);

}  // namespace continuo::model
