// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#define NVML_NO_UNVERSIONED_FUNC_DEFS  // only nvmlInit_v2 is called
#include "nvml.h"

namespace continuo::kernels::cuda {

// Functions of NVIDIA's management library (NVML) that report Xids. NVML is part of the driver and
// not of the toolkit, and may be missing, so it is opened by name and not linked. Thread-safe.
class NvmlLibrary {
 public:
  // NotFound names the missing file or function.
  static absl::StatusOr<std::unique_ptr<NvmlLibrary>> Open(const std::string& path);
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  // Returns OK, or an error such as "nvmlInit_v2: Driver Not Loaded (9)".
  absl::Status Check(nvmlReturn_t result, const char* function) const;

  decltype(&nvmlInit_v2) Init = nullptr;
  decltype(&nvmlShutdown) Shutdown = nullptr;
  decltype(&nvmlErrorString) ErrorString = nullptr;
  decltype(&nvmlDeviceGetHandleByPciBusId_v2) DeviceGetHandleByPciBusId = nullptr;
  decltype(&nvmlDeviceRegisterEvents) DeviceRegisterEvents = nullptr;
  decltype(&nvmlEventSetCreate) EventSetCreate = nullptr;
  decltype(&nvmlEventSetWait_v2) EventSetWait = nullptr;
  decltype(&nvmlEventSetFree) EventSetFree = nullptr;
  // null where NVML has no such function
  decltype(&nvmlDeviceGetMigMode) DeviceGetMigMode = nullptr;

 private:
  explicit NvmlLibrary(void* handle) : handle_(handle) {}
  void* const handle_;  // from dlopen
};

}  // namespace continuo::kernels::cuda
