// SPDX-License-Identifier: Apache-2.0
// CudaStateOps over the shim, which runs the kernels thread by thread.
#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/cases/state_cases.h"
#include "tests/kernels/cuda/device_fixture.h"

namespace continuo::testing {
namespace {

TEST_F(CudaDeviceTest, StatesAreThoseOfTheCpuHoweverASequenceIsDivided) {
  CheckStates(b(), *cpu_, {.key_heads = 2, .heads = 4, .keys = 16, .values = 32});
  CheckStates(b(), *cpu_, {.key_heads = 1, .heads = 3, .keys = 6, .values = 5});
  CheckStates(b(), *cpu_, {.key_heads = 1, .heads = 1, .keys = 128, .values = 80});
}

TEST_F(CudaDeviceTest, ConvolutionsAreThoseOfTheCpuHoweverASequenceIsDivided) {
  CheckConv(b(), *cpu_, 2, 7);
  CheckConv(b(), *cpu_, 3, 200);
  CheckConv(b(), *cpu_, 4, 128);
}

TEST_F(CudaDeviceTest, DecaysOfStatesHaveTheBitsOfTheCpu) { CheckDecays(b(), *cpu_); }

}  // namespace
}  // namespace continuo::testing
