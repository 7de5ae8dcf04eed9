// SPDX-License-Identifier: Apache-2.0
// CudaExperts over the shim, which runs the kernels thread by thread and cuBLASLt as a loop.
#include "kernels/device.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/cases/expert_cases.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::testing {
namespace {

TEST_F(CudaDeviceTest, RowsGoToTheExpertsOfTheCpu) {
  CheckRoutes(b(), *cpu_, 1, 4, 2);
  CheckRoutes(b(), *cpu_, 3, 32, 32);
  CheckRoutes(b(), *cpu_, 37, 40, 8);
  CheckRoutes(b(), *cpu_, 300, 8, 2);
  CheckRoutes(b(), *cpu_, 9, 1024, 10);
}

TEST_F(CudaDeviceTest, EveryKindOfRoutingIsThatOfTheCpu) {
  CheckEveryRouting(b(), *cpu_, 5, 6, 2, 1, 1);
  CheckEveryRouting(b(), *cpu_, 9, 64, 6, 8, 3);
  CheckEveryRouting(b(), *cpu_, 7, 40, 5, 40, 7);
  CheckEveryRouting(b(), *cpu_, 3, 1024, 32, 512, 40);
}

TEST_F(CudaDeviceTest, FactorsOfExpertsAndChoicesByLogitsAreThoseOfTheCpu) {
  CheckOtherRouting(b(), *cpu_, 5, 6, 2);
  CheckOtherRouting(b(), *cpu_, 33, 128, 8);
  CheckWeighedInputs(b(), *cpu_, 1, 4, 1, 24);
  CheckWeighedInputs(b(), *cpu_, 19, 5, 3, 301);
}

// The cases have few rows an expert, in launches of 128 experts, and sums of one group and of more
// than a block's warps take at once, with a tail and without, aligned and not.
TEST_F(CudaDeviceTest, ExpertsOfFewRowsAreThoseOfTheCpu) {
  const auto launches = [](const char* name) {
    const std::vector<ShimCall> calls = CudaShim::Calls();
    return std::count_if(calls.begin(), calls.end(),
                         [&](const ShimCall& call) { return call.function == name; });
  };
  const auto expect_launches = [&](int n, auto check) {
    const auto before = launches("ExpertMatMul");
    check();
    EXPECT_EQ(launches("ExpertMatMul"), before + 3 * n);  // whole, with biases, in splits
  };
  for (const kernels::WeightType type : kExpertTypes) {
    expect_launches(1, [&] { CheckExperts(b(), *cpu_, {1}, 4, 2, type); });
    expect_launches(1, [&] { CheckExperts(b(), *cpu_, {37}, 40, 8, type); });
    expect_launches(1, [&] { CheckExperts(b(), *cpu_, {5}, 3, 2, type, {0, 640, 1300}); });
    expect_launches(1, [&] {
      CheckExperts(b(), *cpu_, {5}, 3, 2, type, {0, 128, 128, 640, 1304});
    });
    expect_launches(2, [&] { CheckExperts(b(), *cpu_, {20}, 150, 3, type); });
  }
  expect_launches(0, [&] { CheckExperts(b(), *cpu_, {37}, 4, 2); });
  expect_launches(1, [&] { CheckExperts(b(), *cpu_, {37}, 4, 2, kernels::WeightType::kInt8); });
  CheckExpertsOfNoColumns(b(), *cpu_);
  Make(true);
  expect_launches(1, [&] { CheckExperts(b(), *cpu_, {90}, 2, 1); });
}

TEST_F(CudaDeviceTest, GatesOfExpertsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const kernels::WeightType type : kExpertTypes) {
      CheckGatedExperts(b(), {1, 9}, 5, 2, type, 33, 136);
      CheckGatedExperts(b(), {70}, 3, 2, type, 24, 40);  // many rows an expert
    }
  }
}

// With many rows an expert the host has to know their numbers.
TEST_F(CudaDeviceTest, ALayerOfExpertsWaitsForTheDeviceOnce) {
  int before = 0, layers = 0;
  const auto waits = [] { return CudaShim::NumCalls(0, "cudaStreamSynchronize"); };
  CheckLayersOfExperts(
      b(), *cpu_, [&] { before = waits(); },
      [&] {
        EXPECT_EQ(waits(), before + 1);
        ++layers;
      });
  EXPECT_EQ(layers, 3);
}

TEST_F(CudaDeviceTest, DeterministicExpertsDoNotDependOnTheOtherRows) {
  Make(true);
  for (const kernels::WeightType type : kExpertTypes) {
    CheckExpertRows(b(), type, 700, {1, 3, 16, 17, 50});
  }
}

}  // namespace
}  // namespace continuo::testing
