// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "services/common/tls.h"
#include "services/gateway/admission.h"
#include "services/gateway/auth.h"
#include "services/gateway/resolver.h"
#include "services/gateway/stream_relay.h"

namespace continuo::gateway {

// What one gateway is started with; the defaults of the flags.
struct GatewayConfig {
  std::string workers;  // "dns:///NAME:PORT" or "host:port,host:port"
  std::string listen = "0.0.0.0:50050";
  std::string metrics_listen = "0.0.0.0:9091";
  TlsFiles tls;  // of the gateway, towards clients and workers
  std::string worker_tls_server_name;
  AuthOptions auth;
  AdmissionLimits admission;
  RelayOptions relay;
  ResolverOptions resolver;
  uint64_t max_request_bytes = 8 << 20;
  absl::Duration drain_grace = absl::Minutes(10);
};

}  // namespace continuo::gateway
