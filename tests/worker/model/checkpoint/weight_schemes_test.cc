// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/weight_schemes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/worker/model/checkpoint/stored_types.h"

namespace continuo::model {
namespace {

using kernels::DType;
using kernels::WeightType;
using ::testing::ElementsAre;

TEST(WeightSchemesTest, EachIsFoundByItsNameAndByTheTypeOfItsDenseMatrices) {
  EXPECT_THAT(WeightSchemeNames(),
              ElementsAre("auto", "fp32", "bf16", "fp16", "int8", "int4", "fp8", "stored"));
  for (const WeightScheme& scheme : WeightSchemes()) {
    EXPECT_EQ(&SchemeOf(scheme.dense), &scheme);
    EXPECT_EQ(FindWeightScheme(scheme.name(), DType::kF32).value(), &scheme);
  }
  EXPECT_EQ(FindWeightScheme("auto", DType::kF32).value()->dense, WeightType::kF32);
  EXPECT_EQ(FindWeightScheme("auto", DType::kBF16).value()->dense, WeightType::kBF16);
  EXPECT_EQ(FindWeightScheme("int3", DType::kF32).status().message(),
            "weights is \"int3\"; it must be auto, fp32, bf16, fp16, int8, int4, fp8 or stored");
}

TEST(WeightSchemesTest, RoutersAreNeverQuantised) {
  for (const WeightScheme& scheme : WeightSchemes()) {
    EXPECT_EQ(scheme.router, scheme.activations.has_value() ? scheme.dense : WeightType::kF32)
        << scheme.name();
  }
}

TEST(StoredTypesTest, ElementsAtAnyAddressAreConvertedAndOverflowIsReported) {
  EXPECT_EQ(StoredTypeNames(),
            "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, "
            "IQ4_XS and MXFP4");
  EXPECT_EQ(FindStoredType("I8"), nullptr);
  // 1 and 65536 as BF16, behind one byte: the largest fp16 is 65504.
  const uint8_t bytes[] = {0xff, 0x80, 0x3f, 0x80, 0x47};
  float value = 0;
  EXPECT_TRUE(FindStoredType("BF16")->convert(&value, DType::kF32, bytes + 1, 1, 1));
  EXPECT_EQ(value, 65536.0f);
  uint16_t half = 0;
  EXPECT_FALSE(FindStoredType("BF16")->convert(&half, DType::kF16, bytes + 1, 1, 1));
}

}  // namespace
}  // namespace continuo::model
