// SPDX-License-Identifier: Apache-2.0
// The linked libraries and the machine's devices.
#include "kernels/cuda/runtime/device_info.h"

#include <iostream>
#include <string>
#include <vector>

#include "cublasLt.h"
#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nccl.h"

namespace continuo::kernels::cuda {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// A machine may have later versions than those compiled against.
TEST(LibrariesTest, AreOfTheMajorVersionsCompiledAgainst) {
  int runtime = 0, nccl = 0;
  ASSERT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  ASSERT_EQ(ncclGetVersion(&nccl), ncclSuccess);
  const auto cublas = static_cast<int>(cublasLtGetVersion());
  std::cout << "CUDA runtime " << runtime << " of " << CUDART_VERSION << ", NCCL " << nccl << " of "
            << NCCL_VERSION_CODE << ", cuBLASLt " << cublas << " of " << CUBLAS_VERSION << "\n";
  EXPECT_EQ(runtime / 1000, CUDART_VERSION / 1000);
  EXPECT_EQ(nccl / 10000, NCCL_VERSION_CODE / 10000);
  EXPECT_EQ(cublas / 10000, CUBLAS_VERSION / 10000);
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
}  // namespace continuo::kernels::cuda
