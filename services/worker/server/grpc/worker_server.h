// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/base/clock.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/telemetry/metrics.h"
#include "services/common/trust/peer_check.h"
#include "services/worker/engine/engine.h"
#include "services/worker/server/grpc/inference_service.h"
#include "services/worker/server/grpc/vllm_service.h"
#include "services/worker/server/grpc/worker_service.h"
#include "services/worker/server/load/orca_service.h"
#include "services/worker/server/runtime/worker_runtime.h"

namespace continuo::server {

struct WorkerServerOptions {
  std::string listen = "0.0.0.0:50051";
  std::string metrics_listen;  // empty: none
  std::string metrics_token_file;
  common::TlsFiles tls;
  // Names in the certificates of peers of the fleet, and the file of its token; see PeerCheck.
  std::vector<std::string> tls_client_names;
  std::string token_file;
  // Strangers may call InferenceService, as the tenant "default".
  bool open_inference = false;
  std::string worker_name;
  std::string model_name;
  std::string model_path;                  // of the folder or file that is served, absolute
  std::vector<std::string> adapter_names;  // of LoRA adapters that Serve will bring
  absl::Duration drain_grace = absl::Seconds(5);
  // A call that was told to end is cut after this time; a reader who does not read would keep it
  // open.
  absl::Duration end_patience = absl::Seconds(3);
  int max_receive_bytes = 32 << 20;
  // Largest number of bytes that gRPC may hold for all connections together, before it is known who
  // sends them. Above it, gRPC ends streams.
  size_t max_buffer_bytes = size_t{1} << 30;
  // Calls at a time on one connection; a gateway has one connection.
  int max_concurrent_streams = 4096;
  int text_threads = 2;
  common::SpanExporter* spans = nullptr;  // none: nothing is traced; outlives the server
  // Called while a step hangs (Engine::Hung), also during a drain, on a thread of the server.
  // Without it, only the health check shows a hang.
  std::function<void()> on_hang;
};

// A whole worker except for the model: the gRPC server with its services, the metrics page, and,
// once Serve() brings a model, the engine on its thread. The port answers from Start() on, with
// NOT_SERVING and WORKER_STATE_LOADING until the model is there. Thread-safe.
class WorkerServer {
 public:
  // `clock` outlives the server.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const WorkerServerOptions& options,
                                                             const Clock* clock);
  // Calls Shutdown().
  ~WorkerServer();

  // Begins to serve the model and LoRA adapters of it. A `loader` reads more of them later, for the
  // executor. `executor` and what `model` points to
  // outlive the server. `on_failure` is called on the engine's thread if the executor fails, when
  // all streams have ended. Call once.
  void Serve(ServedModel model, engine::EngineOptions engine, model::Executor* executor,
             std::function<void(absl::Status)> on_failure, std::vector<ServedModel> adapters = {},
             std::unique_ptr<AdapterLoader> loader = nullptr);

  // NOT_SERVING at once, and new requests are rejected; streams that still run after the grace are
  // migrated.
  void BeginDrain(absl::Duration grace);
  // True once the drain is over: no call is left.
  bool drained() const { return runtime_.lifecycle.drained(); }

  // Ends every open call, then the threads.
  void Shutdown();

  int port() const { return grpc_->port(); }
  // For a client on this host.
  std::string address() const { return grpc_->address(); }
  // "host:port" of the metrics page as it listens; empty where there is none.
  std::string metrics_address() const;
  const engine::EngineMetrics& metrics() const { return metrics_; }
  WorkerRuntime& runtime() { return runtime_; }

 private:
  WorkerServer(const WorkerServerOptions& options, std::unique_ptr<common::PeerCheck> peers,
               const Clock* clock);
  GenerateCall::Dependencies CallDependencies(const WorkerServerOptions& options,
                                              const Clock* clock);
  // Tells health checks which adapters there are.
  void ShowAdapters();

  const Clock* const clock_;
  const std::string metrics_host_;
  engine::EngineMetrics metrics_;
  common::SpanExporter* const spans_;
  const std::unique_ptr<common::PeerCheck> peers_;
  std::atomic<common::GrpcServer*> health_ = nullptr;  // answers health checks once it is there
  absl::Mutex adapters_mutex_;                         // held by ShowAdapters
  WorkerRuntime runtime_;
  std::atomic<engine::RequestId> next_request_id_ = 1;
  InferenceService inference_;
  VllmService vllm_;
  WorkerService worker_;
  OrcaService orca_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<common::GrpcServer> grpc_;
  std::unique_ptr<common::MetricsServer> metrics_server_;
  std::thread engine_thread_;
  std::atomic<bool> stopping_ = false;
  std::thread ticker_;  // Lifecycle::Tick, OpenCalls::Tick
};

}  // namespace continuo::server
