// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/worker/config.h"
#include "services/worker/model/load/load_options.h"

namespace continuo::worker {

// Returns the flags' LoadOptions with the number of KV blocks filled in. On the CPU that is what
// the flags say, else what `available_bytes`, the container's memory, holds beside weights and
// activations, but no more than max_running sequences of the whole context can fill. A draft
// model's weights, activations and blocks count, too. On CUDA devices the loader decides.
// ResourceExhausted where the flags ask for more than `available_bytes`, with both numbers.
absl::StatusOr<model::LoadOptions> PlanLoad(const WorkerConfig& config, uint64_t available_bytes);

// Returns how to open the model of --draft_model beside one that serves `context_length` tokens:
// in the same formats, on one rank, the CPU's or that of the first device, with its KV cache later.
absl::StatusOr<model::LoadOptions> PlanDraftLoad(const WorkerConfig& config, int context_length);

}  // namespace continuo::worker
