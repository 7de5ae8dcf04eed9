// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/worker/model/network/model.h"

namespace continuo::model {

// The decoder-only transformer: layers of rotary grouped-query attention and an MLP or a mixture of
// experts, composed as ModelConfig describes them. The places and kinds of norms, the rotation and
// the window of each layer, norms of queries and keys, biases, gates, multipliers and caps are
// facts of the description; no family is named here. Encoders are composed of the same layers
// (EncoderConfig).
absl::StatusOr<std::unique_ptr<Model>> MakeDecoder(const ModelDependencies& parts);

}  // namespace continuo::model
