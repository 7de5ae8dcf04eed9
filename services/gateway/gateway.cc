// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/gateway.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "services/base/host_name.h"
#include "services/base/status_macros.h"
#include "services/common/log.h"
#include "services/common/trust/peer_names.h"
#include "services/common/trust/peer_verifier.h"
#include "services/common/trust/token_file.h"
#include "services/common/version.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

// Shutdown waits so long for clients to read the end of their streams.
constexpr absl::Duration kGoodbye = absl::Seconds(2);
// Shutdown waits until no call was rejected for kQuiet, or kLongestUnquiet has passed.
constexpr absl::Duration kQuiet = absl::Milliseconds(500), kLongestUnquiet = absl::Seconds(3);

// The TLS files for connections to workers.
absl::StatusOr<common::TlsFiles> WorkerTls(const GatewayConfig& config) {
  const common::TlsFiles& files = config.worker_tls.any() ? config.worker_tls : config.tls;
  if (!files.any() && !config.worker_tls_server_name.empty()) {
    return absl::InvalidArgumentError(
        "--worker_tls_server_name is of no use without TLS: --worker_tls_ca_file or --tls_ca_file "
        "is needed");
  }
  return files;
}

// Makes the verifier of the names in workers' certificates; null where the address, or
// --worker_tls_server_name, does.
absl::StatusOr<std::shared_ptr<grpc::experimental::CertificateVerifier>> WorkerVerifier(
    const GatewayConfig& config, const common::TlsFiles& files) {
  ASSIGN_OR_RETURN(common::PeerNames names,
                   common::PeerNames::Parse("worker_tls_names", config.worker_tls_names));
  if (names.empty()) return nullptr;
  if (files.ca_file.empty()) {
    return absl::InvalidArgumentError(
        "--worker_tls_names is of no use without --worker_tls_ca_file or --tls_ca_file");
  }
  if (!config.worker_tls_server_name.empty()) {
    return absl::InvalidArgumentError(
        "--worker_tls_names and --worker_tls_server_name exclude each other: both say what names "
        "workers' certificates have");
  }
  return common::MakePeerVerifier(std::move(names));
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

Gateway::Gateway(const GatewayConfig& config, DeclaredModels declared)
    : config_(config),
      declared_(std::move(declared)),
      health_(&view_),
      admission_(config.admission, &clock_),
      forwarded_(config.forwarded, &clock_),
      metrics_(&admission_, &view_, &clock_, config.max_tenant_series),
      router_(FindPolicy(config.routing_policy), &view_, &clock_, random_,
              // The pool finds silent workers itself.
              {.max_report_age = absl::InfiniteDuration(), .declared_models = declared_.models}),
      key_limiter_(&clock_),
      timer_(std::make_unique<TimerThread>()) {}

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayConfig& config) {
  if (FindPolicy(config.routing_policy) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--routing_policy: there is no \"", config.routing_policy, "\""));
  }
  ASSIGN_OR_RETURN(DeclaredModels declared, ParseDeclaredModels(config.models));
  std::unique_ptr<Gateway> gateway = absl::WrapUnique(new Gateway(config, std::move(declared)));
  RETURN_IF_ERROR(gateway->ConnectWorkers());
  RETURN_IF_ERROR(gateway->StartService());
  RETURN_IF_ERROR(gateway->StartGrpc());
  RETURN_IF_ERROR(gateway->StartHttp());
  RETURN_IF_ERROR(gateway->StartScaler());
  RETURN_IF_ERROR(gateway->StartMetrics());
  // Discovery starts last, since a change of workers reaches the servers.
  gateway->discovery_->Start(
      [pool = gateway->pool_.get()](const std::vector<WorkerAddress>& addresses, bool complete) {
        pool->SetAddresses(addresses, complete);
      },
      gateway->server_->port());
  return gateway;
}

absl::Status Gateway::ConnectWorkers() {
  ASSIGN_OR_RETURN(discovery_, Discovery::Open(config_.workers, config_.resolver, config_.subset));
  metrics_.set_pool_names(discovery_->PoolNames());
  metrics_.set_key_limiter(&key_limiter_);
  ASSIGN_OR_RETURN(const common::TlsFiles tls, WorkerTls(config_));
  ASSIGN_OR_RETURN(worker_tls_, common::ReloadedTls::Open(tls));
  WorkerPoolOptions options;
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::experimental::CertificateVerifier> verifier,
                   WorkerVerifier(config_, tls));
  options.connect.credentials = worker_tls_->ForChannel(std::move(verifier));
  options.connect.tls_server_name = config_.worker_tls_server_name;
  if (!config_.token_file.empty()) {
    ASSIGN_OR_RETURN(token_, common::TokenFile::Open(config_.token_file));
    secret_ = FleetSecret([token = token_.get()] { return token->tokens()->digests(); });
  }
  options.connect.token = token_.get();
  options.discovery_wait = config_.relay.retry.no_worker_wait;
  options.declared_models = declared_;
  options.on_lost = [this] { discovery_->Refresh(); };
  options.on_change = [this] { health_.Update(); };
  pool_ = std::make_unique<WorkerPool>(std::move(options), &view_, &router_, timer_.get(), &clock_);
  transport_ = std::make_unique<GrpcWorkerTransport>(pool_.get());
  step_feed_ = std::make_unique<GrpcStepFeed>(pool_.get());
  if (config_.allow_lora_updates) {
    if (!config_.subset.gateways.empty()) {
      return absl::InvalidArgumentError(
          "--allow_lora_updates and --gateways exclude each other: a gateway that watches a subset "
          "of the workers cannot update all of them");
    }
    adapter_updates_ = std::make_unique<GrpcAdapterUpdates>(&view_, pool_.get());
  }
  return absl::OkStatus();
}

absl::Status Gateway::StartService() {
  AuthOptions auth = config_.auth;
  auth.on_change = LogKeys;
  auth.clock = &clock_;
  ASSIGN_OR_RETURN(auth_, Authenticator::Open(std::move(auth)));
  const common::OtlpSource source = {.service = "continuo-gateway",
                                     .instance = absl::StrCat(HostName("gateway"), "#", getpid())};
  if (!config_.otlp.endpoint.empty()) {
    ASSIGN_OR_RETURN(spans_,
                     common::SpanExporter::Open({.target = config_.otlp, .source = source}));
    metrics_.set_dropped_spans([spans = spans_.get()] { return spans->num_dropped(); });
  }
  std::unique_ptr<common::LogExporter> exporter;
  if (config_.usage_otlp) {
    if (config_.otlp.endpoint.empty()) {
      return absl::InvalidArgumentError("--usage_otlp needs --otlp_endpoint");
    }
    ASSIGN_OR_RETURN(exporter,
                     common::LogExporter::Open("records of the ledger",
                                               {.target = config_.otlp, .source = source}));
  }
  if (!config_.usage_log.empty() || exporter != nullptr) {
    ASSIGN_OR_RETURN(usage_, UsageLog::Open(config_.usage_log, std::move(exporter)));
    metrics_.set_dropped_records([usage = usage_.get()] { return usage->num_dropped(); });
  }
  service_ = std::make_unique<InferenceService>(
      InferenceService::Dependencies{.relay = {.router = &router_,
                                               .transport = transport_.get(),
                                               .timer = timer_.get(),
                                               .clock = &clock_,
                                               .observer = &metrics_,
                                               .budget = &budget_,
                                               .options = config_.relay},
                                     .pool = pool_.get(),
                                     .admission = &admission_,
                                     .forwarded = &forwarded_,
                                     .metrics = &metrics_,
                                     .open_calls = &open_calls_,
                                     .auth = auth_.get(),
                                     .key_limiter = &key_limiter_,
                                     .secret = &secret_,
                                     .usage = usage_.get(),
                                     .spans = spans_.get()});
  kserve_ = std::make_unique<kserve::KserveService>(kserve::Dependencies{
      .service = service_.get(),
      .open_calls = &open_calls_,
      .models = [this](const ClientCall& call) { return service_->Models(call); },
      .ready = [this] { return IsReady(); },
      .version = std::string(common::Version())});
  return absl::OkStatus();
}

absl::Status Gateway::StartGrpc() {
  common::GrpcServerOptions options;
  options.listen = config_.listen;
  options.tls = config_.tls;
  options.max_receive_bytes = static_cast<int>(config_.max_request_bytes);
  options.max_buffer_bytes = config_.max_buffer_bytes;
  options.max_concurrent_streams = config_.max_streams_per_connection;
  options.max_connection_age = config_.max_connection_age;
  ASSIGN_OR_RETURN(server_, common::GrpcServer::Start(options, {service_.get(), kserve_.get()}));
  health_.Open(server_.get());
  return absl::OkStatus();
}

absl::Status Gateway::StartHttp() {
  if (config_.http_listen.empty() || config_.http_listen == "off") return absl::OkStatus();
  ASSIGN_OR_RETURN(openai::CorsPolicy cors, openai::CorsPolicy::Parse(config_.http_cors_origins));
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
  // Clients have no token of --metrics_token_file.
  std::function<std::string()> metrics_page;
  if (config_.metrics_token_file.empty()) {
    metrics_page = [this] { return common::FormatMetrics(metrics_.collectables()); };
  }
  http_api_ = std::make_unique<openai::Api>(openai::ApiDependencies{
      .service = service_.get(),
      .clock = &clock_,
      .models = [this](const ClientCall& call) { return service_->Models(call); },
      .ready = [this] { return IsReady(); },
      .metrics = std::move(metrics_page),
      .load_metrics = [this] { return common::FormatMetrics(metrics_.load_collectables()); },
      .fleet = [this] { return view_.Get(); },
      .text = service_.get(),
      .steps = step_feed_.get(),
      .adapters = adapter_updates_.get(),
      .may_update_adapter = [this](const ClientCall& call,
                                   const std::string& adapter) -> absl::Status {
        ASSIGN_OR_RETURN(const Caller caller, auth_->Authenticate(call.metadata("authorization"),
                                                                  call.metadata("x-tenant-id")));
        return CheckAdapterUpdate(caller, adapter);
      },
      .secret = &secret_,
      .event_ids = config_.http_event_ids,
      .version = std::string(common::Version()),
      .cors = std::move(cors)});
  ASSIGN_OR_RETURN(http_server_, openai::HttpServer::Start(options, http_api_.get()));
  return absl::OkStatus();
}

absl::Status Gateway::StartScaler() {
  if (!config_.scaler.is_on()) {
    if (config_.scaler.peers.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--scaler_peers is of no use without --scaler_listen");
  }
  ScalerOptions options = config_.scaler;
  options.resolver = config_.resolver;
  options.token_file = config_.token_file;
  ASSIGN_OR_RETURN(scaler_, Scaler::Start(options, &admission_, &view_, timer_.get(), &clock_));
  return absl::OkStatus();
}

absl::Status Gateway::StartMetrics() {
  ASSIGN_OR_RETURN(auto may_read, common::OpenMetricsTokens(config_.metrics_token_file));
  ASSIGN_OR_RETURN(metrics_server_, common::MetricsServer::Start(
                                        config_.metrics_listen, metrics_.collectables(),
                                        [this] { return health_.healthy(); }, std::move(may_read)));
  return absl::OkStatus();
}

bool Gateway::IsReady() const {
  return health_.healthy() && std::ranges::any_of(view_.Get()->workers, [](const auto& load) {
           return load->state == WorkerState::kServing;
         });
}

Gateway::~Gateway() {
  if (server_ != nullptr) Shutdown();
  metrics_server_.reset();
  scaler_.reset();
  http_server_.reset();
  http_api_.reset();
  server_.reset();
  kserve_.reset();
  service_.reset();
  spans_.reset();
  adapter_updates_.reset();
  step_feed_.reset();
  transport_.reset();
  // The two call each other: the threads of discovery end before the pool, its object after it.
  if (pool_ != nullptr) discovery_->Stop();
  pool_.reset();
  discovery_.reset();
  timer_.reset();
}

void Gateway::AnnounceDrain() {
  health_.BeginDrain();
  if (http_server_ != nullptr) http_server_->AnnounceDrain();
}

void Gateway::BeginDrain() {
  service_->BeginDrain();
  if (http_server_ != nullptr) {
    http_server_->BeginDrain();
    http_api_->BeginDrain();
  }
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
  // Clients that still send calls get a status that sends them elsewhere, rather than a cut
  // connection.
  service_->WaitForQuiet(kQuiet, kLongestUnquiet);
  // A client without a call may not read, so that its connection would not end by itself; only
  // calls are waited for.
  if (!open_calls_.WaitForNone(kGoodbye)) service_->GiveUpStreams();
  if (http_server_ != nullptr) http_server_->Shutdown(absl::Now() + kGoodbye);
  // The last port to end: what is open here is a demand until now.
  if (scaler_ != nullptr) scaler_->Shutdown(absl::Now() + kGoodbye);
  if (spans_ != nullptr) spans_->Stop();
  if (usage_ != nullptr) usage_->Stop();
}

}  // namespace continuo::gateway
