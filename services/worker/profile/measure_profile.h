// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/worker/engine/types/options.h"
#include "services/worker/model/executor.h"
#include "services/worker/profile/worker_profile.h"

namespace continuo::profile {

struct MeasureOptions {
  std::string name;  // WorkerProfile::name
  engine::EngineOptions engine;
  int max_context_tokens = 0;
  // No prompts are begun after this time, once there are steps enough for a fit.
  absl::Duration budget = absl::Seconds(60);
};

// Measures what the steps of a model cost: batches of prompts from one to 64 sequences, in chunks
// as the scheduler makes them, and the decode steps that follow. Drafts are left out, and so is the
// time of the host between two steps. Overwrites KV blocks and states, so nobody may hold any.
// FAILED_PRECONDITION if the KV cache is too small for it; else returns the error of the executor.
absl::StatusOr<WorkerProfile> MeasureProfile(const MeasureOptions& options,
                                             model::Executor& executor, const Clock& clock);

}  // namespace continuo::profile
