// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/cuda/runtime/device_info.h"
#include "kernels/device_faults.h"
#include "services/base/clock.h"

namespace continuo::kernels::cuda {

struct XidWatchOptions {
  std::string library = "libnvidia-ml.so.1";  // the driver's library, a name for dlopen
  absl::Duration explain_limit = absl::Milliseconds(500);  // time that Explain waits for an Xid
  // Pause between two calls of NVML, so that the thread does not spin whatever NVML answers.
  absl::Duration pause = absl::Milliseconds(10);
  // Time that the destructor waits for the thread, which NVML may never let go. Then the thread is
  // left behind.
  absl::Duration end_limit = absl::Seconds(2);
  const Clock* clock = nullptr;                    // outlives the object
  std::function<void(const DeviceNote&)> on_note;  // as DeviceFaultsOptions::on_note; may be null
};

// Reports the Xids of some CUDA devices, and devices that NVML has lost. A thread of its own makes
// all calls of NVML, so that a driver that hangs delays no other thread. Each device has an event
// set of its own. Where NVML is missing or fails, for all devices or some, a note says so. Explain
// then adds the faults that are known, without a wait where no more can come.
class XidWatch : public DeviceFaults {
 public:
  XidWatch(std::vector<DeviceInfo> devices, XidWatchOptions options);
  ~XidWatch() override;

  absl::Status Explain(const absl::Status& failure) override;
  // Returns the devices (as in cuda:INDEX) whose events NVML has registered, once it was asked for
  // all of them. For tests.
  std::vector<int> Watched() const;

 private:
  struct State;  // outlives the object where the thread is left behind
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace continuo::kernels::cuda
