// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/reports/call_reports.h"

#include "services/gateway/reports/request_log.h"
#include "services/gateway/reports/request_span.h"

namespace continuo::gateway {

UsageRecord RecordOf(const RelayReport& report) {
  UsageRecord record = {.tenant = report.tenant,
                        .request_id = report.request_id,
                        .model = report.model,
                        .fingerprint = report.fingerprint,
                        .prompt_tokens = report.prompt_tokens,
                        .is_estimate = !report.usage.has_value() && report.prompt_tokens > 0,
                        .generated_tokens = report.completion_tokens,
                        .delivered_tokens = report.completion_tokens - report.replayed_tokens,
                        .migrations = report.migrations,
                        .duration = report.duration};
  if (report.usage.has_value()) {
    record.cached_tokens = report.usage->cached_prompt_tokens();
    record.generated_tokens = report.usage->completion_tokens();
    record.reasoning_tokens = report.usage->reasoning_tokens();
  }
  return record;
}

common::CallTrace CallReports::Begin(const std::string& traceparent) const {
  return common::CallTrace(dependencies_.spans, traceparent, dependencies_.clock);
}

void CallReports::OnRejected(const std::string& model, const std::string& correlation_id,
                             const absl::Status& status) const {
  dependencies_.metrics->OnRejected(model, status);
  LogRejectedRequest(model, correlation_id, status, /*trace_id=*/"");
}

void CallReports::OnRejected(const std::string& model, const std::string& correlation_id,
                             const absl::Status& status, std::string_view operation,
                             common::CallTrace* trace) const {
  dependencies_.metrics->OnRejected(model, status);
  LogRejectedRequest(model, correlation_id, status, trace->TraceId());
  EndSpan(operation, status, trace);
}

void CallReports::OnEnd(const RelayReport& report, const UsageRecord& record,
                        const absl::Status& status, std::string_view operation,
                        common::CallTrace* trace) const {
  const std::string pool(dependencies_.metrics->PoolName(report.pool));
  dependencies_.metrics->OnRequestEnd({.model = report.model, .pool = report.pool}, status,
                                      report.duration);
  dependencies_.metrics->OnTenantTokens(record.tenant, {.prompt = record.prompt_tokens,
                                                        .completion = record.delivered_tokens,
                                                        .generated = record.generated_tokens,
                                                        .cached = record.cached_tokens,
                                                        .reasoning = record.reasoning_tokens});
  LogRequest(report, status, {.trace_id = trace->TraceId(), .key = record.key, .pool = pool});
  if (dependencies_.usage != nullptr) dependencies_.usage->Write(record, status);
  EndSpan(operation, pool, report, status, trace);
}

}  // namespace continuo::gateway
