// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/common/tls.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/openai/http/http_limits.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/requests/auth.h"
#include "services/gateway/workers/resolver.h"

namespace continuo::gateway {

// What one gateway is started with; the defaults of the flags.
struct GatewayConfig {
  std::string workers;                          // as ParsePools takes it
  std::string routing_policy = "least_loaded";  // of kPolicies
  std::string listen = "0.0.0.0:50050";
  std::string metrics_listen = "0.0.0.0:9091";
  std::string http_listen = "0.0.0.0:8080";  // OpenAI's interface; "" or "off": none
  openai::HttpLimits http;
  common::TlsFiles tls;  // towards clients, and towards workers where the next is unset
  common::TlsFiles worker_tls = {.flag_prefix = "worker_tls"};
  std::string worker_tls_server_name;
  common::SpanTarget spans;
  AuthOptions auth;
  AdmissionLimits admission;
  // Of Tokenize, Detokenize and Embed: a text and its answer are held while a worker reads it.
  AdmissionLimits forwarded = {.max_open_requests = 1024, .max_open_bytes = 256 << 20};
  RelayOptions relay;
  ResolverOptions resolver;
  uint64_t max_request_bytes = 8 << 20;
  // What all client connections may hold together, whoever they are: nobody is authenticated
  // before a request has arrived. Beyond, gRPC reads less and ends streams.
  uint64_t max_buffer_bytes = 1 << 30;
  int max_streams_per_connection = 1024;
  // After this a connection takes no new calls, and its client connects anew; its streams go on.
  absl::Duration max_connection_age = absl::Hours(1);
  absl::Duration drain_delay;  // from SIGTERM to the drain; calls are taken
  absl::Duration drain_grace = absl::Minutes(10);
};

// The least that the flags take, and that FitMemory leaves.
inline constexpr uint64_t kLeastBufferBytes = 16 << 20;
inline constexpr uint64_t kLeastOpenBytes = 1 << 20;

// Limits that somebody has chosen.
struct ChosenLimits {
  bool open_bytes = false;  // admission.max_open_bytes
  bool buffer_bytes = false;
};

// Lowers what calls, connections and answers may hold (max_open_bytes, forwarded's, http's and
// max_buffer_bytes), but for what was chosen, so that all of it together is at most three quarters
// of the `memory` bytes that the container has, where that leaves each its least.
void FitMemory(uint64_t memory, const ChosenLimits& chosen, GatewayConfig* config);

// Those of the HTTP server: a body is at most max_request_bytes, and while it grows in steps of two
// it has room where no other one is received.
openai::HttpLimits HttpLimitsOf(const GatewayConfig& config);

}  // namespace continuo::gateway
