// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "services/base/clock.h"
#include "services/worker/engine/engine.h"
#include "services/worker/engine/step_cost.h"
#include "services/worker/model/executor.h"

namespace continuo::engine {

// Runs a few steps of 1 to 64 rows through empty KV blocks, so that the first requests meet a cost
// model that knows the machine. Ends where the next step is predicted to take longer than
// `options.target_step`: on a slow machine that is one row, twice. Writes to KV blocks that nobody
// may hold yet.
absl::Status Calibrate(const EngineOptions& options, model::Executor& executor, const Clock& clock,
                       StepCost& cost);

}  // namespace continuo::engine
