// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "services/common/telemetry/metrics.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/server/grpc/worker_core.h"

namespace continuo::server {

// Adds every series of a worker: its own names, and the ones that vLLM's dashboards and endpoint
// pickers read. All are there from the start, at 0. Thread-safe.
void CollectWorkerMetrics(const engine::EngineMetrics& engine, const WorkerCore& core,
                          common::MetricFamilies& families);

}  // namespace continuo::server
