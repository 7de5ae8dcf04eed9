// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/request_span.h"

#include <utility>
#include <vector>

#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

constexpr char kName[] = "gateway.generate";

void SetStatus(const std::string& model, const absl::Status& status, common::CallTrace* trace) {
  trace->Set("gen_ai.request.model", model);
  trace->Set("rpc.grpc.status_code", int64_t{status.raw_code()});
  if (const std::string reason = protocol::ReasonOf(status); !reason.empty()) {
    trace->Set("continuo.reason", reason);
  }
}

void SetDuration(std::string_view key, absl::Duration duration, common::CallTrace* trace) {
  if (duration != absl::InfiniteDuration()) trace->Set(key, duration);
}

}  // namespace

void CarryTrace(const common::CallTrace& trace, CallContext* context) {
  if (!trace.recorded()) return;
  // The tracestate belongs to the client's trace, and is of no use in a new one.
  const bool keeps_state = trace.has_parent();
  std::erase_if(context->forwarded, [&](const auto& entry) {
    return entry.first == "traceparent" || (entry.first == "tracestate" && !keeps_state);
  });
  context->forwarded.emplace_back("traceparent", trace.Traceparent());
}

void EndSpan(const RelayReport& report, const absl::Status& status, common::CallTrace* trace) {
  if (!trace->recorded()) return;
  SetStatus(report.model, status, trace);
  trace->Set("gen_ai.usage.input_tokens", report.prompt_tokens);
  trace->Set("gen_ai.usage.output_tokens", report.completion_tokens);
  trace->Set("continuo.request_id", report.request_id);
  trace->Set("continuo.tenant", report.tenant);
  trace->Set("continuo.worker", report.worker);
  trace->Set("continuo.migrations", int64_t{report.migrations});
  trace->Set("continuo.without_worker_seconds", report.without_worker);
  SetDuration("continuo.queue_seconds", report.queue, trace);
  SetDuration("continuo.prefill_seconds", report.prefill, trace);
  SetDuration("continuo.time_to_first_token_seconds", report.time_to_first_token, trace);
  trace->Set("continuo.stall_seconds", report.stall);
  trace->Set("continuo.longest_gap_seconds", report.longest_gap);
  for (const RelayAttempt& attempt : report.attempts) {
    trace->AddEvent("worker", attempt.begin, {{"continuo.worker", attempt.worker}});
    if (attempt.reason.empty()) continue;
    if (attempt.reason == "rejected") {
      trace->AddEvent("rejection", attempt.end, {{"continuo.worker", attempt.worker}});
      continue;
    }
    trace->AddEvent("migration", attempt.end,
                    {{"continuo.worker", attempt.worker},
                     {"continuo.migration_reason", std::string(attempt.reason)}});
  }
  trace->End(kName, status);
}

void EndSpan(const std::string& model, const absl::Status& status, common::CallTrace* trace) {
  if (!trace->recorded()) return;
  SetStatus(model, status, trace);
  trace->End(kName, status);
}

}  // namespace continuo::gateway
