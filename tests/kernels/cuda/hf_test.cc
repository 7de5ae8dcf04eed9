// SPDX-License-Identifier: Apache-2.0
// Whole models on CudaDevice over the shim, against Hugging Face's logits.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/cases/hf_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

using ::testing::IsEmpty;

class CudaHfTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaHfTest, LogitsMatch) {
  CONTINUO_NEED_SHARED(std::string(kHfFolder) + GetParam() + ".safetensors");
  CudaShim::Reset({});
  CheckHfLogits("cuda:0", GetParam(), kHfTolerance);
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Families, CudaHfTest, ::testing::ValuesIn(kHfModels),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace continuo::testing
