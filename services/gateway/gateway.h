// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/base/call_once.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/clock.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/telemetry/metrics.h"
#include "services/common/trust/token_file.h"
#include "services/gateway/adapters/grpc_adapter_updates.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/config.h"
#include "services/gateway/discovery/discovery.h"
#include "services/gateway/grpc/inference_service.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/grpc/serving_health.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/kserve/kserve_service.h"
#include "services/gateway/openai/api.h"
#include "services/gateway/openai/http/http_server.h"
#include "services/gateway/relay/retry_budget.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/reports/gateway_metrics.h"
#include "services/gateway/requests/auth.h"
#include "services/gateway/requests/key_limiter.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/routing/router.h"
#include "services/gateway/scaler/scaler.h"
#include "services/gateway/workers/declared_models.h"
#include "services/gateway/workers/grpc_step_feed.h"
#include "services/gateway/workers/grpc_worker_transport.h"
#include "services/gateway/workers/worker_pool.h"

namespace continuo::gateway {

// One gateway: builds its objects bottom-up and ends them in the reverse order. Thread-safe.
class Gateway {
 public:
  // Listens on return. INVALID_ARGUMENT and UNAVAILABLE name the flag or the address.
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(const GatewayConfig& config);
  // Shuts down, and closes the gRPC server.
  ~Gateway();

  std::string address() const { return server_->address(); }
  // 0 where there is no HTTP server.
  int http_port() const { return http_server_ == nullptr ? 0 : http_server_->port(); }
  int metrics_port() const { return metrics_server_->port(); }
  // Empty where there is no scaler.
  std::string scaler_address() const { return scaler_ == nullptr ? "" : scaler_->address(); }

  // Turns the health service to NOT_SERVING, and /healthz beside the metrics and /readyz to 503, so
  // that load balancers send clients elsewhere; HTTP clients are told to reconnect. Calls are still
  // served.
  void AnnounceDrain();
  // Announces the drain and rejects new calls; open streams go on.
  void BeginDrain();
  int64_t num_streams() const { return service_->num_streams(); }
  // Ends open streams with UNAVAILABLE, reason CONTINUE, and the HTTP server. Returns when all is
  // quiet; gRPC calls are rejected until the process ends. The gRPC server is not closed, as that
  // would answer calls on their way with CANCELLED, which no client takes for a reason to retry;
  // connections that the system closes are UNAVAILABLE.
  void Shutdown();

 private:
  Gateway(const GatewayConfig& config, DeclaredModels declared);
  absl::Status ConnectWorkers();
  absl::Status StartService();
  absl::Status StartGrpc();
  absl::Status StartHttp();
  absl::Status StartScaler();
  absl::Status StartMetrics();
  // The gateway is healthy and a worker takes requests.
  bool IsReady() const;
  void End();

  const GatewayConfig config_;
  const DeclaredModels declared_;
  const SystemClock clock_;
  LoadView view_;
  absl::BitGen random_;
  ServingHealth health_;
  Admission admission_;
  Admission forwarded_;
  GatewayMetrics metrics_;
  Router router_;
  RetryBudget budget_;
  OpenCalls open_calls_;
  absl::once_flag ended_;

  std::unique_ptr<Authenticator> auth_;
  KeyLimiter key_limiter_;
  std::unique_ptr<common::ReloadedTls> worker_tls_;
  std::unique_ptr<common::TokenFile> token_;  // Null: workers ask for none.
  FleetSecret secret_ = FleetSecret::Random();
  // The destructor ends these from the last to the first: servers, service, transport, pool,
  // discovery, timer.
  std::unique_ptr<TimerThread> timer_;
  std::unique_ptr<Discovery> discovery_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<GrpcWorkerTransport> transport_;
  std::unique_ptr<GrpcStepFeed> step_feed_;
  std::unique_ptr<GrpcAdapterUpdates> adapter_updates_;  // Null where they are off.
  std::unique_ptr<common::SpanExporter> spans_;          // Null where nothing is traced.
  std::unique_ptr<UsageLog> usage_;                      // Null where there is no ledger.
  std::unique_ptr<InferenceService> service_;
  std::unique_ptr<kserve::KserveService> kserve_;
  std::unique_ptr<common::GrpcServer> server_;
  std::unique_ptr<openai::Api> http_api_;
  std::unique_ptr<openai::HttpServer> http_server_;  // Null where HTTP is off.
  std::unique_ptr<Scaler> scaler_;                   // Null where it is off.
  std::unique_ptr<common::MetricsServer> metrics_server_;
};

}  // namespace continuo::gateway
