// SPDX-License-Identifier: Apache-2.0
// CudaAdapterOps over the shim, which runs the kernels thread by thread.
#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/cases/adapter_cases.h"
#include "tests/kernels/cuda/device_fixture.h"

namespace continuo::testing {
namespace {

TEST_F(CudaDeviceTest, AdaptersAddWhatTheirDefinitionSaysToTheirOwnRows) {
  CheckAdapters(b(), 1, 1, 1, 1, 1);
  CheckAdapters(b(), 3, 17, 75, 33, 8);
  CheckAdapters(b(), 2, 9, 200, 300, 63);
}

// More groups than a launch takes.
TEST_F(CudaDeviceTest, AnyNumberOfAdaptersIsInAStep) { CheckAdapters(b(), 70, 140, 12, 40, 1); }

TEST_F(CudaDeviceTest, AdaptersChangeTheirColumnsOfJoinedProducts) {
  CheckAdaptersOfJoinedProducts(b());
}

TEST_F(CudaDeviceTest, SplitsOfAdaptersAddUpInOneTree) { CheckAdapterSplits(b()); }

}  // namespace
}  // namespace continuo::testing
