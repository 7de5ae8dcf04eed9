// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/faults/nvml_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

template <typename Function>
absl::Status Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  if (*function != nullptr) return absl::OkStatus();
  const char* const why = dlerror();
  return absl::NotFoundError(why != nullptr ? why : absl::StrCat(name, " is null"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NvmlLibrary>> NvmlLibrary::Open(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return absl::NotFoundError(why != nullptr ? why : absl::StrCat(path, " cannot be opened"));
  }
  std::unique_ptr<NvmlLibrary> n(new NvmlLibrary(handle));
  RETURN_IF_ERROR(Find(handle, "nvmlInit_v2", &n->Init));
  RETURN_IF_ERROR(Find(handle, "nvmlShutdown", &n->Shutdown));
  RETURN_IF_ERROR(Find(handle, "nvmlErrorString", &n->ErrorString));
  RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetHandleByPciBusId_v2", &n->DeviceGetHandleByPciBusId));
  RETURN_IF_ERROR(Find(handle, "nvmlDeviceRegisterEvents", &n->DeviceRegisterEvents));
  RETURN_IF_ERROR(Find(handle, "nvmlEventSetCreate", &n->EventSetCreate));
  RETURN_IF_ERROR(Find(handle, "nvmlEventSetWait_v2", &n->EventSetWait));
  RETURN_IF_ERROR(Find(handle, "nvmlEventSetFree", &n->EventSetFree));
  Find(handle, "nvmlDeviceGetMigMode", &n->DeviceGetMigMode).IgnoreError();
  return n;
}

NvmlLibrary::~NvmlLibrary() { (void)dlclose(handle_); }

absl::Status NvmlLibrary::Check(nvmlReturn_t result, const char* function) const {
  if (result == NVML_SUCCESS) return absl::OkStatus();
  const char* const text = ErrorString(result);
  return absl::InternalError(absl::StrCat(function, ": ", text != nullptr ? text : "error", " (",
                                          static_cast<int>(result), ")"));
}

}  // namespace continuo::kernels::cuda
