// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/common/telemetry/call_trace.h"
#include "services/gateway/relay/relay_report.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway {

// Makes the span the parent of the calls to workers, in place of the client's traceparent.
void CarryTrace(const common::CallTrace& trace, CallContext* context);

// The operation in OpenTelemetry's words: "chat" or "text_completion".
std::string_view OperationOf(const v1::GenerateRequest& request);
// Sets the attributes that the request determines: gen_ai.operation.name, gen_ai.request.…
void SetRequest(const v1::GenerateRequest& request, common::CallTrace* trace);

// Ends the span "OPERATION MODEL" of a relayed call, with an event for each call to a worker, each
// rejection after which another worker was tried, and each migration. `pool` is the name of its
// last pool, empty without a worker.
void EndSpan(std::string_view operation, std::string_view pool, const RelayReport& report,
             const absl::Status& status, common::CallTrace* trace);

// Ends the span "OPERATION" of a call that was rejected; its model may be any text of the client's.
void EndSpan(std::string_view operation, const absl::Status& status, common::CallTrace* trace);

}  // namespace continuo::gateway
