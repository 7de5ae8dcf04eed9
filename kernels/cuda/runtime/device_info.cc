// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/device_info.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// Turns 13020 into "13.2".
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// A version of CUDA that workers are built with, and the oldest driver that runs them. Within a
// major version an older driver runs newer programs; what it compiles itself, PTX, is of 12.4 in
// the second one, and edges of programmatic launches in graphs are of 12.3.
struct Build {
  int major;
  int oldest;  // as cudaDriverGetVersion says it
  const char* driver;
  const char* image;
};
constexpr std::array kBuilds = {Build{13, 13000, "R580", "continuo-worker-cuda"},
                                Build{12, 12040, "R550", "continuo-worker-cuda12"}};

absl::StatusOr<int> CountDevices() {
  int driver = 0, runtime = 0, count = 0;
  RETURN_IF_ERROR(CudaStatus(cudaDriverGetVersion(&driver), 0, "cudaDriverGetVersion"));
  RETURN_IF_ERROR(CudaStatus(cudaRuntimeGetVersion(&runtime), 0, "cudaRuntimeGetVersion"));
  if (driver == 0) {
    return absl::FailedPreconditionError(
        "no CUDA driver: libcuda.so.1 was not found (in a container it comes from the host)");
  }
  RETURN_IF_ERROR(CheckDriver(driver, runtime));
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    (void)cudaGetLastError();
    return absl::FailedPreconditionError(
        "no CUDA device is visible (CUDA_VISIBLE_DEVICES and the container's devices decide)");
  }
  RETURN_IF_ERROR(CudaStatus(error, 0, "cudaGetDeviceCount"));
  return count;
}

absl::StatusOr<DeviceInfo> Describe(int index) {
  cudaDeviceProp properties{};
  RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, index), index, "cudaGetDeviceProperties"));
  DeviceInfo device{.index = index,
                    .name = properties.name,
                    .pci_bus_id = absl::StrFormat("%08X:%02X:%02X.0", properties.pciDomainID,
                                                  properties.pciBusID, properties.pciDeviceID),
                    .major = properties.major,
                    .minor = properties.minor,
                    .num_multiprocessors = properties.multiProcessorCount};
  if (device.major < kMinMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda:", index, " (", device.name, ") has compute capability ", device.major,
                     ".", device.minor, "; this build needs ", kMinMajor, ".0 at least"));
  }
  RETURN_IF_ERROR(SetDevice(index));
  size_t free = 0, total = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), index, "cudaMemGetInfo"));
  device.free_bytes = static_cast<int64_t>(free);
  device.total_bytes = static_cast<int64_t>(total);
  return device;
}

}  // namespace

absl::Status CheckDriver(int driver, int runtime) {
  const auto first_of = [](auto is_so) {
    return std::find_if(kBuilds.begin(), kBuilds.end() - 1, is_so);
  };
  const Build& own = *first_of([&](const Build& b) { return b.major <= runtime / 1000; });
  if (driver >= own.oldest) return absl::OkStatus();
  const auto needs = [](const Build& build) {
    return absl::StrCat("CUDA ", VersionText(build.oldest), " (driver ", build.driver, ")");
  };
  const Build& other = *first_of([&](const Build& b) { return b.oldest <= driver; });
  std::string advice = "update the driver";
  if (other.oldest <= driver) {
    advice = absl::StrCat("use the image ", other.image, ", which needs ", needs(other), ", or ",
                          advice);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the CUDA driver is of CUDA ", VersionText(driver), ", and this build of CUDA ",
                   VersionText(runtime), " needs ", needs(own), " or newer: ", advice));
}

absl::StatusOr<std::vector<int>> ParseDevices(std::string_view device) {
  const absl::string_view text(device.data(), device.size());
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("device \"", text, "\": ", why, "; it must be like cuda:0 or cuda:0,1"));
  };
  absl::string_view list = text;
  if (!absl::ConsumePrefix(&list, "cuda:")) return refuse("it does not begin with cuda:");
  std::vector<int> indices;
  for (const absl::string_view item : absl::StrSplit(list, ',')) {
    int index = 0;
    const bool digits =
        !item.empty() && item.size() <= 4 &&
        std::all_of(item.begin(), item.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || !absl::SimpleAtoi(item, &index)) {
      return refuse(absl::StrCat("\"", item, "\" is no number of a device"));
    }
    if (std::find(indices.begin(), indices.end(), index) != indices.end()) {
      return refuse(absl::StrCat(index, " is there twice, and NCCL takes one rank a device"));
    }
    indices.push_back(index);
  }
  if (const size_t n = indices.size(); n != 1 && n != 2 && n != 4 && n != 8) {
    return refuse(absl::StrCat("it names ", n, " devices, and there must be 1, 2, 4 or 8"));
  }
  return indices;
}

void PrepareLibraries(std::span<const int> indices) {
  if (indices.size() < 2) return;
  constexpr int kKeep = 0;  // does not overwrite
  setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
  setenv("NCCL_RUNTIME_CONNECT", "0", kKeep);
}

absl::StatusOr<std::vector<DeviceInfo>> FindDevices(std::span<const int> indices) {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  std::vector<DeviceInfo> devices;
  for (const int index : indices) {
    if (index < 0 || index >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat("device cuda:", index, ": this machine shows ", count,
                       count == 1 ? " device, cuda:0" : " devices, the last of them cuda:",
                       count == 1 ? "" : absl::StrCat(count - 1)));
    }
    ASSIGN_OR_RETURN(DeviceInfo device, Describe(index));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace continuo::kernels::cuda
