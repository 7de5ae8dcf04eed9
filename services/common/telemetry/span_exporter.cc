// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/span_exporter.h"

#include <utility>

#include "absl/memory/memory.h"
#include "services/base/status_macros.h"

namespace continuo::common {
namespace {

namespace otlp = opentelemetry::proto;

template <typename Bytes>
std::string ToBytes(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void SetSpan(const TraceSpan& span, otlp::trace::v1::Span* to) {
  to->set_trace_id(ToBytes(span.context.trace_id));
  to->set_span_id(ToBytes(span.context.span_id));
  if (span.parent.has_value()) to->set_parent_span_id(ToBytes(span.parent->span_id));
  to->set_name(span.name);
  to->set_kind(otlp::trace::v1::Span::SPAN_KIND_SERVER);
  to->set_start_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(span.start)));
  to->set_end_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(span.end)));
  SetAttributes(span.attributes, to);
  for (const SpanEvent& event : span.events) {
    otlp::trace::v1::Span::Event* const added = to->add_events();
    added->set_name(event.name);
    added->set_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(event.time)));
    SetAttributes(event.attributes, added);
  }
  if (span.error.empty()) return;
  to->mutable_status()->set_code(otlp::trace::v1::Status::STATUS_CODE_ERROR);
  to->mutable_status()->set_message(span.error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpanExporter>> SpanExporter::Open(SpanExporterOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReloadedTls> tls, ReloadedTls::Open(options.target.tls));
  return absl::WrapUnique(new SpanExporter(std::move(options), std::move(tls)));
}

SpanExporter::SpanExporter(SpanExporterOptions options, std::unique_ptr<ReloadedTls> tls)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      stub_(otlp::collector::trace::v1::TraceService::NewStub(
          OtlpChannel(options_.target.endpoint, tls_.get()))),
      batches_("spans", options_.batch,
               [this](grpc::ClientContext* context, const std::vector<TraceSpan>& batch) {
                 return Send(context, batch);
               }) {}

std::optional<TraceContext> SpanExporter::Begin(std::string_view traceparent,
                                                std::optional<TraceContext>* parent) {
  *parent = ParseTraceparent(traceparent);
  if (parent->has_value() && !(*parent)->sampled()) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  TraceContext context = MakeSpanContext(*parent, random_);
  if (!parent->has_value() && !absl::Bernoulli(random_, options_.target.sample_ratio)) {
    context.flags = 0;
  }
  return context;
}

BatchResult SpanExporter::Send(grpc::ClientContext* context,
                               const std::vector<TraceSpan>& batch) const {
  otlp::collector::trace::v1::ExportTraceServiceRequest request;
  otlp::trace::v1::ResourceSpans* const resource = request.add_resource_spans();
  SetResource(options_.source, resource->mutable_resource());
  otlp::trace::v1::ScopeSpans* const scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("continuo");
  for (const TraceSpan& span : batch) SetSpan(span, scope->add_spans());
  otlp::collector::trace::v1::ExportTraceServiceResponse response;
  const grpc::Status status = stub_->Export(context, request, &response);
  if (status.ok()) return {.num_rejected = response.partial_success().rejected_spans()};
  return {.is_retryable = IsRetryable(status), .num_rejected = static_cast<int64_t>(batch.size())};
}

}  // namespace continuo::common
