// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "services/common/telemetry/metrics.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/common/trust/peer_check.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/server/runtime/request_counters.h"
#include "services/worker/server/runtime/serving.h"
#include "services/worker/server/runtime/worker_identity.h"

namespace continuo::server {

// Adds every series of a worker: its own names, and the ones that vLLM's dashboards and endpoint
// pickers read. All are there from the start, at 0. `serving` is null while the model is being
// loaded, `spans` where nothing is traced. Thread-safe.
void CollectWorkerMetrics(const engine::EngineMetrics& engine, const RequestCounters& requests,
                          const WorkerIdentity& identity, const Serving* serving,
                          const common::SpanExporter* spans, const common::PeerCheck& peers,
                          common::MetricFamilies& families);

}  // namespace continuo::server
