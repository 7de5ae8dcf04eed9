// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#define NVML_NO_UNVERSIONED_FUNC_DEFS  // nvmlInit_v2 is called so
#include "nvml.h"

namespace continuo::kernels::cuda {

// The functions of NVIDIA's management library that tell of Xids. It is a part of the driver, not
// of the toolkit, and there may be none, so it is opened by name and not linked. Thread-safe.
class NvmlLibrary {
 public:
  // NotFound says which file or function is missing.
  static absl::StatusOr<std::unique_ptr<NvmlLibrary>> Open(const std::string& path);
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  // OK, or "nvmlInit_v2: Driver Not Loaded (9)".
  absl::Status Check(nvmlReturn_t result, const char* function) const;

  decltype(&nvmlInit_v2) Init = nullptr;
  decltype(&nvmlShutdown) Shutdown = nullptr;
  decltype(&nvmlErrorString) ErrorString = nullptr;
  decltype(&nvmlDeviceGetHandleByPciBusId_v2) DeviceGetHandleByPciBusId = nullptr;
  decltype(&nvmlDeviceRegisterEvents) DeviceRegisterEvents = nullptr;
  decltype(&nvmlEventSetCreate) EventSetCreate = nullptr;
  decltype(&nvmlEventSetWait_v2) EventSetWait = nullptr;
  decltype(&nvmlEventSetFree) EventSetFree = nullptr;
  decltype(&nvmlDeviceGetMigMode) DeviceGetMigMode = nullptr;  // null where NVML lacks it

 private:
  explicit NvmlLibrary(void* handle) : handle_(handle) {}
  void* const handle_;  // of dlopen
};

}  // namespace continuo::kernels::cuda
