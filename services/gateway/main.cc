// SPDX-License-Identifier: Apache-2.0
// continuo-gateway: flags, one gateway, and its end.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "absl/strings/str_cat.h"
#include "services/common/container.h"
#include "services/common/flags.h"
#include "services/common/log.h"
#include "services/common/process.h"
#include "services/common/shutdown.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/gateway/gateway.h"

namespace continuo::gateway {
namespace {

// How often it is looked whether the last stream has ended.
constexpr absl::Duration kDrainPoll = absl::Milliseconds(50);

int Main(int argc, char** argv) {
  GatewayConfig config;
  common::Flags flags("continuo-gateway", "Routes gRPC streams to workers and keeps them alive.");
  flags.Text("workers", &config.workers,
             "where the workers are: host:port,host:port or dns:///NAME:PORT or "
             "dns://SERVER:PORT/NAME:PORT; or several pools by weight, TARGET@95;TARGET@5");
  std::vector<std::string> policies;
  for (const NamedPolicy& policy : kPolicies) policies.emplace_back(policy.name);
  flags.Choice("routing_policy", &config.routing_policy, policies, "which worker takes a request");
  flags.Address("listen", &config.listen, "address for clients; port 0 takes a free one");
  flags.Text("http_listen", &config.http_listen,
             "address for clients of OpenAI's interface over HTTP; port 0 takes a free one, off "
             "turns it off");
  flags.Integer<int>("http_max_connections", &config.http.max_connections, 1, 1 << 20,
                     "HTTP connections open at a time");
  flags.Address("metrics_listen", &config.metrics_listen, "address of /metrics and /healthz");
  common::AddSpanFlags(flags, &config.spans);
  flags.Integer<int64_t>("max_open_requests", &config.admission.max_open_requests, 1,
                         std::numeric_limits<int64_t>::max(),
                         "generations open at a time; four fifths at most are of one tenant");
  flags.Integer<int64_t>("max_queued_tokens", &config.admission.max_queued_tokens, 1,
                         std::numeric_limits<int64_t>::max(),
                         "prompt tokens, estimated, of requests that have no answer yet");
  flags.Integer<int64_t>("tenant_max_open_requests", &config.admission.tenant.max_open_requests, 0,
                         std::numeric_limits<int64_t>::max(),
                         "generations of one tenant open at a time on this gateway; 0 is no limit");
  flags.Number(
      "tenant_requests_per_second", &config.admission.tenant.requests_per_second, 0, 1e9,
      "generations of one tenant that begin on this gateway, ten seconds' worth at once; 0 "
      "is no limit");
  flags.Number(
      "tenant_prompt_tokens_per_second", &config.admission.tenant.prompt_tokens_per_second, 0, 1e12,
      "prompt tokens, estimated, of one tenant on this gateway, ten seconds' worth at once; "
      "0 is no limit");
  auto open_bytes = static_cast<uint64_t>(config.admission.max_open_bytes);
  flags.Bytes("max_open_bytes", &open_bytes, kLeastOpenBytes, uint64_t{1} << 50,
              "memory of all open requests together; where it is not given, less in a container "
              "of less than 4 GiB");
  flags.Bytes("max_request_bytes", &config.max_request_bytes, 1 << 10, 1 << 30,
              "size of one request");
  flags.Bytes("max_buffer_bytes", &config.max_buffer_bytes, kLeastBufferBytes, uint64_t{1} << 50,
              "memory for what clients send and have not been sent, of all connections together; "
              "where it is not given, less in a container of less than 4 GiB");
  flags.Integer<int>("max_streams_per_connection", &config.max_streams_per_connection, 1, 1 << 20,
                     "calls at a time on one connection; a client waits with those beyond");
  flags.Duration(
      "max_connection_age", &config.max_connection_age, absl::Seconds(1), absl::Hours(24 * 7),
      "after this, give or take a tenth, a gRPC connection takes no new calls and its client "
      "connects anew; open streams go on");
  flags.Duration("no_worker_wait", &config.relay.retry.no_worker_wait, absl::ZeroDuration(),
                 absl::Hours(24), "how long a stream waits while no worker can take it");
  flags.Duration(
      "drain_delay", &config.drain_delay, absl::ZeroDuration(), absl::Hours(24),
      "how long calls are still taken after SIGTERM, while health says NOT_SERVING; a tenth more "
      "than max_connection_age, and clients that are sent elsewhere meet no refusal");
  flags.Duration("drain_grace", &config.drain_grace, absl::ZeroDuration(), absl::Hours(24 * 7),
                 "how long open streams may go on after that");
  flags.Text("tls_cert_file", &config.tls.cert_file, "certificate, towards clients and workers");
  flags.Text("tls_key_file", &config.tls.key_file, "its key");
  flags.Text("tls_ca_file", &config.tls.ca_file,
             "CA that clients' and workers' certificates have to be of");
  flags.Text("worker_tls_cert_file", &config.worker_tls.cert_file,
             "certificate towards workers, where it is not tls_cert_file");
  flags.Text("worker_tls_key_file", &config.worker_tls.key_file, "its key");
  flags.Text("worker_tls_ca_file", &config.worker_tls.ca_file,
             "CA that workers' certificates have to be of, where it is not tls_ca_file");
  flags.Text("worker_tls_server_name", &config.worker_tls_server_name,
             "name in the workers' certificates, where it is not their address");
  flags.Text(
      "api_keys_file", &config.auth.keys_file,
      "keys that clients need, a line each: TENANT KEY or TENANT sha256:HEX; read again when "
      "it changes");
  flags.Switch("trust_tenant_header", &config.auth.trust_tenant_header,
               "without keys: believe x-tenant-id from clients; else all belong to one tenant");
  if (const std::optional<int> code = flags.Parse(argc, argv)) return *code;
  config.admission.max_open_bytes = static_cast<int64_t>(open_bytes);
  if (const std::optional<uint64_t> memory = common::MemoryLimitBytes()) {
    FitMemory(*memory,
              {.open_bytes = flags.given("max_open_bytes"),
               .buffer_bytes = flags.given("max_buffer_bytes")},
              &config);
  }
  if (config.workers.empty()) {
    std::cerr << "--workers is needed: host:port,host:port or dns:///NAME:PORT\n";
    return 2;
  }

  common::PrepareProcess();
  common::ShutdownSignal signal;
  absl::StatusOr<std::unique_ptr<Gateway>> gateway = Gateway::Start(config);
  if (!gateway.ok()) {
    std::cerr << gateway.status().message() << "\n";
    return absl::IsInvalidArgument(gateway.status()) ? 2 : 1;
  }
  const std::string metrics_host =
      config.metrics_listen.substr(0, config.metrics_listen.rfind(':'));
  const std::string http_host = config.http_listen.substr(0, config.http_listen.rfind(':'));
  const int http_port = (*gateway)->http_port();
  common::Log(common::LogSeverity::kInfo, "listening",
              {{"address", (*gateway)->address()},
               {"http_address", http_port == 0 ? "" : absl::StrCat(http_host, ":", http_port)},
               {"metrics_address", absl::StrCat(metrics_host, ":", (*gateway)->metrics_port())},
               {"workers", config.workers},
               {"max_open_bytes", config.admission.max_open_bytes},
               {"max_buffer_bytes", config.max_buffer_bytes}});

  signal.Wait();
  bool hurry = false;  // a second signal ends all waits
  if (config.drain_delay > absl::ZeroDuration()) {
    (*gateway)->AnnounceDrain();
    common::Log(common::LogSeverity::kInfo, "about to drain", {{"delay", config.drain_delay}});
    hurry = signal.WaitFor(config.drain_delay).has_value();
  }
  (*gateway)->BeginDrain();
  common::Log(common::LogSeverity::kInfo, "draining",
              {{"streams", (*gateway)->num_streams()}, {"grace", config.drain_grace}});
  const SystemClock clock;
  const absl::Duration end = clock.Elapsed() + config.drain_grace;
  while (!hurry && (*gateway)->num_streams() > 0 && clock.Elapsed() < end) {
    hurry = signal.WaitFor(std::min(kDrainPoll, end - clock.Elapsed())).has_value();
  }
  const int64_t cut = (*gateway)->num_streams();
  (*gateway)->Shutdown();
  common::Log(common::LogSeverity::kInfo, "stopped", {{"streams_cut", cut}});
  // The system closes the connections: see Shutdown.
#ifdef __SANITIZE_ADDRESS__
  __lsan_do_leak_check();
#endif
  std::_Exit(0);
}

}  // namespace
}  // namespace continuo::gateway

int main(int argc, char** argv) { return continuo::gateway::Main(argc, argv); }
