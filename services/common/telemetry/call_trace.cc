// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/call_trace.h"

#include <utility>
#include "services/protocol/status_name.h"

namespace continuo::common {

CallTrace::CallTrace(SpanExporter* exporter, std::string_view traceparent, const Clock* clock)
    : exporter_(exporter), clock_(clock) {
  if (exporter_ == nullptr) {
    parent_ = ParseTraceparent(traceparent);
    return;
  }
  context_ = exporter_->Begin(traceparent, &parent_);
  if (!recorded()) return;
  start_ = clock_->Now();
  elapsed_start_ = clock_->Elapsed();
}

std::string CallTrace::TraceId() const {
  const std::optional<TraceContext>& context = context_.has_value() ? context_ : parent_;
  return context.has_value() ? context->TraceId() : "";
}

void CallTrace::Set(std::string_view key, OtlpValue value) {
  if (recorded()) attributes_.emplace_back(std::string(key), std::move(value));
}

void CallTrace::AddEvent(std::string_view name, absl::Duration since_start,
                         OtlpAttributes attributes) {
  if (!recorded()) return;
  events_.push_back({.name = std::string(name),
                     .time = start_ + since_start,
                     .attributes = std::move(attributes)});
}

void CallTrace::End(std::string_view name, const absl::Status& status) {
  if (!recorded()) return;
  exporter_->Add({.name = std::string(name),
                  .context = *context_,
                  .parent = parent_,
                  .start = start_,
                  // The length does not depend on jumps of the wall clock.
                  .end = start_ + (clock_->Elapsed() - elapsed_start_),
                  .attributes = std::move(attributes_),
                  .events = std::move(events_),
                  .error = status.ok() ? "" : std::string(protocol::StatusName(status.code()))});
}

}  // namespace continuo::common
