// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/common/telemetry/trace_context.h"

namespace continuo::common {

// The span of one call, from here to End; without an End there is none. Not thread-safe.
class CallTrace {
 public:
  // Records nothing without an exporter, or where the sender of `traceparent` ("" for none) does
  // not sample. Exporter and clock outlive this.
  CallTrace(SpanExporter* exporter, std::string_view traceparent, const Clock* clock);

  bool recorded() const { return context_.has_value(); }
  // The sender of the call is in the same trace.
  bool has_parent() const { return parent_.has_value(); }
  // For the calls made on its behalf; only where recorded.
  std::string Traceparent() const { return context_->ToHeader(); }

  // Attributes are added for the span only where it is recorded. Call End once, last.
  void Set(std::string_view key, std::variant<std::string, int64_t, double> value);
  void Set(std::string_view key, absl::Duration value) { Set(key, absl::ToDoubleSeconds(value)); }
  // Something that happened `since_start` of the call.
  void AddEvent(std::string_view name, absl::Duration since_start, SpanAttributes attributes);
  void End(std::string_view name, const absl::Status& status);

 private:
  SpanExporter* exporter_;
  const Clock* clock_;
  std::optional<TraceContext> parent_, context_;
  absl::Time start_;
  absl::Duration elapsed_start_;
  SpanAttributes attributes_;
  std::vector<SpanEvent> events_;
};

}  // namespace continuo::common
