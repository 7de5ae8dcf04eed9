// SPDX-License-Identifier: Apache-2.0
// continuo-worker: flags, then WorkerProcess.

#include "kernels/replica.h"
#include "services/common/log.h"
#include "services/common/process.h"
#include "services/worker/config.h"
#include "services/worker/worker_process.h"

int main(int argc, char** argv) {
  continuo::worker::ParsedConfig parsed = continuo::worker::ParseWorkerConfig(argc, argv);
  if (parsed.exit_code.has_value()) return *parsed.exit_code;
  continuo::common::PrepareProcess();
  continuo::common::SetLogLevel(parsed.config.log_level);
  continuo::kernels::PrepareDevices(parsed.config.load.device.device);
  continuo::worker::WorkerProcess process(std::move(parsed.config));
  process.Run();
  return 0;
}
