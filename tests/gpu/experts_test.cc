// SPDX-License-Identifier: Apache-2.0
// CudaExperts on a device, including the shape of Qwen3-30B-A3B.
#include "kernels/device.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/device_fixture.h"
#include "tests/gpu/model_sizes.h"
#include "tests/kernels/cuda/cases/expert_cases.h"

namespace continuo::testing {
namespace {

constexpr int64_t kExperts = 128, kExpertsPerRow = 8, kHidden = 2048, kInner = 768;

TEST_F(GpuDeviceTest, RowsGoToTheExpertsOfTheCpu) {
  for (const int64_t rows : {int64_t{1}, int64_t{17}, kPrompt}) {
    CheckRoutes(b(), *cpu_, rows, kExperts, kExpertsPerRow);
  }
  CheckRoutes(b(), *cpu_, 9, 1024, 32);
}

TEST_F(GpuDeviceTest, ExpertsAreThoseOfTheCpu) {
  CheckLayersOfExperts(
      b(), *cpu_, [] {}, [] {});
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const kernels::WeightType type : kExpertTypes) {
      CheckExperts(b(), *cpu_, {1}, 128, 8, type, {0, 512, 1024, 1536, 2048});
      CheckExperts(b(), *cpu_, {37}, 40, 8, type, {0, 640, 1300});
      CheckExperts(b(), *cpu_, {300}, 128, 8, type, {0, 128, 128, 384, 768});
    }
    CheckExpertsOfNoColumns(b(), *cpu_);
  }
  for (const kernels::WeightType type : kExpertTypes) {
    CheckExpertRows(b(), type, 2048, {1, 3, 16, 17, 33, 200});
  }
}

// A model's products: gate and up, and down, whose inner size ranks divide.
void CheckGateOfAModel(kernels::Device& b, kernels::Device& cpu, kernels::WeightType type,
                       const std::vector<int64_t>& rows) {
  CheckExperts(b, cpu, rows, kExperts, kExpertsPerRow, type, {0, kHidden}, kInner);
}
void CheckDownOfAModel(kernels::Device& b, kernels::Device& cpu, kernels::WeightType type,
                       const std::vector<int64_t>& rows) {
  std::vector<int64_t> splits;
  for (int i = 0; i <= kernels::kNumSplits; ++i) splits.push_back(kInner / kernels::kNumSplits * i);
  CheckExperts(b, cpu, rows, kExperts, kExpertsPerRow, type, splits, kHidden);
}

TEST_F(GpuDeviceTest, ExpertsOfAModelInBf16AreThoseOfTheCpu) {
  CheckGateOfAModel(b(), *cpu_, kernels::WeightType::kBF16, kStepRows);
  CheckDownOfAModel(b(), *cpu_, kernels::WeightType::kBF16, kStepRows);
}
TEST_F(GpuDeviceTest, ExpertsOfAModelInFp16AreThoseOfTheCpu) {
  CheckGateOfAModel(b(), *cpu_, kernels::WeightType::kF16, kStepRows);
  CheckDownOfAModel(b(), *cpu_, kernels::WeightType::kF16, kStepRows);
}
TEST_F(GpuDeviceTest, ExpertsOfAModelInInt8AreThoseOfTheCpu) {
  CheckGateOfAModel(b(), *cpu_, kernels::WeightType::kInt8, kStepRows);
  CheckDownOfAModel(b(), *cpu_, kernels::WeightType::kInt8, kStepRows);
}
TEST_F(GpuDeviceTest, ExpertsOfAModelInInt4AreThoseOfTheCpu) {
  CheckGateOfAModel(b(), *cpu_, kernels::WeightType::kInt4, kStepRows);
  CheckDownOfAModel(b(), *cpu_, kernels::WeightType::kInt4, kStepRows);
}
TEST_F(GpuDeviceTest, DeterministicExpertsOfAModelAreThoseOfTheCpu) {
  Make(true);
  CheckGateOfAModel(b(), *cpu_, kernels::WeightType::kBF16, kStepRows);
  CheckDownOfAModel(b(), *cpu_, kernels::WeightType::kBF16, {1, 17});
}

// This many entries and columns are compared.
constexpr int64_t kChecked = 24;

TEST_F(GpuDeviceTest, GatesOfExpertsAreWhatTheReferenceSays) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const kernels::WeightType type : kExpertTypes) {
      CheckGatedExperts(b(), {1, 9}, 5, 2, type, 33, 136);
      CheckGatedExperts(b(), {70}, 3, 2, type, 24, 40);  // many rows an expert
    }
  }
}
TEST_F(GpuDeviceTest, GatesOfExpertsOfAModelAreWhatTheReferenceSays) {
  for (const kernels::WeightType type : {kernels::WeightType::kBF16, kernels::WeightType::kF16}) {
    CheckGatedExperts(b(), kStepRows, kExperts, kExpertsPerRow, type, kInner, kHidden, kChecked);
  }
}
TEST_F(GpuDeviceTest, GatesOfQuantisedExpertsOfAModelAreWhatTheReferenceSays) {
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    CheckGatedExperts(b(), kStepRows, kExperts, kExpertsPerRow, type, kInner, kHidden, kChecked);
  }
}

}  // namespace
}  // namespace continuo::testing
