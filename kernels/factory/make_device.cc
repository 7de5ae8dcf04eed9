// SPDX-License-Identifier: Apache-2.0
// The functions that switch on device names, such as MakeDevice and MakeReplica. No other file
// does.
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_replica.h"
#include "kernels/cpu/isa/pick_kernels.h"
#include "kernels/device.h"
#include "kernels/device_faults.h"
#include "kernels/device_options.h"
#include "kernels/host/numa.h"
#include "kernels/replica.h"
#include "services/base/status_macros.h"
#if CONTINUO_CUDA
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_replica.h"
#include "kernels/cuda/faults/xid_watch.h"
#include "kernels/cuda/runtime/device_info.h"
#endif

namespace continuo::kernels {
namespace {

absl::Status NoSuchDevice(absl::string_view device) {
  constexpr const char* kHas = CONTINUO_CUDA ? "cpu and cuda:N" : "cpu";
  return absl::InvalidArgumentError(
      absl::StrCat("device \"", device, "\" is not available: this build has ", kHas));
}

#if CONTINUO_CUDA
bool IsCuda(absl::string_view device) { return absl::StartsWith(device, "cuda"); }

absl::StatusOr<std::unique_ptr<Device>> MakeCuda(const DeviceOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<int> indices, cuda::ParseDevices(options.device));
  if (indices.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("device \"", options.device, "\": a Device is one device"));
  }
  ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> devices, cuda::FindDevices(indices));
  return cuda::CudaDevice::Make({.device = devices[0], .options = options});
}
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.num_threads < 1 || options.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_threads is ", options.num_threads, ", must be 1 to ", kMaxThreads));
  }
  if (options.device == "cpu") {
    ASSIGN_OR_RETURN(const cpu::KernelTable* kernels, cpu::PickKernels(options.isa));
    return std::make_unique<cpu::CpuDevice>(*kernels, options.num_threads);
  }
#if CONTINUO_CUDA
  if (IsCuda(options.device)) return MakeCuda(options);
#endif
  return NoSuchDevice(options.device);
}

void PrepareDevices([[maybe_unused]] const std::string& device) {
#if CONTINUO_CUDA
  const absl::StatusOr<std::vector<int>> indices = cuda::ParseDevices(device);
  if (indices.ok()) cuda::PrepareLibraries(*indices);
#endif
}

absl::StatusOr<std::unique_ptr<Replica>> MakeReplica(const ReplicaOptions& options) {
  const std::string& device = options.device.device;
  if (device == "cpu") {
    return std::make_unique<cpu::CpuReplica>(options.num_ranks, options.device.isa,
                                             host::FindNumaNodes());
  }
#if CONTINUO_CUDA
  if (IsCuda(device)) return cuda::CudaReplica::Make(options);
#endif
  return NoSuchDevice(device);
}

absl::StatusOr<std::shared_ptr<DeviceFaults>> WatchDeviceFaults(
    [[maybe_unused]] const DeviceFaultsOptions& options) {
#if CONTINUO_CUDA
  if (IsCuda(options.device)) {
    ASSIGN_OR_RETURN(const std::vector<int> indices, cuda::ParseDevices(options.device));
    ASSIGN_OR_RETURN(std::vector<cuda::DeviceInfo> devices, cuda::FindDevices(indices));
    return std::make_shared<cuda::XidWatch>(
        std::move(devices),
        cuda::XidWatchOptions{.clock = options.clock, .on_note = options.on_note});
  }
#endif
  return std::shared_ptr<DeviceFaults>();
}

}  // namespace continuo::kernels
