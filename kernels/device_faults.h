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
    kFault,       // what the driver tells of a device, "Xid 79 on cuda:0: …"
    kUnheard,     // why it will tell nothing
    kPartUnheard  // why it will not tell all: of some devices nothing, or not everything
  };
  Kind kind = Kind::kFault;
  std::string text;
};

// What the driver tells of the faults of a process's devices, beside the errors of calls: those say
// that a device is lost, this says why. Thread-safe.
class DeviceFaults {
 public:
  virtual ~DeviceFaults() = default;
  // `failure` with the faults that are known: "…; Xid 79 on cuda:0: GPU has fallen off the bus".
  // They may come a little behind the error, so this waits up to half a second for one, of a device
  // that `failure` names as "cuda:0" where it names any: what ends a process asks, nothing that
  // others wait for. What is no device's fault comes back at once, as it is: OK,
  // ResourceExhausted, and what is wrong with arguments, files or the machine (InvalidArgument,
  // NotFound, FailedPrecondition).
  virtual absl::Status Explain(const absl::Status& failure) = 0;
};

struct DeviceFaultsOptions {
  std::string device = "cpu";    // as ReplicaOptions::device
  const Clock* clock = nullptr;  // outlives the result
  // By a thread of the result's, until that is destroyed. A flood of faults is not a flood of
  // notes.
  std::function<void(const DeviceNote&)> on_note;
};

// One for the process is enough. Null where no driver tells of faults, as of the CPU; errors are
// those of finding the devices.
absl::StatusOr<std::shared_ptr<DeviceFaults>> WatchDeviceFaults(const DeviceFaultsOptions& options);

}  // namespace continuo::kernels
