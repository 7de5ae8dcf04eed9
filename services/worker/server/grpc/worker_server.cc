// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/worker_server.h"

#include <pthread.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/common/log.h"
#include "services/common/trust/token_file.h"
#include "services/worker/server/grpc/worker_metrics.h"

namespace continuo::server {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(20);

}  // namespace

WorkerServer::WorkerServer(const WorkerServerOptions& options,
                           std::unique_ptr<common::PeerCheck> peers, const Clock* clock)
    : clock_(clock),
      metrics_host_(options.metrics_listen.substr(0, options.metrics_listen.rfind(':'))),
      spans_(options.spans),
      peers_(std::move(peers)),
      runtime_({.worker = options.worker_name,
                .model_name = options.model_name,
                .model_path = options.model_path,
                .adapter_names = {options.adapter_names.begin(), options.adapter_names.end()}},
               clock, options.end_patience, options.text_threads,
               [this](bool serving) {
                 if (common::GrpcServer* server = health_; server != nullptr) {
                   server->SetAllServing(serving);
                 }
               }),
      inference_(CallDependencies(options, clock), &next_request_id_, &runtime_.text_budget),
      vllm_(CallDependencies(options, clock), &next_request_id_),
      worker_({.clock = clock,
               .serving = &runtime_.serving,
               .lifecycle = &runtime_.lifecycle,
               .registry = &runtime_.registry,
               .load_board = &runtime_.load_board,
               .peers = {peers_.get(), options.open_inference},
               .drain_grace = options.drain_grace}),
      orca_(
          [policy = PeerPolicy{peers_.get(), options.open_inference}](
              const grpc::CallbackServerContext& context) {
            return CheckLoadPeer(context, policy);
          },
          &runtime_.load_board) {}

GenerateCall::Dependencies WorkerServer::CallDependencies(const WorkerServerOptions& options,
                                                          const Clock* clock) {
  return {.identity = &runtime_.identity,
          .peers = {peers_.get(), options.open_inference},
          .clock = clock,
          .random = &runtime_.random,
          .salt_key = &runtime_.salt_key,
          .serving = &runtime_.serving,
          .lifecycle = &runtime_.lifecycle,
          .open_calls = &runtime_.open_calls,
          .load_board = &runtime_.load_board,
          .registry = &runtime_.registry,
          .counters = &runtime_.counters,
          .text_pool = &runtime_.text_pool,
          .grammar_pool = &runtime_.grammar_pool,
          .delivery_pool = &runtime_.delivery_pool,
          .spans = options.spans};
}

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(
    const WorkerServerOptions& options, const Clock* clock) {
  ASSIGN_OR_RETURN(std::unique_ptr<common::PeerCheck> peers,
                   common::PeerCheck::Open({.tls = options.tls,
                                            .client_names = options.tls_client_names,
                                            .token_file = options.token_file}));
  if (options.open_inference && !peers->is_strict()) {
    return absl::InvalidArgumentError(
        "--open_inference is of no use without --tls_client_names or --token_file");
  }
  std::unique_ptr<WorkerServer> server(new WorkerServer(options, std::move(peers), clock));
  common::GrpcServerOptions grpc;
  grpc.listen = options.listen;
  grpc.tls = options.tls;
  grpc.max_receive_bytes = options.max_receive_bytes;
  grpc.max_buffer_bytes = options.max_buffer_bytes;
  grpc.max_concurrent_streams = options.max_concurrent_streams;
  grpc.health_names = {v1::InferenceService::service_full_name(),
                       v1::WorkerService::service_full_name(),
                       xds::service::orca::v3::OpenRcaService::service_full_name(),
                       vllm::grpc::engine::VllmEngine::service_full_name(), options.model_name};
  for (const std::string& name : options.adapter_names) grpc.health_names.push_back(name);
  grpc.serving = false;
  ASSIGN_OR_RETURN(server->grpc_,
                   common::GrpcServer::Start(grpc, {&server->inference_, &server->worker_,
                                                    &server->orca_, &server->vllm_}));
  server->health_ = server->grpc_.get();
  WorkerServer* const s = server.get();
  if (!options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(auto may_read, common::OpenMetricsTokens(options.metrics_token_file));
    ASSIGN_OR_RETURN(
        server->metrics_server_,
        common::MetricsServer::Start(
            options.metrics_listen, {common::MakeCollectable([s](common::MetricFamilies& families) {
              CollectWorkerMetrics(s->metrics_, s->runtime_.counters, s->runtime_.identity,
                                   s->runtime_.serving.get(), s->spans_, *s->peers_, families);
            })},
            [s] { return s->runtime_.lifecycle.healthy(); }, std::move(may_read)));
  }
  server->ticker_ = std::thread([s, on_hang = options.on_hang] {
    // The thread sleeps, since absl's waits with a timeout follow the wall clock when it is set.
    while (!s->stopping_) {
      const absl::Duration now = s->clock_->Elapsed();
      s->runtime_.lifecycle.Tick(now);
      if (on_hang && s->runtime_.lifecycle.hung()) on_hang();
      s->runtime_.open_calls.Tick(now);
      std::this_thread::sleep_for(absl::ToChronoMilliseconds(kTick));
    }
  });
  return server;
}

void WorkerServer::Serve(ServedModel model, engine::EngineOptions options,
                         model::Executor* executor, std::function<void(absl::Status)> on_failure,
                         std::vector<ServedModel> adapters, std::unique_ptr<AdapterLoader> loader) {
  options.hash_key = {runtime_.random.Next(), runtime_.random.Next()};
  engine_ = std::make_unique<engine::Engine>(options, executor, clock_, &metrics_);
  engine_->SetLoadListener(
      [this](const engine::EngineLoad& load) { runtime_.load_board.Update(load); });
  engine_thread_ = std::thread([this, on_failure = std::move(on_failure)] {
    pthread_setname_np(pthread_self(), "engine");  // for `top -H`, debuggers and tests
    const absl::Status status = engine_->Run();
    if (!status.ok()) on_failure(status);
  });
  ServedAdapters::Options served = {.base = model.name};
  served.on_change = [this] {
    ShowAdapters();
    runtime_.load_board.StateChanged();
  };
  served.on_refused = [](const std::string& name, const absl::Status& why) {
    common::Log(common::LogSeverity::kWarning, "an adapter is not read",
                {{"adapter", name}, {"reason", why.ToString()}});
  };
  runtime_.StartServing(
      {std::move(model),
       std::make_unique<ServedAdapters>(std::move(adapters), std::move(loader), std::move(served)),
       engine_.get()});
  ShowAdapters();  // of those that were found before
}

void WorkerServer::ShowAdapters() {
  // What was read last is told last.
  absl::MutexLock lock(&adapters_mutex_);
  common::GrpcServer* const server = health_;
  const Serving* const serving = runtime_.serving.get();
  if (server == nullptr || serving == nullptr) return;
  std::set<std::string> names;
  for (const ServedAdapters::Offer& offer : serving->adapters->All()) {
    names.insert(offer.model->name);
  }
  server->SetPassingNames(std::move(names));
}

std::string WorkerServer::metrics_address() const {
  if (metrics_server_ == nullptr) return "";
  return absl::StrCat(metrics_host_, ":", metrics_server_->port());
}

void WorkerServer::BeginDrain(absl::Duration grace) {
  runtime_.lifecycle.BeginDrain(clock_->Elapsed(), grace);
}

void WorkerServer::Shutdown() {
  if (stopping_) return;
  if (grpc_ != nullptr) {
    BeginDrain(absl::ZeroDuration());
    if (const Serving* const serving = runtime_.serving.get(); serving != nullptr) {
      serving->adapters->Stop();
    }
    if (engine_ != nullptr) engine_->EndAll(DrainingError());
    runtime_.load_board.Close();
    // Long enough for statuses to be written to readers who are there.
    grpc_->Shutdown(absl::Now() + absl::Seconds(1));
  }
  stopping_ = true;
  if (ticker_.joinable()) ticker_.join();
  metrics_server_.reset();
  if (engine_ != nullptr) {
    engine_->Stop();
    engine_thread_.join();
  }
  // Text work of the last calls may still speak to the engine.
  runtime_.text_pool.Join();
  runtime_.grammar_pool.Join();
  runtime_.delivery_pool.Join();
}

WorkerServer::~WorkerServer() {
  Shutdown();
  // Calls end before the parts that they use.
  grpc_.reset();
  engine_.reset();
}

}  // namespace continuo::server
