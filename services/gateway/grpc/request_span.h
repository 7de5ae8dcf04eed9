// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "services/common/telemetry/call_trace.h"
#include "services/gateway/relay/relay_report.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway {

// Workers are called on behalf of the span: it takes the place of what the client sent.
void CarryTrace(const common::CallTrace& trace, CallContext* context);

// The span "gateway.generate" of a call that was relayed, with an event for each call to a worker
// and for each move.
void EndSpan(const RelayReport& report, const absl::Status& status, common::CallTrace* trace);

// Of one that was refused.
void EndSpan(const std::string& model, const absl::Status& status, common::CallTrace* trace);

}  // namespace continuo::gateway
