// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/row_ops.h"

#include "gtest/gtest.h"
#include "tests/kernels/cuda/row_ops_cases.h"

namespace continuo::cuda {
namespace {

TEST(RowOpsTest, AreWhatTheReferenceSays) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    GTEST_SKIP() << "skipped: no device";
  }
  CheckRowOps<float>();
  CheckRowOps<uint16_t>();
}

}  // namespace
}  // namespace continuo::cuda
