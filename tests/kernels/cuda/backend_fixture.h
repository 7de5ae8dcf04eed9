// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/runtime/device.h"
#include "services/base/check.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {

// A CudaBackend over the shim, which nothing outlives and whose rules nothing has broken.
class CudaBackendTest : public ::testing::Test {
 protected:
  CudaBackendTest() {
    CudaShim::Reset({});
    Make(false);
  }
  ~CudaBackendTest() override {
    backend_.reset();
    EXPECT_THAT(CudaShim::Alive(), ::testing::IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), ::testing::IsEmpty());
  }
  void Make(bool deterministic) {
    auto backend = kernels::MakeBackend({.device = "cuda:0", .deterministic = deterministic});
    CONTINUO_CHECK(backend.ok());
    backend_ = *std::move(backend);
  }
  // Of device 0, otherwise as told.
  void MakeWith(kernels::cuda::CudaBackendOptions options) {
    const auto devices = kernels::cuda::FindDevices(std::array{0});
    CONTINUO_CHECK(devices.ok());
    options.device = devices->front();
    auto backend = kernels::cuda::CudaBackend::Make(options);
    CONTINUO_CHECK(backend.ok());
    backend_ = *std::move(backend);
  }
  kernels::Backend& b() { return *backend_; }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::Backend> cpu_ = MakeCpu("auto");
};

}  // namespace continuo::testing
