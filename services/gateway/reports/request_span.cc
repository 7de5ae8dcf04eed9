// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/reports/request_span.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway {
namespace {

void SetStatus(const absl::Status& status, common::CallTrace* trace) {
  trace->Set("rpc.grpc.status_code", int64_t{status.raw_code()});
  const std::string reason = protocol::ReasonOf(status);
  if (!reason.empty()) trace->Set("continuo.reason", reason);
  if (status.ok()) return;
  trace->Set("error.type",
             reason.empty() ? std::string(protocol::StatusName(status.code())) : reason);
}

void SetDuration(std::string_view key, absl::Duration duration, common::CallTrace* trace) {
  if (duration != absl::InfiniteDuration()) trace->Set(key, duration);
}

}  // namespace

void CarryTrace(const common::CallTrace& trace, CallContext* context) {
  if (!trace.has_context()) return;
  // The tracestate belongs to the client's trace, and is of no use in a new one.
  const bool keeps_state = trace.has_parent();
  std::erase_if(context->forwarded, [&](const auto& entry) {
    return entry.first == "traceparent" || (entry.first == "tracestate" && !keeps_state);
  });
  context->forwarded.emplace_back("traceparent", trace.Traceparent());
}

std::string_view OperationOf(const v1::GenerateRequest& request) {
  return request.has_conversation() ? "chat" : "text_completion";
}

void SetRequest(const v1::GenerateRequest& request, common::CallTrace* trace) {
  if (!trace->recorded()) return;
  trace->Set("gen_ai.operation.name", std::string(OperationOf(request)));
  trace->Set("gen_ai.provider.name", "continuo");
  if (!request.model().empty()) trace->Set("gen_ai.request.model", request.model());
  if (request.stopping().has_max_tokens()) {
    trace->Set("gen_ai.request.max_tokens", int64_t{request.stopping().max_tokens()});
  }
  const v1::Sampling& sampling = request.sampling();
  if (sampling.num_sequences() > 1) {
    trace->Set("gen_ai.request.choice.count", int64_t{sampling.num_sequences()});
  }
  if (sampling.has_temperature()) {
    trace->Set("gen_ai.request.temperature", double{sampling.temperature()});
  }
  if (sampling.has_top_p()) trace->Set("gen_ai.request.top_p", double{sampling.top_p()});
  if (sampling.has_top_k()) trace->Set("gen_ai.request.top_k", int64_t{sampling.top_k()});
  if (sampling.has_seed()) {
    trace->Set("gen_ai.request.seed", static_cast<int64_t>(sampling.seed()));
  }
  if (sampling.has_frequency_penalty()) {
    trace->Set("gen_ai.request.frequency_penalty", double{sampling.frequency_penalty()});
  }
  if (sampling.has_presence_penalty()) {
    trace->Set("gen_ai.request.presence_penalty", double{sampling.presence_penalty()});
  }
}

void EndSpan(std::string_view operation, std::string_view pool, const RelayReport& report,
             const absl::Status& status, common::CallTrace* trace) {
  if (!trace->recorded()) return;
  SetStatus(status, trace);
  trace->Set("gen_ai.response.model", report.model);
  trace->Set("gen_ai.response.id", report.request_id);
  if (!report.finish_reasons.empty()) {
    trace->Set("gen_ai.response.finish_reasons", report.finish_reasons);
  }
  if (!pool.empty()) trace->Set("continuo.pool", std::string(pool));
  if (!report.fingerprint.empty()) trace->Set("continuo.fingerprint", report.fingerprint);
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
  trace->End(report.model.empty() ? std::string(operation)
                                  : absl::StrCat(std::string(operation), " ", report.model),
             status);
}

void EndSpan(std::string_view operation, const absl::Status& status, common::CallTrace* trace) {
  if (!trace->recorded()) return;
  SetStatus(status, trace);
  trace->End(operation, status);
}

}  // namespace continuo::gateway
