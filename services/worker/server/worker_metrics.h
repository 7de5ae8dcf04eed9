// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "services/common/metrics.h"
#include "services/worker/engine/metrics.h"
#include "services/worker/server/worker_core.h"

namespace continuo {

// Adds every series of a worker: its own names, and the ones that vLLM's dashboards and endpoint
// pickers read. All are there from the start, at 0. Thread-safe.
void CollectWorkerMetrics(const EngineMetrics& engine, const WorkerCore& core,
                          MetricFamilies& families);

}  // namespace continuo
