// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/runtime/device_info.h"
#include "kernels/device.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {

// A CudaDevice of the first device. Tests are skipped where there is none.
class GpuDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Make(false);
    if (device_ == nullptr) GTEST_SKIP() << "skipped: no device: " << why_;
  }
  void Make(bool deterministic) {
    auto device = kernels::MakeDevice({.device = "cuda:0", .deterministic = deterministic});
    why_ = device.status();
    device_ = device.ok() ? *std::move(device) : nullptr;
  }
  // Makes one of that device with the other options as given.
  void MakeWith(kernels::cuda::CudaDeviceOptions options) {
    const auto devices = kernels::cuda::FindDevices(std::array{0});
    CONTINUO_CHECK(devices.ok());
    options.device = devices->front();
    auto device = kernels::cuda::CudaDevice::Make(options);
    CONTINUO_CHECK(device.ok());
    device_ = *std::move(device);
  }
  kernels::Device& b() { return *device_; }

  absl::Status why_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::Device> cpu_ = MakeCpu("auto");
};

}  // namespace continuo::testing
