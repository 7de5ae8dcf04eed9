// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::kernels::cuda {

// What kernels/cuda is compiled for begins here (A100).
inline constexpr int kMinMajor = 8;

struct Device {
  int index = 0;  // as in cuda:INDEX
  std::string name;
  std::string pci_bus_id;    // domain:bus:device.function in hexadecimal, as NVML names it
  int major = 0, minor = 0;  // compute capability
  int num_multiprocessors = 0;
  int64_t total_bytes = 0, free_bytes = 0;
};

// "cuda:0,1" to {0, 1}: rank i computes on the i-th. InvalidArgument says what is wrong: another
// form, a device named twice (NCCL takes one rank a device), a number of devices that is not 1, 2,
// 4 or 8.
absl::StatusOr<std::vector<int>> ParseDevices(std::string_view device);

// What CUDA and NCCL are to do at start where a process has several devices, by environment
// variables that nobody has set: load kernels and connect ranks. At their first use, in the middle
// of a step, either may wait for a device whose collective waits for another rank, and keep that
// rank from launching its own (CUDA C++ Programming Guide, lazy loading). Before CUDA's first call.
void PrepareLibraries(std::span<const int> indices);

// The devices of these indices, and that this build runs on them. FailedPrecondition: no driver,
// one too old, no device, a device too old; InvalidArgument: an index that the machine does not
// have.
absl::StatusOr<std::vector<Device>> FindDevices(std::span<const int> indices);

}  // namespace continuo::kernels::cuda
