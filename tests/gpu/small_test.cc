// SPDX-License-Identifier: Apache-2.0
// A few small shapes of every family of CudaDevice's ops, small enough for tools that look at every
// access: tests/gpu/run.sh runs them under compute-sanitizer, and tests/kernels/cuda over the shim.
#include "kernels/device.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/device_fixture.h"
#include "tests/kernels/cuda/cases/adapter_cases.h"
#include "tests/kernels/cuda/cases/attention_cases.h"
#include "tests/kernels/cuda/cases/expert_cases.h"
#include "tests/kernels/cuda/cases/fp8_cases.h"
#include "tests/kernels/cuda/cases/joined_cases.h"
#include "tests/kernels/cuda/cases/kv_cases.h"
#include "tests/kernels/cuda/cases/ops_cases.h"
#include "tests/kernels/cuda/cases/product_cases.h"
#include "tests/kernels/cuda/cases/quantised_cases.h"
#include "tests/kernels/cuda/cases/sampling_cases.h"

namespace continuo::testing {
namespace {

TEST_F(GpuDeviceTest, SmallRowsAndElements) {
  CheckEmbed(b(), 5, {1, 7, 300}, 9);
  CheckRmsNorm(b(), 4, {1, 64, 257, 1024});
  CheckAddSum(b(), 5, {9, 520, 2056});
  CheckRopes(b());
  CheckGates(b(), 2, {255, 264});
  CheckSoftCap(b(), 3, 333);
  CheckCopyHeads(b(), *cpu_, 9);
  CheckGatherRows(b(), 6, 300, 4);
  CheckLayerNorm(b(), 3, {2, 5, 64, 300});
  CheckRmsNormBySquares(b(), 3, 5, {1, 20, 64});
  CheckScale(b(), 3, 333);
  CheckScaleBy(b(), 3, 333);
  CheckGrowAngles(b());
  CheckPlainGates(b(), 2, {1, 264});
}

TEST_F(GpuDeviceTest, SmallAdapters) {
  CheckAdapters(b(), 3, 17, 75, 33, 8);
  CheckAdapters(b(), 40, 80, 12, 40, 1);
  CheckAdaptersOfJoinedProducts(b());
  CheckAdapterSplits(b());
}

TEST_F(GpuDeviceTest, SmallKeysAndValues) {
  for (const int64_t head_dim : {128, 40, 20}) {
    CheckRotateAndWriteKv(b(), {.rows = 6, .kv_heads = 2, .head_dim = head_dim, .block_size = 5}, 3,
                          head_dim);
  }
  CheckWriteKv(b(), *cpu_, {.rows = 6, .kv_heads = 3, .head_dim = 40, .block_size = 5});
}

TEST_F(GpuDeviceTest, SmallProducts) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckMatMul(b(), {1, 17}, 24, 72);
    CheckGatedMatMul(b(), {3}, 40, 72);
  }
}

TEST_F(GpuDeviceTest, SmallProductsBySmallM) {
  MakeWith({.small_m = true});
  CheckJoinedProducts(b(), {1, 3, 16}, {40, 8, 33}, 72);
  CheckJoinedProducts(b(), {16}, {64, 64}, 1100);
  CheckGatedMatMul(b(), {5}, 33, 200);
}

TEST_F(GpuDeviceTest, SmallQuantisedProducts) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckQuantised(b(), {1, 5}, 7, {0, 33});
    CheckQuantised(b(), {19, 70}, 33, {0, 48, 96, 144, 192, 240, 288, 336, 384},
                   deterministic ? kAll : 65);
  }
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    CheckJoinedQuantised(b(), {3, 20}, {40, 8, 33}, 144, type);
  }
}

TEST_F(GpuDeviceTest, SmallProductsInFp8) {
  if (!b().ops().matmul.SupportsWeights(kernels::WeightType::kFp8))
    GTEST_SKIP() << "skipped: the device has no such products";
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFp8(b(), {1, 20}, 36, 72, 0x1p-11);
    CheckFp8(b(), {5}, 7, 33, 0x1p-11);
    CheckFp8BehindOps(b(), 5, 33, 21);
    CheckFp8BehindOps(b(), 3, 64, 48);
    CheckStrangeFp8Rows(b());
  }
}

TEST_F(GpuDeviceTest, SmallExperts) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    for (const kernels::WeightType type : kExpertTypes) {
      CheckExperts(b(), *cpu_, {1, 9}, 4, 2, type, {0, 128, 128, 160, 200});
      CheckGatedExperts(b(), {3}, 5, 2, type, 33, 136);
    }
    CheckExperts(b(), *cpu_, {70}, 4, 2);  // many rows an expert
  }
  CheckRoutes(b(), *cpu_, 37, 40, 8);
  CheckRoutes(b(), *cpu_, 300, 8, 2);
  CheckRoutes(b(), *cpu_, 9, 1024, 10);
  CheckEveryRouting(b(), *cpu_, 9, 64, 6, 8, 3);
  CheckEveryRouting(b(), *cpu_, 3, 1024, 32, 512, 40);
  CheckOtherRouting(b(), *cpu_, 33, 128, 8);
  CheckWeighedInputs(b(), *cpu_, 19, 5, 3, 301);
}

TEST_F(GpuDeviceTest, SmallSamples) {
  CheckRandomSamples(b(), {33, 1024, 8195}, 1);
  CheckPeakedSamples(b(), 9001);
  CheckSums(b(), {7, 1027});
}

TEST_F(GpuDeviceTest, SmallAttention) {
  for (const bool deterministic : {false, true}) {
    Make(deterministic);
    CheckFewShapes(b());
  }
}

TEST_F(GpuDeviceTest, SmallAttentionOfOtherTypes) {
  for (const int dim : {20, 33}) {
    CheckAttention(b(), {{1, 1}, {129, 3}}, Heads(4, 2, dim, 70), kernels::DType::kF32, 7);
    CheckAttention(b(), {{129, 3}}, Heads(4, 2, dim), kernels::DType::kF32, 16,
                   kernels::DType::kF8);
    for (const kernels::DType type : kNumbers) {
      CheckAttention(b(), {{129, 3}}, Heads(3, 1, 33), type, 16);
      CheckAttention(b(), {{129, 3}, {1, 1}}, Heads(3, 1, 33), type, 16, kernels::DType::kI8);
    }
  }
}

TEST_F(GpuDeviceTest, SmallAttentionByWarpgroups) {
  for (const kernels::DType type : kNumbers) {
    for (const int dim : {64, 72, 128}) {
      CheckAttention(b(), {{300, 150}, {3, 3}, {140, 33}}, Heads(4, 2, dim), type, 16);
    }
    CheckAttention(b(), {{200, 90}}, Heads(2, 2, 128, 130), type, 5);      // a window
    CheckAttention(b(), {{1100, 3}, {5, 2}}, Heads(4, 2, 128), type, 16);  // in splits
  }
  CheckAttentionOverBytes(b(), {{300, 150}, {3, 3}, {140, 33}}, Heads(4, 2, 128), {16, 7});
}

}  // namespace
}  // namespace continuo::testing
