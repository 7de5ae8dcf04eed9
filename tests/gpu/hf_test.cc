// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/cases/hf_cases.h"

namespace continuo::testing {
namespace {

class GpuHfTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const auto backend = kernels::MakeDevice({.device = "cuda:0"}); !backend.ok()) {
      GTEST_SKIP() << "skipped: no device: " << backend.status();
    }
  }
};

TEST_P(GpuHfTest, LogitsMatch) {
  CONTINUO_NEED_SHARED(std::string(kHfFolder) + GetParam() + ".safetensors");
  CheckHfLogits("cuda:0", GetParam(), kHfTolerance);
}

INSTANTIATE_TEST_SUITE_P(Families, GpuHfTest, ::testing::ValuesIn(kHfModels),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace continuo::testing
