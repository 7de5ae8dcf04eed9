// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "services/common/telemetry/call_trace.h"
#include "services/gateway/relay/relay_report.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway {

// Makes the span the parent of the calls to workers, in place of the client's traceparent.
void CarryTrace(const common::CallTrace& trace, CallContext* context);

// Ends the span "gateway.generate" of a relayed call, with an event for each call to a worker, each
// rejection after which another worker was tried, and each migration.
void EndSpan(const RelayReport& report, const absl::Status& status, common::CallTrace* trace);

// Ends the span of a call that was rejected.
void EndSpan(const std::string& model, const absl::Status& status, common::CallTrace* trace);

}  // namespace continuo::gateway
