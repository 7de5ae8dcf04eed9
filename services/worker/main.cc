// SPDX-License-Identifier: Apache-2.0
// continuo-worker: flags, then WorkerProcess, or what --describe or --calibrate asks for.

#include <iostream>

#include "kernels/replica.h"
#include "services/common/log.h"
#include "services/common/process.h"
#include "services/worker/config.h"
#include "services/worker/print_facts.h"
#include "services/worker/print_profile.h"
#include "services/worker/worker_process.h"

int main(int argc, char** argv) {
  continuo::worker::ParsedConfig parsed = continuo::worker::ParseWorkerConfig(argc, argv);
  if (parsed.exit_code.has_value()) return *parsed.exit_code;
  if (!parsed.config.describe.empty()) {
    continuo::kernels::PrepareDevices(parsed.config.load.device.device);
    return continuo::worker::PrintFacts(parsed.config, std::cout);
  }
  continuo::common::PrepareProcess();
  continuo::common::SetLogLevel(parsed.config.log_level);
  continuo::kernels::PrepareDevices(parsed.config.load.device.device);
  if (parsed.config.calibrate) return continuo::worker::PrintProfile(parsed.config, std::cout);
  continuo::worker::WorkerProcess process(std::move(parsed.config));
  process.Run();
  return 0;
}
