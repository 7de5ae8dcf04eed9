// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/base/clock.h"
#include "services/common/telemetry/call_trace.h"
#include "services/gateway/relay/relay_report.h"
#include "services/gateway/reports/gateway_metrics.h"
#include "services/gateway/reports/usage_log.h"

namespace continuo::gateway {

// The record of a call of Generate, from what its relay reports. `call` and `is_again` are the
// caller's to set, and `key`.
UsageRecord RecordOf(const RelayReport& report);

// What a gateway tells of each call at its end: metrics, a line of the log, a record of usage and a
// span. Thread-safe; outlives its calls.
class CallReports {
 public:
  // All of them outlive it.
  struct Dependencies {
    GatewayMetrics* metrics = nullptr;
    UsageLog* usage = nullptr;              // Null: there is no ledger.
    common::SpanExporter* spans = nullptr;  // Null: nothing is traced.
    const Clock* clock = nullptr;
  };
  explicit CallReports(const Dependencies& dependencies) : dependencies_(dependencies) {}

  // The span of a call that begins now, a child of the client's where that sent a traceparent.
  common::CallTrace Begin(const std::string& traceparent) const;

  // A call that no admission saw ends, or one that was rejected. The model may be any text of the
  // client's. The second one ends the call's span, which has the name of the operation.
  void OnRejected(const std::string& model, const std::string& correlation_id,
                  const absl::Status& status) const;
  void OnRejected(const std::string& model, const std::string& correlation_id,
                  const absl::Status& status, std::string_view operation,
                  common::CallTrace* trace) const;

  // A call that was admitted ends. The span is named by the operation and the model.
  void OnEnd(const RelayReport& report, const UsageRecord& record, const absl::Status& status,
             std::string_view operation, common::CallTrace* trace) const;

 private:
  const Dependencies dependencies_;
};

}  // namespace continuo::gateway
