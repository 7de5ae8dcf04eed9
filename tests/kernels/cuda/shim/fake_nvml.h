// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"

namespace continuo::testing {

// A libnvidia-ml in a file of its own, which programs open by its path as they do the real one.
// Tests also link it, to say what it answers. Process-wide, thread-safe. Devices are named by their
// PCI bus ids.
class FakeNvml {
 public:
  // Path returns this library's. Reset forgets everything; nothing may be alive.
  static std::string Path();
  static void Reset(const std::vector<std::string>& devices);

  // Sends an event that the next nvmlEventSetWait_v2 of the device's set returns, after those
  // before it. Any set returns it where no set has the device.
  static void Send(const std::string& device, unsigned long long data,
                   unsigned long long type = nvmlEventTypeXidCriticalError,
                   unsigned gpu_instance = 0xffffffff);
  // The next calls of the function return this, or all that come if `times` is not given. With
  // "nvmlDeviceRegisterEvents 00000000:…" only those of that device, or of the set that has it
  // alone.
  static void Fail(const std::string& function, nvmlReturn_t result, int times = 1 << 30);
  // The device is in MIG mode.
  static void TurnMigOn(const std::string& device);
  // nvmlEventSetWait_v2 does not return, whatever its timeout, until Release.
  static void Hang();
  static void Release();

  static void AwaitCalls(const std::string& function, int count);
  // Waits until all events have been handed out.
  static void AwaitTaken();
  // Waits until every nvmlInit_v2 has its nvmlShutdown and every set is freed.
  static void AwaitEnd();
  static int NumCalls(const std::string& function);
  // Returns the number of event sets, and of nvmlInit_v2 calls without nvmlShutdown.
  static int NumAlive();
};

}  // namespace continuo::testing
