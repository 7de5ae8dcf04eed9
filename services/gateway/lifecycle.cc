// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/lifecycle.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/clock.h"
#include "services/common/log.h"

namespace continuo::gateway {
namespace {

// The drain looks so often whether the last stream has ended.
constexpr absl::Duration kDrainPoll = absl::Milliseconds(50);

// The address with the port that was taken.
std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

void LogListening(const Gateway& gateway, const GatewayConfig& config) {
  const int http_port = gateway.http_port();
  common::Log(common::LogSeverity::kInfo, "listening",
              {{"address", gateway.address()},
               {"http_address", http_port == 0 ? "" : WithPort(config.http_listen, http_port)},
               {"metrics_address", WithPort(config.metrics_listen, gateway.metrics_port())},
               {"scaler_address", gateway.scaler_address()},
               {"workers", config.workers},
               {"max_open_bytes", config.admission.max_open_bytes},
               {"max_buffer_bytes", config.max_buffer_bytes}});
}

void Drain(const GatewayConfig& config, common::ShutdownSignal* signal, Gateway* gateway) {
  bool hurry = false;  // Another signal has arrived.
  if (config.drain_delay > absl::ZeroDuration()) {
    gateway->AnnounceDrain();
    common::Log(common::LogSeverity::kInfo, "about to drain", {{"delay", config.drain_delay}});
    hurry = signal->WaitFor(config.drain_delay).has_value();
  }
  gateway->BeginDrain();
  common::Log(common::LogSeverity::kInfo, "draining",
              {{"streams", gateway->num_streams()}, {"grace", config.drain_grace}});
  const SystemClock clock;
  const absl::Duration end = clock.Elapsed() + config.drain_grace;
  while (!hurry && gateway->num_streams() > 0 && clock.Elapsed() < end) {
    hurry = signal->WaitFor(std::min(kDrainPoll, end - clock.Elapsed())).has_value();
  }
  const int64_t cut = gateway->num_streams();
  gateway->Shutdown();
  common::Log(common::LogSeverity::kInfo, "stopped", {{"streams_cut", cut}});
}

}  // namespace continuo::gateway
