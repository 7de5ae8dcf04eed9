// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exports spans to an OpenTelemetry collector (OTLP over gRPC). A collector that is slow or gone
// costs spans, never a request.

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "services/common/flags.h"
#include "services/common/telemetry/trace_context.h"
#include "services/common/tls.h"

namespace continuo::common {

// Texts are cut to 256 bytes and made valid UTF-8.
using SpanValue = std::variant<std::string, int64_t, double, std::vector<std::string>>;
using SpanAttributes = std::vector<std::pair<std::string, SpanValue>>;

struct SpanEvent {
  std::string name;
  absl::Time time;
  SpanAttributes attributes;
};

// One piece of work that has ended. It never contains prompt text.
struct TraceSpan {
  std::string name;
  TraceContext context;
  std::optional<TraceContext> parent;
  absl::Time start, end;
  SpanAttributes attributes;
  std::vector<SpanEvent> events;
  std::string error;  // The name of the status code; "" after success.
};

// The collector.
struct SpanTarget {
  std::string endpoint;  // "host:port"; "" exports nothing.
  // Without files spans are sent in the clear, as to a collector in the same pod.
  TlsFiles tls = {.flag_prefix = "otlp_tls"};
  // The share of the traces that begin here that are recorded. A call that comes with a trace is
  // recorded if that is.
  double sample_ratio = 1;
};
// Adds --otlp_endpoint, --otlp_tls_ca_file, --otlp_tls_cert_file, --otlp_tls_key_file and
// --trace_sample_ratio.
void AddSpanFlags(Flags& flags, SpanTarget* target);

struct SpanExporterOptions {
  SpanTarget target;     // Its endpoint is set.
  std::string service;   // The attribute service.name.
  std::string instance;  // The attribute service.instance.id.
  size_t max_queued = 4096;
  size_t max_batch = 512;
  // A batch that is not full is sent after this time.
  absl::Duration max_wait = absl::Seconds(1);
  absl::Duration timeout = absl::Seconds(5);  // The deadline of sending a batch.
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

  // Queues a span. Never blocks: beyond max_queued the span is dropped and counted.
  void Add(TraceSpan span);

  // Sends the queued spans, for at most a second. Spans added later are dropped. Called by one
  // thread.
  void Stop();

  // The number of spans that no collector accepted.
  int64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }

 private:
  using Stub = opentelemetry::proto::collector::trace::v1::TraceService::Stub;

  SpanExporter(SpanExporterOptions options, std::unique_ptr<ReloadedTls> tls);

  void Run();
  void Send(std::vector<TraceSpan> batch, absl::Duration timeout);

  const SpanExporterOptions options_;
  const std::unique_ptr<ReloadedTls> tls_;
  std::unique_ptr<Stub> stub_;
  std::atomic<int64_t> num_dropped_ = 0;
  bool failing_ = false;  // The state that was logged last; only used by the sending thread.

  absl::Mutex mutex_;
  absl::BitGen random_ ABSL_GUARDED_BY(mutex_);
  std::deque<TraceSpan> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The call that sends a batch, which Stop cancels.
  grpc::ClientContext* sending_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread sender_;
};

}  // namespace continuo::common
