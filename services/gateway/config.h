// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/common/tls.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/discovery/discovery.h"
#include "services/gateway/discovery/resolver.h"
#include "services/gateway/openai/http/http_limits.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/requests/auth.h"
#include "services/gateway/scaler/scaler.h"

namespace continuo::gateway {

// The configuration of one gateway, with the defaults of the flags.
struct GatewayConfig {
  std::string workers;                          // The argument of ParsePools.
  std::vector<std::string> models;              // As ParseDeclaredModels reads them.
  std::string routing_policy = "least_loaded";  // One of kPolicies.
  std::string listen = "0.0.0.0:50050";
  std::string metrics_listen = "0.0.0.0:9091";
  std::string metrics_token_file;
  std::string http_listen = "0.0.0.0:8080";  // The OpenAI API; "" and "off" turn it off.
  std::string http_cors_origins;             // The argument of CorsPolicy::Parse.
  bool http_event_ids = true;
  ScalerOptions scaler;
  openai::HttpLimits http;
  common::TlsFiles tls;  // Towards clients, and towards workers where worker_tls is empty.
  common::TlsFiles worker_tls = {.flag_prefix = "worker_tls"};
  std::string worker_tls_server_name;
  std::vector<std::string> worker_tls_names;
  std::string token_file;
  std::string usage_log;    // A file, or "-"; "" is none.
  bool usage_otlp = false;  // Needs a collector.
  common::OtlpTarget otlp;
  std::string log_level = "info";
  int max_tenant_series = 1000;  // Tenants with series of their own; the rest share one.
  AuthOptions auth;
  bool allow_lora_updates = false;
  AdmissionLimits admission;
  // The limits of the methods that one worker answers, whose texts and answers are held while a
  // worker reads them.
  AdmissionLimits forwarded = {.max_open_requests = 1024, .max_open_bytes = 256 << 20};
  RelayOptions relay;
  ResolverOptions resolver;
  SubsetOptions subset;
  uint64_t max_request_bytes = 8 << 20;
  // The memory of all client connections together, authenticated or not: nobody is authenticated
  // before a request has arrived. Beyond it, gRPC reads less and ends streams.
  uint64_t max_buffer_bytes = 1 << 30;
  int max_streams_per_connection = 1024;
  // A connection of this age takes no new calls, and its client reconnects; its streams go on.
  absl::Duration max_connection_age = absl::Hours(1);
  absl::Duration drain_delay;  // From SIGTERM to the drain; calls are still taken.
  absl::Duration drain_grace = absl::Minutes(10);
};

// Either a configuration or the exit code: 0 after --help or --version, 2 after a bad command line,
// which is explained in one line on stderr.
struct ParsedConfig {
  GatewayConfig config;
  std::optional<int> exit_code;
};
// Reads the flags and fits the limits on memory that were not given to the container.
ParsedConfig ParseGatewayConfig(int argc, const char* const* argv);

// The minima of the flags, and of FitMemory.
inline constexpr uint64_t kLeastBufferBytes = 16 << 20;
inline constexpr uint64_t kLeastOpenBytes = 1 << 20;

// The limits that an operator has chosen.
struct ChosenLimits {
  bool open_bytes = false;  // admission.max_open_bytes
  bool buffer_bytes = false;
};

// Lowers the limits on the memory of calls, connections and answers (max_open_bytes of admission
// and forwarded, http's and max_buffer_bytes) in proportion, so that together they take at most
// three quarters of the container's `memory`, in bytes. Chosen limits stay, and each other one
// keeps its minimum.
void FitMemory(uint64_t memory, const ChosenLimits& chosen, GatewayConfig* config);

// The limits of the HTTP server. A body is at most max_request_bytes and half of the memory of all
// bodies. Its buffer grows by doubling, so the other half is there for the larger copy.
openai::HttpLimits HttpLimitsOf(const GatewayConfig& config);

}  // namespace continuo::gateway
