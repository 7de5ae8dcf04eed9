// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/runtime/device_info.h"
#include "services/base/check.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {

// A CudaDevice over the shim. At the end nothing outlives it, and no rule of the shim has been
// broken.
class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest() {
    CudaShim::Reset({});
    Make(false);
  }
  ~CudaDeviceTest() override {
    device_.reset();
    EXPECT_THAT(CudaShim::Alive(), ::testing::IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), ::testing::IsEmpty());
  }
  void Make(bool deterministic) {
    auto device = kernels::MakeDevice({.device = "cuda:0", .deterministic = deterministic});
    CONTINUO_CHECK(device.ok());
    device_ = *std::move(device);
  }
  // Makes one of device 0 with the other options as given.
  void MakeWith(kernels::cuda::CudaDeviceOptions options) {
    const auto devices = kernels::cuda::FindDevices(std::array{0});
    CONTINUO_CHECK(devices.ok());
    options.device = devices->front();
    auto device = kernels::cuda::CudaDevice::Make(options);
    CONTINUO_CHECK(device.ok());
    device_ = *std::move(device);
  }
  kernels::Device& b() { return *device_; }

  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::Device> cpu_ = MakeCpu("auto");
};

}  // namespace continuo::testing
