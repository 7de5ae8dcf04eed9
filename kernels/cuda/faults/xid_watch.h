// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/device_faults.h"
#include "services/base/clock.h"

namespace continuo::kernels::cuda {

struct XidWatchOptions {
  std::string library = "libnvidia-ml.so.1";               // of the driver; a name for dlopen
  absl::Duration explain_limit = absl::Milliseconds(500);  // that Explain waits for an Xid
  // Between two questions to NVML, so that no answer of its makes the thread run hot.
  absl::Duration pause = absl::Milliseconds(10);
  // That the destructor waits for the thread, which NVML may never let go; then it is left behind.
  absl::Duration end_limit = absl::Seconds(2);
  const Clock* clock = nullptr;                    // outlives the object
  std::function<void(const DeviceNote&)> on_note;  // as DeviceFaultsOptions::on_note; may be null
};

// The Xids of some CUDA devices, as NVML tells them, and that it has lost one. A thread of its own
// makes all calls of NVML, so that a driver that hangs holds up nobody else. Each device is
// listened to by itself. Where NVML is missing or of no use, for all devices or some, a note says
// so; Explain adds what is known, without a wait where nothing more is heard.
class XidWatch : public DeviceFaults {
 public:
  XidWatch(std::vector<Device> devices, XidWatchOptions options);
  ~XidWatch() override;

  absl::Status Explain(const absl::Status& failure) override;
  // The devices (as in cuda:INDEX) whose Xids are heard of, once NVML has been asked for them all.
  std::vector<int> Watched() const;

 private:
  struct State;  // outlives the object where the thread is left behind
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace continuo::kernels::cuda
