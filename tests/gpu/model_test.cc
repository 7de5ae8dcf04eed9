// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "gtest/gtest.h"
#include "kernels/cuda/runtime/device_info.h"
#include "kernels/device.h"
#include "kernels/replica.h"
#include "tests/kernels/cuda/cases/adapted_model_cases.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/kernels/cuda/cases/overlap_cases.h"
#include "tests/kernels/cuda/cases/router_cases.h"

namespace continuo::testing {
namespace {

// Prepares the process as a worker of several devices does.
class Prepared : public ::testing::Environment {
  void SetUp() override { kernels::PrepareDevices("cuda:0,1"); }
};
[[maybe_unused]] const auto* const kPrepared = ::testing::AddGlobalTestEnvironment(new Prepared);

class GpuModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto backend = kernels::MakeDevice({.device = "cuda:0"}); !backend.ok()) {
      GTEST_SKIP() << "skipped: no device: " << backend.status();
    }
  }
};

TEST_F(GpuModelTest, EveryFamilyScoresAsOnTheCpu) { CheckModels("cuda:0"); }
TEST_F(GpuModelTest, AdaptersScoreAsOnTheCpu) {
  CheckAdaptedModels("cuda:0");
  CheckAdaptersOfRunTime("cuda:0");
  CheckAdaptersOfStepsInFlight("cuda:0");
}
TEST_F(GpuModelTest, LatentExpertsScoreAsOnTheCpu) { CheckLatentExperts("cuda:0"); }
TEST_F(GpuModelTest, MtpModulesScoreAsOnTheCpu) { CheckMtp("cuda:0"); }

TEST_F(GpuModelTest, EveryRouterChoosesAsOnTheCpu) { CheckRouters("cuda:0"); }

TEST_F(GpuModelTest, QuantisedWeightsScoreAsOnTheCpu) { CheckQuantisedModels("cuda:0"); }

TEST_F(GpuModelTest, StepsAheadGiveWhatStepsInTurnGive) {
  CheckOverlap("cuda:0");
  CheckAdaptedOverlap("cuda:0");
}
TEST_F(GpuModelTest, ConstraintsAreObeyedWhetherOrNotStepsOverlap) { CheckConstraints("cuda:0"); }
TEST_F(GpuModelTest, ADraftModelChangesNoToken) { CheckDraftModel("cuda:0"); }
TEST_F(GpuModelTest, KeysAndValuesOf8BitsScoreAsOnTheCpu) { CheckKvTypes("cuda:0"); }

TEST_F(GpuModelTest, Fp16ScoresAsOnTheCpu) { CheckFp16Models("cuda:0"); }

TEST_F(GpuModelTest, Fp8WeightsScoreNearly) {
  const auto device = kernels::MakeDevice({.device = "cuda:0"});
  ASSERT_TRUE(device.ok());
  if (!(*device)->ops().matmul.SupportsWeights(kernels::WeightType::kFp8)) {
    GTEST_SKIP() << "skipped: no such products";
  }
  CheckFp8Models("cuda:0");
}

// Two devices with a rank on each, which communicate by NCCL.
class GpuTwoDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto devices = kernels::cuda::FindDevices(std::array{0, 1}); !devices.ok()) {
      GTEST_SKIP() << "skipped: no two devices: " << devices.status();
    }
  }
};

TEST_F(GpuTwoDevicesTest, FamiliesScoreAsOnTheCpu) { CheckModels("cuda:0,1"); }
TEST_F(GpuTwoDevicesTest, AdaptersScoreAsOnTheCpu) {
  CheckAdaptedModels("cuda:0,1");
  CheckAdaptersOfRunTime("cuda:0,1");
  CheckAdaptersOfStepsInFlight("cuda:0,1");
}
TEST_F(GpuTwoDevicesTest, TwoRanksScoreAsOneWithGraphsAndWithout) {
  for (const RankCase& c : kRankCases) CheckTwoRanks(c);
}
TEST_F(GpuTwoDevicesTest, StepsAheadGiveWhatStepsInTurnGive) {
  CheckOverlap("cuda:0,1");
  CheckAdaptedOverlap("cuda:0,1");
}

}  // namespace
}  // namespace continuo::testing
