// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace continuo::kernels::cuda {

// kernels/cuda is compiled for compute capabilities from 8.0 (A100) on.
inline constexpr int kMinMajor = 8;

struct DeviceInfo {
  int index = 0;  // the number in cuda:INDEX
  std::string name;
  std::string pci_bus_id;    // domain:bus:device.function in hexadecimal, as NVML writes it
  int major = 0, minor = 0;  // compute capability
  int num_multiprocessors = 0;
  int64_t total_bytes = 0, free_bytes = 0;
};

// Parses "cuda:0,1" to {0, 1}; rank i computes on the i-th device. InvalidArgument says what is
// wrong: another form, a device named twice (NCCL takes one rank a device), or a number of devices
// that is not 1, 2, 4 or 8.
absl::StatusOr<std::vector<int>> ParseDevices(std::string_view device);

// Sets environment variables for a process with several devices, unless they are set: CUDA loads
// all kernels and NCCL connects all ranks at start. Both would otherwise happen at first use, in
// the middle of a step, where they may wait for a device whose collective waits for another rank,
// and keep that rank from launching its own (CUDA C++ Programming Guide, lazy loading). Call it
// before the first CUDA call.
void PrepareLibraries(std::span<const int> indices);

// Checks that a driver runs a build with this CUDA runtime; both are versions as CUDA gives them,
// 12040 for 12.4. FailedPrecondition names the driver's CUDA version, and the image that it runs,
// if any.
absl::Status CheckDriver(int driver, int runtime);

// Returns the devices of these indices after checking that this build runs on them.
// FailedPrecondition: there is no driver or device, or it is too old. InvalidArgument: the machine
// does not have an index.
absl::StatusOr<std::vector<DeviceInfo>> FindDevices(std::span<const int> indices);

}  // namespace continuo::kernels::cuda
