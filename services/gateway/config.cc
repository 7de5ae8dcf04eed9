// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/config.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "services/common/container.h"
#include "services/common/flags.h"
#include "services/common/telemetry/metrics.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/gateway/routing/policy.h"

namespace continuo::gateway {
namespace {

// The share of the container's memory for all limits together. The rest is for the program itself,
// gRPC and the kernel.
constexpr double kShare = 0.75;
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

void AddListenFlags(common::Flags& flags, GatewayConfig& c) {
  flags.Text("workers", &c.workers,
             "Addresses of the workers: host:port,host:port or dns:///NAME:PORT or "
             "dns://SERVER:PORT/NAME:PORT, or kubernetes:///SERVICE.NAMESPACE:PORT for the "
             "endpoints of a Service of Kubernetes, which are watched. Several pools are given "
             "with their weights, and "
             "with names for metrics: stable=TARGET@95;canary=TARGET@5.");
  flags.Require("workers");
  flags.TextList(
      "models", &c.models,
      "Names of the models that the pools serve, separated by commas, and of their LoRA adapters "
      "in the form ADAPTER=MODEL. They are listed and take requests, which wait for a worker, "
      "also while their pools have none.");
  flags.Text("gateways", &c.subset.gateways,
             "Addresses of all gateways of the fleet, this one among them, as --workers names one "
             "pool. Each then watches a subset of the workers of a large pool.");
  flags.Integer<size_t>("subset_size", &c.subset.size, 0, 1 << 20,
                        "Number of workers of a pool that a gateway watches, about, with "
                        "--gateways. A pool of no more workers is watched by all. 0 is no limit.");
  std::vector<std::string> policies;
  for (const NamedPolicy& policy : kPolicies) policies.emplace_back(policy.name);
  flags.Choice("routing_policy", &c.routing_policy, policies,
               "Policy that chooses the worker of a request.");
  flags.Address("listen", &c.listen, "Address of the gRPC server. Port 0 takes a free one.");
  flags.Text(
      "http_listen", &c.http_listen,
      "Address of the HTTP server with OpenAI's and Anthropic's APIs. Port 0 takes a free one; "
      "off turns the server off.");
  flags.Text("http_cors_origins", &c.http_cors_origins,
             "Origins whose pages may use the HTTP server in a browser, such as "
             "https://app.example,http://localhost:3000; * allows all. Empty: none.");
  flags.Switch(
      "http_event_ids", &c.http_event_ids,
      "Each event of a stream over HTTP has an id, behind which the stream goes on after a "
      "cut. Requests may say otherwise; clients that take an event for data alone fail at "
      "ids.");
  common::AddMetricsFlags(flags, &c.metrics_listen, &c.metrics_token_file);
  flags.Text("usage_log", &c.usage_log,
             "File to which a line of JSON is appended at the end of each generation, with what it "
             "used; - is the standard output. Empty: none.");
  flags.Switch("usage_otlp", &c.usage_otlp,
               "Sends the records of the ledger to --otlp_endpoint, too, as log records of "
               "OpenTelemetry.");
  flags.Integer<int>("max_tenant_series", &c.max_tenant_series, 0, 1 << 20,
                     "Number of tenants that have metrics of their own. Those beyond it count as "
                     "\"other\", until one has been quiet for an hour.");
  flags.OptionalAddress(
      "scaler_listen", &c.scaler.listen,
      "Address at which KEDA asks, as of an external-push scaler, who waits for a model. It has "
      "neither TLS nor keys. Empty: there is none.");
  flags.Text("scaler_peers", &c.scaler.peers,
             "Scaler addresses of all gateways of the fleet, as --workers names one pool: what "
             "waits at one of them starts a pool through any of them.");
}

void AddLimitFlags(common::Flags& flags, GatewayConfig& c, uint64_t* open_bytes) {
  flags.Integer<int>("http_max_connections", &c.http.max_connections, 1, 1 << 20,
                     "Number of HTTP connections open at a time.");
  AdmissionLimits& limits = c.admission;
  flags.Integer<int64_t>("max_open_requests", &limits.max_open_requests, 1, kMaxInt64,
                         "Number of generations open at a time. One tenant gets at most four "
                         "fifths of those that others leave free.");
  flags.Integer<int64_t>("max_queued_tokens", &limits.max_queued_tokens, 1, kMaxInt64,
                         "Number of prompt tokens, estimated, of requests without an answer yet.");
  flags.Integer<int64_t>("tenant_max_open_requests", &limits.tenant.max_open_requests, 0, kMaxInt64,
                         "Number of generations of one tenant open at a time on this gateway. 0 is "
                         "no limit.");
  flags.Integer<int64_t>(
      "tenant_max_cold_requests", &limits.tenant.max_cold_requests, 0, kMaxInt64,
      "Number of requests of one tenant on this gateway that wait for a model of "
      "--models without a worker. 0 is no limit.");
  flags.Integer<int>(
      "tenant_max_replays", &c.http.tenant_max_replays, 0, 1 << 20,
      "Number of HTTP streams of one tenant on this gateway that are generated again "
      "at a time, up to the event behind which they go on. 0 is no limit.");
  flags.Number("tenant_requests_per_second", &limits.tenant.requests_per_second, 0, 1e9,
               "Generations of one tenant that begin on this gateway, per second. Bursts may use "
               "ten seconds' worth at once; 0 is no limit.");
  flags.Number("tenant_prompt_tokens_per_second", &limits.tenant.prompt_tokens_per_second, 0, 1e12,
               "Prompt tokens, estimated, of one tenant on this gateway, per second. Bursts may "
               "use ten seconds' worth at once; 0 is no limit.");
  flags.Bytes("max_open_bytes", open_bytes, kLeastOpenBytes, uint64_t{1} << 50,
              "Memory of all open requests together. The default is lower in a container of less "
              "than 4 GiB.");
  flags.Bytes("max_request_bytes", &c.max_request_bytes, 1 << 10, 1 << 30, "Size of one request.");
  flags.Bytes("max_buffer_bytes", &c.max_buffer_bytes, kLeastBufferBytes, uint64_t{1} << 50,
              "Memory of all connections together, for data received from clients and data not yet "
              "sent to them. The default is lower in a container of less than 4 GiB.");
  flags.Integer<int>("max_streams_per_connection", &c.max_streams_per_connection, 1, 1 << 20,
                     "Number of calls at a time on one gRPC connection. The client delays those "
                     "beyond it.");
}

void AddDurationFlags(common::Flags& flags, GatewayConfig& c) {
  flags.Duration(
      "max_connection_age", &c.max_connection_age, absl::Seconds(1), absl::Hours(24 * 7),
      "Age, give or take a tenth, at which a gRPC connection takes no new calls, so that "
      "its client reconnects. Open streams go on.");
  flags.Duration("no_worker_wait", &c.relay.retry.no_worker_wait, absl::ZeroDuration(),
                 absl::Hours(24), "Time that a stream waits while no worker can take it.");
  flags.Duration("cold_start_wait", &c.relay.retry.cold_start_wait, absl::ZeroDuration(),
                 absl::Hours(24),
                 "Time that a new request waits while a model of --models has no worker, which may "
                 "have to be started, if that is longer than --no_worker_wait.");
  flags.Duration("drain_delay", &c.drain_delay, absl::ZeroDuration(), absl::Hours(24),
                 "Time after SIGTERM in which calls are still taken, while health says "
                 "NOT_SERVING. No client meets a rejection if it is a tenth longer than "
                 "--max_connection_age.");
  flags.Duration("drain_grace", &c.drain_grace, absl::ZeroDuration(), absl::Hours(24 * 7),
                 "Time that open streams may go on after --drain_delay.");
}

void AddSecurityFlags(common::Flags& flags, GatewayConfig& c) {
  flags.Text("tls_cert_file", &c.tls.cert_file,
             "PEM certificate that clients and workers are shown.");
  flags.Text("tls_key_file", &c.tls.key_file, "PEM key of --tls_cert_file.");
  flags.Text("tls_ca_file", &c.tls.ca_file,
             "PEM CA that has to have issued the certificates of clients and workers.");
  flags.Text("worker_tls_cert_file", &c.worker_tls.cert_file,
             "PEM certificate that workers are shown instead of --tls_cert_file.");
  flags.Text("worker_tls_key_file", &c.worker_tls.key_file, "PEM key of --worker_tls_cert_file.");
  flags.Text("worker_tls_ca_file", &c.worker_tls.ca_file,
             "PEM CA that has to have issued the workers' certificates, instead of --tls_ca_file.");
  flags.Text("worker_tls_server_name", &c.worker_tls_server_name,
             "Name in the workers' certificates. The default is the worker's address.");
  flags.TextList("worker_tls_names", &c.worker_tls_names,
                 "Names, separated by commas, of which a worker's certificate needs one, whatever "
                 "its address: DNS names, with * for their first label, and URIs such as SPIFFE "
                 "ids, with * for their last segment. Instead of --worker_tls_server_name.");
  flags.Text("token_file", &c.token_file,
             "File of the tokens of the fleet, one a line. The first is shown to workers and to "
             "other gateways, and these need one of them to call --scaler_listen. It is read again "
             "when it changes. Empty: none.");
  flags.Text("api_keys_file", &c.auth.keys_file,
             "File of the keys that clients need, one a line: TENANT KEY or TENANT sha256:HEX, and "
             "what limits the key: expires=, requests_per_minute=, tokens_per_minute=, "
             "concurrent_requests= and models=, or admin=true. It is read again when it changes.");
  flags.Switch(
      "allow_lora_updates", &c.allow_lora_updates,
      "Serve POST /v1/load_lora_adapter and /v1/unload_lora_adapter, which load and unload "
      "LoRA adapters at all workers of a model. With --api_keys_file for keys with "
      "admin=true, without it for everyone.");
  flags.Switch("trust_tenant_header", &c.auth.trust_tenant_header,
               "Without keys, take the tenant from the client's x-tenant-id. By default all "
               "requests belong to one tenant.");
}

}  // namespace

ParsedConfig ParseGatewayConfig(int argc, const char* const* argv) {
  ParsedConfig parsed;
  GatewayConfig& config = parsed.config;
  auto open_bytes = static_cast<uint64_t>(config.admission.max_open_bytes);
  common::Flags flags("continuo-gateway", "Routes gRPC streams to workers and keeps them alive.");
  AddListenFlags(flags, config);
  AddLimitFlags(flags, config, &open_bytes);
  AddDurationFlags(flags, config);
  AddSecurityFlags(flags, config);
  common::AddOtlpFlags(flags, &config.otlp);
  flags.LogLevel(&config.log_level);
  parsed.exit_code = flags.Parse(argc, argv);
  if (parsed.exit_code.has_value()) return parsed;
  config.admission.max_open_bytes = static_cast<int64_t>(open_bytes);
  if (const std::optional<uint64_t> memory = common::MemoryLimitBytes()) {
    FitMemory(*memory,
              {.open_bytes = flags.given("max_open_bytes"),
               .buffer_bytes = flags.given("max_buffer_bytes")},
              &config);
  }
  return parsed;
}

void FitMemory(uint64_t memory, const ChosenLimits& chosen, GatewayConfig* config) {
  openai::HttpLimits& http = config->http;
  const auto for_each = [&](const auto& visit) {
    visit(config->max_buffer_bytes, kLeastBufferBytes, chosen.buffer_bytes);
    visit(config->admission.max_open_bytes, kLeastOpenBytes, chosen.open_bytes);
    visit(config->forwarded.max_open_bytes, kLeastOpenBytes, false);
    visit(http.max_bodies_bytes, kLeastOpenBytes, false);
    visit(http.max_answers_bytes, kLeastOpenBytes, false);
  };
  double left = kShare * static_cast<double>(memory);
  double total = 0;
  for_each([&](auto bytes, uint64_t, bool is_chosen) {
    if (is_chosen) {
      left -= static_cast<double>(bytes);
    } else {
      total += static_cast<double>(bytes);
    }
  });
  const double factor = std::max(left, 0.0) / total;
  if (factor >= 1) return;
  for_each([&](auto& bytes, uint64_t least, bool is_chosen) {
    using T = std::decay_t<decltype(bytes)>;
    if (!is_chosen)
      bytes = std::max(static_cast<T>(least), static_cast<T>(factor * static_cast<double>(bytes)));
  });
  http.max_answer_bytes = std::min(http.max_answer_bytes, http.max_answers_bytes);
}

openai::HttpLimits HttpLimitsOf(const GatewayConfig& config) {
  openai::HttpLimits limits = config.http;
  limits.max_body_bytes =
      std::min(config.max_request_bytes, static_cast<uint64_t>(limits.max_bodies_bytes) / 2);
  return limits;
}

}  // namespace continuo::gateway
