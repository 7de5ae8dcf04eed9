// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exports records to an OpenTelemetry collector of logs (OTLP over gRPC).

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "opentelemetry/proto/collector/logs/v1/logs_service.grpc.pb.h"
#include "services/common/telemetry/batch_exporter.h"
#include "services/common/telemetry/otlp.h"

namespace continuo::common {

// Something that happened. It never contains prompt text.
struct LogRecord {
  std::string event;  // its kind: "continuo.usage"
  absl::Time time;
  OtlpAttributes attributes;
};

struct LogExporterOptions {
  OtlpTarget target;  // Its endpoint is set.
  OtlpSource source;
  // A collector that is gone for a while loses nothing that fits: a batch is sent until it is
  // taken, so that a collector may see one twice.
  BatchOptions batch = {.max_queued = 65536, .min_backoff = absl::Seconds(1)};
};

// Queues records and sends them in batches, on its own thread. Thread-safe.
class LogExporter {
 public:
  // Fails as ReloadedTls::Open does. `what` names the records in the log.
  static absl::StatusOr<std::unique_ptr<LogExporter>> Open(std::string what,
                                                           LogExporterOptions options);
  ~LogExporter() { Stop(); }
  LogExporter(const LogExporter&) = delete;
  LogExporter& operator=(const LogExporter&) = delete;

  // Never blocks: beyond max_queued the record is dropped and counted.
  void Add(LogRecord record) { batches_.Add(std::move(record)); }
  // Sends what is queued, for at most a second. Called by one thread.
  void Stop() { batches_.Stop(); }
  // The number of records that no collector accepted.
  int64_t num_dropped() const { return batches_.num_dropped(); }

 private:
  using Stub = opentelemetry::proto::collector::logs::v1::LogsService::Stub;

  LogExporter(std::string what, LogExporterOptions options, std::unique_ptr<ReloadedTls> tls);

  BatchResult Send(grpc::ClientContext* context, const std::vector<LogRecord>& batch) const;

  const LogExporterOptions options_;
  const std::unique_ptr<ReloadedTls> tls_;
  const std::unique_ptr<Stub> stub_;
  BatchExporter<LogRecord> batches_;  // Last: its thread uses the others.
};

}  // namespace continuo::common
