// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/runtime/device.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {

// A CudaBackend of the first device; skipped where there is none.
class GpuBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Make(false);
    if (backend_ == nullptr) GTEST_SKIP() << "skipped: no device: " << why_;
  }
  void Make(bool deterministic) {
    auto backend = kernels::MakeBackend({.device = "cuda:0", .deterministic = deterministic});
    why_ = backend.status();
    backend_ = backend.ok() ? *std::move(backend) : nullptr;
  }
  // Of that device, otherwise as told.
  void MakeWith(kernels::cuda::CudaBackendOptions options) {
    const auto devices = kernels::cuda::FindDevices(std::array{0});
    CONTINUO_CHECK(devices.ok());
    options.device = devices->front();
    auto backend = kernels::cuda::CudaBackend::Make(options);
    CONTINUO_CHECK(backend.ok());
    backend_ = *std::move(backend);
  }
  kernels::Backend& b() { return *backend_; }

  absl::Status why_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::Backend> cpu_ = MakeCpu("auto");
};

}  // namespace continuo::testing
