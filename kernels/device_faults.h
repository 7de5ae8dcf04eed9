// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/clock.h"

namespace continuo::kernels {

// A line for the log about a process's devices.
struct DeviceNote {
  enum class Kind : uint8_t {
    kFault,              // a fault that the driver reports of a device, "Xid 79 on cuda:0: …"
    kEventsUnavailable,  // the reason why the driver will report nothing
    kEventsIncomplete    // the reason why it will not report everything, or nothing of some devices
  };
  Kind kind = Kind::kFault;
  std::string text;
};

// The faults of a process's devices that the driver reports. Errors of calls say that a device is
// lost; these say why. Thread-safe.
class DeviceFaults {
 public:
  virtual ~DeviceFaults() = default;
  // Returns `failure` with the faults that are known: "…; Xid 79 on cuda:0: GPU has fallen off the
  // bus". Faults may be reported a little after the error, so this waits up to half a second for
  // one of a device that `failure` names (as "cuda:0"), or of any where it names none. Call it
  // where a process ends, not where others wait. A status that is no device's fault comes back at
  // once and unchanged: OK, ResourceExhausted, InvalidArgument, NotFound, FailedPrecondition.
  virtual absl::Status Explain(const absl::Status& failure) = 0;
};

struct DeviceFaultsOptions {
  std::string device = "cpu";    // as DeviceOptions::device
  const Clock* clock = nullptr;  // outlives the result
  // Called on a thread of the result, until that is destroyed. Notes are limited, however many
  // faults come.
  std::function<void(const DeviceNote&)> on_note;
};

// One watch is enough for a process. Null where no driver reports faults, as for the CPU; errors
// are those of finding the devices.
absl::StatusOr<std::shared_ptr<DeviceFaults>> WatchDeviceFaults(const DeviceFaultsOptions& options);

}  // namespace continuo::kernels
