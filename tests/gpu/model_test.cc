// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/kernels/cuda/model_cases.h"

namespace continuo::testing {
namespace {

TEST(GpuModelTest, EveryFamilyScoresAsOnTheCpu) {
  if (const auto backend = MakeBackend({.device = "cuda:0"}); !backend.ok()) {
    GTEST_SKIP() << "skipped: no device: " << backend.status();
  }
  CheckModels("cuda:0");
}

}  // namespace
}  // namespace continuo::testing
