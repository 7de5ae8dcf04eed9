// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/replica.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/kernels/cuda/cases/overlap_cases.h"

namespace continuo::testing {
namespace {

// As a worker of several devices begins.
class Prepared : public ::testing::Environment {
  void SetUp() override { kernels::PrepareDevices("cuda:0,1"); }
};
[[maybe_unused]] const auto* const kPrepared = ::testing::AddGlobalTestEnvironment(new Prepared);

class GpuModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto backend = kernels::MakeBackend({.device = "cuda:0"}); !backend.ok()) {
      GTEST_SKIP() << "skipped: no device: " << backend.status();
    }
  }
};

TEST_F(GpuModelTest, EveryFamilyScoresAsOnTheCpu) { CheckModels("cuda:0"); }

TEST_F(GpuModelTest, QuantisedWeightsScoreAsOnTheCpu) { CheckQuantisedModels("cuda:0"); }

TEST_F(GpuModelTest, StepsAheadGiveWhatStepsInTurnGive) { CheckOverlap("cuda:0"); }
TEST_F(GpuModelTest, ADraftModelChangesNoToken) { CheckDraftModel("cuda:0"); }
TEST_F(GpuModelTest, KeysAndValuesOf8BitsScoreAsOnTheCpu) { CheckKvTypes("cuda:0"); }

TEST_F(GpuModelTest, Fp16ScoresAsOnTheCpu) { CheckFp16Models("cuda:0"); }

TEST_F(GpuModelTest, Fp8WeightsScoreNearly) {
  const auto backend = kernels::MakeBackend({.device = "cuda:0"});
  ASSERT_TRUE(backend.ok());
  if (!(*backend)->Computes(kernels::WeightType::kFp8)) GTEST_SKIP() << "skipped: no such products";
  CheckFp8Models("cuda:0");
}

// A rank on each of two devices, joined by NCCL.
class GpuTwoDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto devices = kernels::cuda::FindDevices(std::array{0, 1}); !devices.ok()) {
      GTEST_SKIP() << "skipped: no two devices: " << devices.status();
    }
  }
};

TEST_F(GpuTwoDevicesTest, FamiliesScoreAsOnTheCpu) { CheckModels("cuda:0,1"); }
TEST_F(GpuTwoDevicesTest, TwoRanksScoreAsOneWithGraphsAndWithout) {
  for (const RankCase& c : kRankCases) CheckTwoRanks(c);
}
TEST_F(GpuTwoDevicesTest, StepsAheadGiveWhatStepsInTurnGive) { CheckOverlap("cuda:0,1"); }

}  // namespace
}  // namespace continuo::testing
