// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/gateway.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/log.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

constexpr char kServiceName[] = "continuo.v1.InferenceService";
// For streams to take in that the gateway ends.
constexpr absl::Duration kGoodbye = absl::Seconds(2);
constexpr absl::Duration kQuiet = absl::Milliseconds(500), kLongestUnquiet = absl::Seconds(3);

// What TLS towards workers is made of.
absl::StatusOr<common::TlsFiles> WorkerTls(const GatewayConfig& config) {
  const common::TlsFiles& files = config.worker_tls.any() ? config.worker_tls : config.tls;
  if (!files.any() && !config.worker_tls_server_name.empty()) {
    return absl::InvalidArgumentError(
        "--worker_tls_server_name is of no use without TLS: --worker_tls_ca_file or --tls_ca_file "
        "is needed");
  }
  return files;
}

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "gateway";
}

void LogKeys(const absl::StatusOr<int>& num_keys) {
  if (num_keys.ok()) {
    common::Log(common::LogSeverity::kInfo, "new keys", {{"keys", *num_keys}});
  } else {
    common::Log(common::LogSeverity::kError, "new keys are bad, the ones before stay",
                {{"error", std::string(num_keys.status().message())}});
  }
}

}  // namespace

Gateway::Gateway(const GatewayConfig& config)
    : config_(config),
      admission_(config.admission, &clock_),
      forwarded_(config.forwarded, &clock_),
      metrics_(&admission_, &view_, &clock_),
      router_(FindPolicy(config.routing_policy), &view_, &clock_, random_),
      budget_(&clock_),
      timer_(std::make_unique<TimerThread>()) {}

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayConfig& config) {
  if (FindPolicy(config.routing_policy) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--routing_policy: there is no \"", config.routing_policy, "\""));
  }
  std::unique_ptr<Gateway> g(new Gateway(config));
  ASSIGN_OR_RETURN(g->pools_, ParsePools(config.workers));
  {
    absl::MutexLock lock(&g->addresses_mutex_);
    g->addresses_.resize(g->pools_.size());
  }
  AuthOptions auth = config.auth;
  auth.on_change = LogKeys;
  ASSIGN_OR_RETURN(g->auth_, Authenticator::Open(std::move(auth)));
  for (const PoolSpec& pool : g->pools_) {
    ASSIGN_OR_RETURN(g->resolvers_.emplace_back(), MakeResolver(pool.target, config.resolver));
  }
  WorkerPoolOptions pool_options;
  ASSIGN_OR_RETURN(const common::TlsFiles worker_tls, WorkerTls(config));
  ASSIGN_OR_RETURN(g->worker_tls_, common::ReloadedTls::Open(worker_tls));
  pool_options.credentials = g->worker_tls_->ForChannel();
  pool_options.tls_server_name = config.worker_tls_server_name;
  pool_options.settle_wait = config.relay.retry.no_worker_wait;
  pool_options.on_lost = [gateway = g.get()] {
    for (const auto& resolver : gateway->resolvers_) resolver->Refresh();
  };
  pool_options.on_change = [gateway = g.get()] { gateway->UpdateHealth(); };
  g->pool_ = std::make_unique<WorkerPool>(std::move(pool_options), &g->view_, &g->router_,
                                          g->timer_.get(), &g->clock_);
  g->transport_ = std::make_unique<GrpcWorkerTransport>(g->pool_.get());
  if (!config.spans.endpoint.empty()) {
    ASSIGN_OR_RETURN(g->spans_, common::SpanExporter::Open(
                                    {.target = config.spans,
                                     .service = "continuo-gateway",
                                     .instance = absl::StrCat(HostName(), "#", getpid())}));
    g->metrics_.set_dropped_spans([spans = g->spans_.get()] { return spans->num_dropped(); });
  }
  g->service_ = std::make_unique<InferenceService>(
      InferenceService::Parts{.relay = {.router = &g->router_,
                                        .transport = g->transport_.get(),
                                        .timer = g->timer_.get(),
                                        .clock = &g->clock_,
                                        .observer = &g->metrics_,
                                        .budget = &g->budget_,
                                        .options = config.relay},
                              .pool = g->pool_.get(),
                              .admission = &g->admission_,
                              .forwarded = &g->forwarded_,
                              .metrics = &g->metrics_,
                              .open_calls = &g->open_calls_,
                              .auth = g->auth_.get(),
                              .spans = g->spans_.get()});

  common::GrpcServerOptions server_options;
  server_options.listen = config.listen;
  server_options.tls = config.tls;
  server_options.max_receive_bytes = static_cast<int>(config.max_request_bytes);
  server_options.max_buffer_bytes = config.max_buffer_bytes;
  server_options.max_concurrent_streams = config.max_streams_per_connection;
  server_options.max_connection_age = config.max_connection_age;
  ASSIGN_OR_RETURN(g->server_, common::GrpcServer::Start(server_options, {g->service_.get()}));
  // A gateway without workers is well, so that scaling from zero works; its models are not.
  g->server_->SetServing("", true);
  {
    absl::MutexLock lock(&g->health_mutex_);
    g->health_ = g->server_.get();
  }
  g->UpdateHealth();
  RETURN_IF_ERROR(g->StartHttp());
  ASSIGN_OR_RETURN(g->metrics_server_, common::MetricsServer::Start(
                                           config.metrics_listen, g->metrics_.collectables(),
                                           [gateway = g.get()] { return gateway->healthy(); }));
  for (size_t i = 0; i < g->resolvers_.size(); ++i) {
    g->resolvers_[i]->Start([gateway = g.get(), i](std::vector<std::string> addresses) {
      gateway->SetAddresses(i, std::move(addresses));
    });
  }
  return g;
}

absl::Status Gateway::StartHttp() {
  if (config_.http_listen.empty() || config_.http_listen == "off") return absl::OkStatus();
  openai::HttpServerOptions options;
  options.listen = config_.http_listen;
  options.limits = HttpLimitsOf(config_);
  if (config_.tls.any()) {
    options.read_tls = [files = config_.tls]() -> absl::StatusOr<openai::TlsPem> {
      ASSIGN_OR_RETURN(common::TlsContents contents, common::ReadTlsFiles(files));
      return openai::TlsPem{.certificates = std::move(contents.certificates),
                            .key = std::move(contents.key),
                            .roots = std::move(contents.roots)};
    };
  }
  http_api_ = std::make_unique<openai::Api>(openai::ApiParts{
      .front = service_.get(),
      .clock = &clock_,
      .models = [this] { return pool_->Models(); },
      .ready =
          [this] {
            return healthy() && std::ranges::any_of(view_.Get()->workers, [](const auto& load) {
                     return load->state == WorkerState::kServing;
                   });
          },
      .metrics = [this] { return common::FormatMetrics(metrics_.collectables()); },
      .fleet = [this] { return view_.Get(); }});
  ASSIGN_OR_RETURN(http_server_, openai::HttpServer::Start(options, http_api_.get()));
  return absl::OkStatus();
}

Gateway::~Gateway() {
  if (server_ != nullptr) Shutdown();
  metrics_server_.reset();
  http_server_.reset();
  http_api_.reset();
  server_.reset();
  service_.reset();
  spans_.reset();
  transport_.reset();
  // The pool asks it to refresh, it gives the pool addresses: its thread ends first, itself last.
  if (pool_ != nullptr) {
    for (const auto& resolver : resolvers_) resolver->Stop();
  }
  pool_.reset();
  resolvers_.clear();
  timer_.reset();
}

void Gateway::SetAddresses(size_t pool, std::vector<std::string> addresses) {
  absl::MutexLock lock(&addresses_mutex_);
  addresses_[pool] = std::move(addresses);
  std::vector<WorkerAddress> all;
  bool complete = true;
  for (size_t i = 0; i < pools_.size(); ++i) {
    complete = complete && addresses_[i].has_value();
    if (!addresses_[i].has_value()) continue;
    for (const std::string& address : *addresses_[i]) {
      all.emplace_back(address, static_cast<int>(i), pools_[i].weight);
    }
  }
  pool_->SetAddresses(all, complete);
}

void Gateway::UpdateHealth() {
  absl::MutexLock lock(&health_mutex_);
  if (health_ == nullptr) return;
  const std::shared_ptr<const LoadSnapshot> snapshot = view_.Get();
  std::map<std::string, bool> serving;
  for (const std::string& model : snapshot->known_models) serving[model] = false;
  bool any = false;
  for (const auto& load : snapshot->workers) {
    if (load->state != WorkerState::kServing) continue;
    any = serving[load->model] = true;
  }
  health_->SetServing(kServiceName, any);
  for (const auto& [model, is_serving] : serving) {
    if (!model.empty()) health_->SetServing(model, is_serving);
  }
}

bool Gateway::healthy() const {
  absl::MutexLock lock(&health_mutex_);
  return health_ != nullptr;
}

void Gateway::AnnounceDrain() {
  absl::MutexLock lock(&health_mutex_);
  health_ = nullptr;
  server_->SetAllServing(false);
  if (http_server_ != nullptr) http_server_->AnnounceDrain();
}

void Gateway::BeginDrain() {
  service_->BeginDrain();
  if (http_server_ != nullptr) http_server_->BeginDrain();
  AnnounceDrain();
}

void Gateway::Shutdown() {
  absl::call_once(ended_, [this] { End(); });
}

void Gateway::End() {
  BeginDrain();
  service_->EndStreams(
      protocol::WithReason(absl::UnavailableError("the gateway is shutting down; go on elsewhere"),
                           protocol::kReasonContinue));
  // So that clients are told where to go rather than cut off.
  service_->WaitForQuiet(kQuiet, kLongestUnquiet);
  // A client without a call may not read, so its connection would not end by itself: only calls are
  // waited for.
  if (!open_calls_.WaitForNone(kGoodbye)) service_->GiveUpStreams();
  if (http_server_ != nullptr) http_server_->Shutdown(absl::Now() + kGoodbye);
  if (spans_ != nullptr) spans_->Stop();
}

}  // namespace continuo::gateway
