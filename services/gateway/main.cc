// SPDX-License-Identifier: Apache-2.0
// continuo-gateway: runs one gateway until a signal drains it.
#include <cstdlib>
#include <iostream>
#include <memory>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "services/common/log.h"
#include "services/common/process.h"
#include "services/common/shutdown.h"
#include "services/gateway/config.h"
#include "services/gateway/gateway.h"
#include "services/gateway/lifecycle.h"

namespace continuo::gateway {
namespace {

int Main(int argc, char** argv) {
  const ParsedConfig parsed = ParseGatewayConfig(argc, argv);
  if (parsed.exit_code.has_value()) return *parsed.exit_code;

  common::PrepareProcess();
  common::SetLogLevel(parsed.config.log_level);
  common::ShutdownSignal signal;
  const absl::StatusOr<std::unique_ptr<Gateway>> gateway = Gateway::Start(parsed.config);
  if (!gateway.ok()) {
    std::cerr << gateway.status().message() << "\n";
    return absl::IsInvalidArgument(gateway.status()) ? 2 : 1;
  }
  LogListening(**gateway, parsed.config);
  signal.Wait();
  Drain(parsed.config, &signal, gateway->get());
  // The gateway is not destroyed: the system closes the connections, see Gateway::Shutdown.
#ifdef __SANITIZE_ADDRESS__
  __lsan_do_leak_check();
#endif
  std::_Exit(0);
}

}  // namespace
}  // namespace continuo::gateway

int main(int argc, char** argv) { return continuo::gateway::Main(argc, argv); }
