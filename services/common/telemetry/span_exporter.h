// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exports spans to an OpenTelemetry collector (OTLP over gRPC). A collector that is slow or gone
// costs spans, never a request.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "services/common/telemetry/batch_exporter.h"
#include "services/common/telemetry/otlp.h"
#include "services/common/telemetry/trace_context.h"

namespace continuo::common {

struct SpanEvent {
  std::string name;
  absl::Time time;
  OtlpAttributes attributes;
};

// One piece of work that has ended. It never contains prompt text.
struct TraceSpan {
  std::string name;
  TraceContext context;
  std::optional<TraceContext> parent;
  absl::Time start, end;
  OtlpAttributes attributes;
  std::vector<SpanEvent> events;
  std::string error;  // The name of the status code; "" after success.
};

struct SpanExporterOptions {
  OtlpTarget target;  // Its endpoint is set.
  OtlpSource source;
  BatchOptions batch;
};

// Queues spans and sends them in batches, on its own thread. Thread-safe.
class SpanExporter {
 public:
  // Fails as ReloadedTls::Open does.
  static absl::StatusOr<std::unique_ptr<SpanExporter>> Open(SpanExporterOptions options);
  ~SpanExporter() { Stop(); }
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Begins the span of a call that came with this traceparent ("" for none). Returns nullopt where
  // the caller does not record its trace, and a context that is not sampled where a new trace is
  // left out by the ratio: calls made on its behalf carry that on. Sets `parent` to the header's
  // context, or empty where the header is not valid.
  std::optional<TraceContext> Begin(std::string_view traceparent,
                                    std::optional<TraceContext>* parent);

  // Never blocks: beyond max_queued the span is dropped and counted.
  void Add(TraceSpan span) { batches_.Add(std::move(span)); }
  // Sends the queued spans, for at most a second. Spans added later are dropped. Called by one
  // thread.
  void Stop() { batches_.Stop(); }
  // The number of spans that no collector accepted.
  int64_t num_dropped() const { return batches_.num_dropped(); }

 private:
  using Stub = opentelemetry::proto::collector::trace::v1::TraceService::Stub;

  SpanExporter(SpanExporterOptions options, std::unique_ptr<ReloadedTls> tls);

  BatchResult Send(grpc::ClientContext* context, const std::vector<TraceSpan>& batch) const;

  const SpanExporterOptions options_;
  const std::unique_ptr<ReloadedTls> tls_;
  const std::unique_ptr<Stub> stub_;

  absl::Mutex mutex_;
  absl::BitGen random_ ABSL_GUARDED_BY(mutex_);

  BatchExporter<TraceSpan> batches_;  // Last: its thread uses the others.
};

}  // namespace continuo::common
