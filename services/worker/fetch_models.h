// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "services/base/clock.h"
#include "services/worker/config.h"

namespace continuo::worker {

// Puts paths in the cache of a hub where --model or --draft_model is hf://…, and fetches what is
// missing there; other models stay as they are. The environment says which hub and cache
// (hub_settings.h). Then decides what the model does (ApplyTask). Progress goes to the log. Blocks.
// Errors as hub::FetchModel and ApplyTask.
absl::StatusOr<WorkerConfig> FetchModels(WorkerConfig config, const Clock* clock);

// Does the same with what the cache has and asks no hub. NotFound where a model is not whole there.
absl::StatusOr<WorkerConfig> FindFetchedModels(WorkerConfig config);

}  // namespace continuo::worker
