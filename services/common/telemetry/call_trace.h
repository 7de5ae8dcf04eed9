// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/common/telemetry/trace_context.h"

namespace continuo::common {

// Records the span of one call, from the construction to End. Without End there is no span. Not
// thread-safe.
class CallTrace {
 public:
  // Records nothing without an exporter, or where the sender of `traceparent` ("" for none) or the
  // exporter does not sample the trace. Exporter and clock outlive this.
  CallTrace(SpanExporter* exporter, std::string_view traceparent, const Clock* clock);

  bool recorded() const { return context_.has_value() && context_->sampled(); }
  // There is a traceparent for calls made on its behalf, recorded or not.
  bool has_context() const { return context_.has_value(); }
  // The sender of the call is in the same trace.
  bool has_parent() const { return parent_.has_value(); }
  // The header for calls made on its behalf. Only with has_context.
  std::string Traceparent() const { return context_->ToHeader(); }
  // The id of the trace, for log lines, in hexadecimal: that of the sender where there is one, also
  // of a trace that is not recorded. Empty where there is none.
  std::string TraceId() const;

  // Adds an attribute, where the span is recorded.
  void Set(std::string_view key, OtlpValue value);
  void Set(std::string_view key, absl::Duration value) { Set(key, absl::ToDoubleSeconds(value)); }
  // Adds an event that happened `since_start` after the beginning of the call.
  void AddEvent(std::string_view name, absl::Duration since_start, OtlpAttributes attributes);
  // Ends the span and exports it. Called at most once, last.
  void End(std::string_view name, const absl::Status& status);

 private:
  SpanExporter* exporter_;
  const Clock* clock_;
  std::optional<TraceContext> parent_, context_;
  absl::Time start_;
  absl::Duration elapsed_start_;
  OtlpAttributes attributes_;
  std::vector<SpanEvent> events_;
};

}  // namespace continuo::common
