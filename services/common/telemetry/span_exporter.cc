// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/span_exporter.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/common/log.h"
#include "services/common/version.h"

namespace continuo::common {
namespace {

namespace otlp = opentelemetry::proto;

constexpr size_t kMaxTextBytes = 256;
// The deadline of the last batch, which Stop sends.
constexpr absl::Duration kGoodbye = absl::Seconds(1);

template <typename Bytes>
std::string ToBytes(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void SetValue(const std::string& value, otlp::common::v1::AnyValue* to) {
  to->set_string_value(ToValidUtf8(std::string_view(value).substr(0, kMaxTextBytes)));
}
void SetValue(int64_t value, otlp::common::v1::AnyValue* to) { to->set_int_value(value); }
void SetValue(double value, otlp::common::v1::AnyValue* to) { to->set_double_value(value); }
void SetValue(const std::vector<std::string>& values, otlp::common::v1::AnyValue* to) {
  for (const std::string& value : values) SetValue(value, to->mutable_array_value()->add_values());
}

template <typename Message>
void SetAttributes(const SpanAttributes& attributes, Message* to) {
  for (const auto& [key, value] : attributes) {
    otlp::common::v1::KeyValue* const attribute = to->add_attributes();
    attribute->set_key(key);
    std::visit([&](const auto& v) { SetValue(v, attribute->mutable_value()); }, value);
  }
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

void AddSpanFlags(Flags& flags, SpanTarget* target) {
  flags.OptionalAddress("otlp_endpoint", &target->endpoint,
                        "Address of the collector of OpenTelemetry spans (OTLP over gRPC). Empty "
                        "exports no spans.");
  flags.Text("otlp_tls_ca_file", &target->tls.ca_file,
             "PEM CA that has to have issued the collector's certificate. Spans are sent in the "
             "clear where no otlp_tls file is set.");
  flags.Text("otlp_tls_cert_file", &target->tls.cert_file,
             "PEM certificate that the collector is shown.");
  flags.Text("otlp_tls_key_file", &target->tls.key_file, "PEM key of --otlp_tls_cert_file.");
  flags.Number(
      "trace_sample_ratio", &target->sample_ratio, 0, 1,
      "Share of the requests without a traceparent that are traced. One with a traceparent "
      "is traced as that says.");
}

absl::StatusOr<std::unique_ptr<SpanExporter>> SpanExporter::Open(SpanExporterOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReloadedTls> tls, ReloadedTls::Open(options.target.tls));
  return absl::WrapUnique(new SpanExporter(std::move(options), std::move(tls)));
}

SpanExporter::SpanExporter(SpanExporterOptions options, std::unique_ptr<ReloadedTls> tls)
    : options_(std::move(options)), tls_(std::move(tls)) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  stub_ = otlp::collector::trace::v1::TraceService::NewStub(
      grpc::CreateCustomChannel(options_.target.endpoint, tls_->ForChannel(), arguments));
  sender_ = std::thread([this] { Run(); });
}

void SpanExporter::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (sending_ != nullptr) sending_->TryCancel();
  }
  if (sender_.joinable()) sender_.join();
}

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

void SpanExporter::Add(TraceSpan span) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || queue_.size() >= options_.max_queued) {
    num_dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  queue_.push_back(std::move(span));
}

void SpanExporter::Run() {
  for (;;) {
    std::vector<TraceSpan> batch;
    bool last = false;
    {
      absl::MutexLock lock(&mutex_);
      const auto full = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || queue_.size() >= options_.max_batch;
      };
      mutex_.AwaitWithTimeout(absl::Condition(&full), options_.max_wait);
      last = stopping_;
      const size_t size = std::min(queue_.size(), last ? queue_.size() : options_.max_batch);
      const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(size);
      batch.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
      queue_.erase(queue_.begin(), end);
    }
    if (!batch.empty()) Send(std::move(batch), last ? kGoodbye : options_.timeout);
    if (last) return;
  }
}

void SpanExporter::Send(std::vector<TraceSpan> batch, absl::Duration timeout) {
  otlp::collector::trace::v1::ExportTraceServiceRequest request;
  otlp::trace::v1::ResourceSpans* const resource = request.add_resource_spans();
  const auto describe = [&](const char* key, std::string_view value) {
    otlp::common::v1::KeyValue* const attribute = resource->mutable_resource()->add_attributes();
    attribute->set_key(key);
    attribute->mutable_value()->set_string_value(std::string(value));
  };
  describe("service.name", options_.service);
  describe("service.instance.id", options_.instance);
  describe("service.version", Version());
  otlp::trace::v1::ScopeSpans* const scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("continuo");
  for (const TraceSpan& span : batch) SetSpan(span, scope->add_spans());

  otlp::collector::trace::v1::ExportTraceServiceResponse response;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  {
    absl::MutexLock lock(&mutex_);
    sending_ = &context;
    // Only the last batch is sent while stopping.
    if (stopping_ && timeout != kGoodbye) context.TryCancel();
  }
  const grpc::Status status = stub_->Export(&context, request, &response);
  {
    absl::MutexLock lock(&mutex_);
    sending_ = nullptr;
  }
  // The collector may report any number.
  const int64_t rejected = status.ok() ? response.partial_success().rejected_spans()
                                       : std::numeric_limits<int64_t>::max();
  const int64_t lost = std::clamp<int64_t>(rejected, 0, static_cast<int64_t>(batch.size()));
  num_dropped_.fetch_add(lost, std::memory_order_relaxed);
  // Failures are logged when they begin and when they end.
  if (failing_ == (lost > 0)) return;
  failing_ = lost > 0;
  Log(failing_ ? LogSeverity::kWarning : LogSeverity::kInfo,
      failing_ ? "the collector takes no spans" : "the collector takes spans",
      {{"dropped", num_dropped()}});
}

}  // namespace continuo::common
