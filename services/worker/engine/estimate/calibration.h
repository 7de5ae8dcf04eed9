// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "services/base/clock.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/engine/types/options.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {

// Runs a few steps of 1 to 64 tokens through empty KV blocks, so that `cost` knows the machine when
// the first requests come. Stops if the next step is predicted to take longer than
// `options.target_step`: on a slow machine it runs one token, twice. Overwrites KV blocks, so
// nobody may hold any yet. Returns the error of the executor.
absl::Status Calibrate(const EngineOptions& options, model::Executor& executor, const Clock& clock,
                       StepCost& cost);

}  // namespace continuo::engine
