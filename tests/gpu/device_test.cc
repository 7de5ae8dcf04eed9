// SPDX-License-Identifier: Apache-2.0
// The libraries that were linked, and the machine's devices.
#include "kernels/cuda/device.h"

#include <string>
#include <vector>

#include "cublasLt.h"
#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nccl.h"

namespace continuo::cuda {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(LibrariesTest, AreThoseCompiledAgainst) {
  int version = 0;
  ASSERT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  EXPECT_EQ(cublasLtGetVersion(), size_t{CUBLAS_VERSION});
}

TEST(DeviceTest, IsDescribedOrItsAbsenceIsSaid) {
  const auto devices = FindDevices(std::vector<int>{0});
  if (!devices.ok()) {
    EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(devices.status().message()),
                AnyOf(HasSubstr("no CUDA driver"), HasSubstr("no CUDA device"),
                      HasSubstr("this build needs")));
    GTEST_SKIP() << "skipped: no device: " << devices.status();
  }
  EXPECT_GE((*devices)[0].major, kMinMajor);
  EXPECT_GT((*devices)[0].total_bytes, 0);
  EXPECT_LE((*devices)[0].free_bytes, (*devices)[0].total_bytes);
}

}  // namespace
}  // namespace continuo::cuda
