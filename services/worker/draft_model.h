// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/base/clock.h"
#include "services/worker/config.h"
#include "services/worker/engine/drafter.h"
#include "services/worker/model/loader.h"
#include "services/worker/text/text_model.h"

namespace continuo {

// How the model of --draft_model is loaded beside one that serves `context_length` tokens: in the
// same formats, on one rank. The number of KV blocks is left open.
absl::StatusOr<LoadOptions> PlanDraftLoad(const WorkerConfig& config, int context_length);

// Loads it with as many KV blocks as `target` has, and the on_stuck of its options.
// InvalidArgument where its tokenizer is not that of `text`, the target's. `clock` outlives the
// result.
absl::StatusOr<std::shared_ptr<Drafter>> LoadDraftModel(const WorkerConfig& config,
                                                        const LoadOptions& target_options,
                                                        const LoadedModel& target,
                                                        const TextModel& text, const Clock* clock);

}  // namespace continuo
