// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/worker/model/network/model.h"

namespace continuo::model {

// The decoder-only transformer of Llama, Mistral, Mixtral, Qwen, Gemma 2 and Phi-3: pre-norm layers
// of rotary grouped-query attention and a gated MLP or a mixture of experts. The families differ in
// their configuration: biases, norms, windows, caps, activation, rope scaling, experts, a tied
// head.
absl::StatusOr<std::unique_ptr<Model>> MakeDecoder(const ModelDependencies& parts);

}  // namespace continuo::model
