// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "services/common/call_trace.h"
#include "services/gateway/relay_report.h"
#include "services/gateway/stream_relay.h"

namespace continuo::gateway {

// Workers are called on behalf of the span: it takes the place of what the client sent.
void CarryTrace(const CallTrace& trace, CallContext* context);

// The span "gateway.generate" of a call that was relayed, with an event for each call to a worker
// and for each move.
void EndSpan(const RelayReport& report, const absl::Status& status, CallTrace* trace);

// Of one that was refused.
void EndSpan(const std::string& model, const absl::Status& status, CallTrace* trace);

}  // namespace continuo::gateway
