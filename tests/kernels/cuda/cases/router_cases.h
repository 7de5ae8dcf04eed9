// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "gtest/gtest.h"
#include "services/base/check.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/router_log.h"

// The experts that whole models choose on a device beside those that they choose on the CPU.
namespace continuo::testing {

// In fp32 a router's logits differ by sums in another order; in bf16 by roundings to 8 bits in each
// layer before it, some thousandths in the mean. Choices are separated by twice that mean and more,
// whatever a device's order of sums.
struct RouterType {
  const char* dtype;
  kernels::DType activations;
  double margin, tolerance;  // of the largest logit, or of 1 where that is larger
};
inline constexpr RouterType kRouterTypes[] = {{"fp32", kernels::DType::kF32, 1e-4, 1e-4},
                                              {"bf16", kernels::DType::kBF16, 0.01, 0.05}};

// Returns what routers choose in the steps whose scores are compared.
inline RouterLog ChoicesOn(const TinyModel& files, const std::string& device,
                           const RouterType& type) {
  RouterLog log;
  // The scalar loops have the same bits, and margins, on every machine.
  auto harness = ModelHarness::Make(files.dir(), {.device = device,
                                                  .isa = device == "cpu" ? "scalar" : "auto",
                                                  .dtype = type.activations,
                                                  .kv_dtype = type.activations,
                                                  .max_rows = 256,
                                                  .router_log = &log});
  EXPECT_TRUE(harness.ok()) << harness.status();
  CONTINUO_CHECK(harness.ok());
  constexpr int kBlockSize = 16;
  for (const model::StepPlan& step : ScoredSteps((*harness)->config().vocab_size, kBlockSize)) {
    (*harness)->Run(step);
  }
  return log;
}

inline void CheckRouters(const std::string& device) {
  for (const FamilyCase& c : kFamilyCases) {
    if (!c.has_experts) continue;
    for (const RouterType& type : kRouterTypes) {
      SCOPED_TRACE(std::string(c.family) + " " + type.dtype);
      const TinyModel files = c.Files(type.dtype);
      const RouterLog expected = ChoicesOn(files, "cpu", type);
      const RouterLog got = ChoicesOn(files, device, type);
      ASSERT_FALSE(expected.empty());
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(i);
        double size = 0;
        for (const float logit : expected[i].logits) size = std::max<double>(size, std::abs(logit));
        size = std::min(size, 1.0);
        ASSERT_GE(expected[i].margin, size * type.margin) << "a near tie: another seed is needed";
        ExpectSameScores(got[i].logits, expected[i].logits,
                         static_cast<float>(size * type.tolerance));
        if (::testing::Test::HasFatalFailure()) return;
        ASSERT_EQ(got[i].experts, expected[i].experts);
      }
    }
  }
}

}  // namespace continuo::testing
