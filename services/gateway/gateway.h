// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/telemetry/metrics.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/config.h"
#include "services/gateway/grpc/gateway_metrics.h"
#include "services/gateway/grpc/inference_service.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/openai/api.h"
#include "services/gateway/openai/http/http_server.h"
#include "services/gateway/relay/retry_budget.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/requests/auth.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/routing/router.h"
#include "services/gateway/workers/pool_spec.h"
#include "services/gateway/workers/resolver.h"
#include "services/gateway/workers/worker_pool.h"
#include "services/gateway/workers/worker_stream.h"

namespace continuo::gateway {

// One gateway: its objects, put together bottom-up, and their order of ending. Thread-safe.
class Gateway {
 public:
  // Listening on return. INVALID_ARGUMENT and UNAVAILABLE name the flag or the address.
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(const GatewayConfig& config);
  // Shuts down, and closes the gRPC server.
  ~Gateway();

  std::string address() const { return server_->address(); }
  // 0 where there is no HTTP.
  int http_port() const { return http_server_ == nullptr ? 0 : http_server_->port(); }
  int metrics_port() const { return metrics_server_->port(); }

  // Health NOT_SERVING, /healthz beside the metrics and /readyz 503, so that whoever follows them
  // goes elsewhere; clients of HTTP are told to connect anew. Everything is served.
  void AnnounceDrain();
  // NOT_SERVING, nothing new; open streams go on.
  void BeginDrain();
  int64_t num_streams() const { return service_->num_streams(); }
  // Ends open streams UNAVAILABLE, reason CONTINUE, and the HTTP server. Returns when all is quiet;
  // calls over gRPC are refused until the process ends. (A gRPC server that closes answers what is
  // on its way with CANCELLED, which no client takes for a reason to try again; connections that
  // the system closes are UNAVAILABLE.)
  void Shutdown();

 private:
  explicit Gateway(const GatewayConfig& config);
  absl::Status StartHttp();
  // What health says of the whole gateway.
  bool healthy() const;
  void End();
  // From the resolver of one pool.
  void SetAddresses(size_t pool, std::vector<std::string> addresses);
  // Tells health what can be served now.
  void UpdateHealth();

  const GatewayConfig config_;
  const SystemClock clock_;
  LoadView view_;
  absl::BitGen random_;
  std::unique_ptr<Authenticator> auth_;
  std::unique_ptr<common::ReloadedTls> worker_tls_;
  Admission admission_;
  Admission forwarded_;
  GatewayMetrics metrics_;
  Router router_;
  RetryBudget budget_;
  OpenCalls open_calls_;
  // Ends first to last: servers, service, resolver, transport, pool, timer.
  std::unique_ptr<TimerThread> timer_;
  std::vector<std::unique_ptr<Resolver>> resolvers_;  // one a pool
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<GrpcWorkerTransport> transport_;
  std::unique_ptr<common::SpanExporter> spans_;  // outlives the service
  std::unique_ptr<InferenceService> service_;
  std::unique_ptr<common::GrpcServer> server_;
  std::unique_ptr<openai::Api> http_api_;
  std::unique_ptr<openai::HttpServer> http_server_;
  std::unique_ptr<common::MetricsServer> metrics_server_;

  absl::once_flag ended_;
  std::vector<PoolSpec> pools_;
  absl::Mutex addresses_mutex_;  // held while the pool of workers is told, so that nobody goes back
  // By pool; nothing until its resolver has answered.
  std::vector<std::optional<std::vector<std::string>>> addresses_ ABSL_GUARDED_BY(addresses_mutex_);

  mutable absl::Mutex health_mutex_;
  // Null until it listens and from the drain on: health is no longer touched.
  common::GrpcServer* health_ ABSL_GUARDED_BY(health_mutex_) = nullptr;
};

}  // namespace continuo::gateway
