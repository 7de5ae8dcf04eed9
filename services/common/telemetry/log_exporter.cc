// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/log_exporter.h"

#include <utility>

#include "absl/memory/memory.h"
#include "services/base/status_macros.h"

namespace continuo::common {

namespace otlp = opentelemetry::proto;

absl::StatusOr<std::unique_ptr<LogExporter>> LogExporter::Open(std::string what,
                                                               LogExporterOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReloadedTls> tls, ReloadedTls::Open(options.target.tls));
  return absl::WrapUnique(new LogExporter(std::move(what), std::move(options), std::move(tls)));
}

LogExporter::LogExporter(std::string what, LogExporterOptions options,
                         std::unique_ptr<ReloadedTls> tls)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      stub_(otlp::collector::logs::v1::LogsService::NewStub(
          OtlpChannel(options_.target.endpoint, tls_.get()))),
      batches_(std::move(what), options_.batch,
               [this](grpc::ClientContext* context, const std::vector<LogRecord>& batch) {
                 return Send(context, batch);
               }) {}

BatchResult LogExporter::Send(grpc::ClientContext* context,
                              const std::vector<LogRecord>& batch) const {
  otlp::collector::logs::v1::ExportLogsServiceRequest request;
  otlp::logs::v1::ResourceLogs* const resource = request.add_resource_logs();
  SetResource(options_.source, resource->mutable_resource());
  otlp::logs::v1::ScopeLogs* const scope = resource->add_scope_logs();
  scope->mutable_scope()->set_name("continuo");
  for (const LogRecord& record : batch) {
    otlp::logs::v1::LogRecord* const to = scope->add_log_records();
    const auto time = static_cast<uint64_t>(absl::ToUnixNanos(record.time));
    to->set_time_unix_nano(time);
    to->set_observed_time_unix_nano(time);
    to->set_severity_number(otlp::logs::v1::SEVERITY_NUMBER_INFO);
    to->set_severity_text("INFO");
    to->set_event_name(record.event);
    to->mutable_body()->set_string_value(record.event);
    SetAttributes(record.attributes, to);
  }
  otlp::collector::logs::v1::ExportLogsServiceResponse response;
  const grpc::Status status = stub_->Export(context, request, &response);
  if (status.ok()) return {.num_rejected = response.partial_success().rejected_log_records()};
  return {.is_retryable = IsRetryable(status), .num_rejected = static_cast<int64_t>(batch.size())};
}

}  // namespace continuo::common
