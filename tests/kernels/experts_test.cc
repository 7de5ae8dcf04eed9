// SPDX-License-Identifier: Apache-2.0
// Compares routing to experts with its definition, and products of experts with those of MatMul,
// bit by bit.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/packed_weight.h"
#include "tests/testing/reference_ops.h"

namespace continuo::testing {
namespace {

using ::testing::ElementsAre;

using ExpertsTest = IsaTest;
INSTANTIATE_FOR_ISAS(ExpertsTest);

struct Routes {
  Routes(int64_t rows, int64_t num_experts, int64_t k)
      : weights(HostTensor::Poisoned(kernels::DType::kF32, rows, k)),
        entries(kernels::DType::kI32, rows, k),
        rows(kernels::DType::kI32, rows * k, 1),
        begin(kernels::DType::kI32, num_experts + 1, 1) {}
  kernels::ExpertRoutes view() const { return {weights, entries, rows, begin}; }

  HostTensor weights, entries, rows, begin;
};

// The experts of row r, ascending.
std::vector<int> ExpertsOf(const Routes& routes, int64_t r) {
  const std::vector<int32_t> begin = routes.begin.ints(), entries = routes.entries.ints();
  const int64_t k = routes.weights.tensor().cols();
  std::vector<int> experts;
  for (int64_t i = r * k; i < (r + 1) * k; ++i) {
    const auto after = std::upper_bound(begin.begin(), begin.end(), entries[i]);
    experts.push_back(static_cast<int>(after - begin.begin()) - 1);
    EXPECT_EQ(routes.rows.ints()[entries[i]], r);
  }
  return experts;
}

// Routes rows of random logits and expects what the reference says.
void ExpectRoutes(kernels::Device& device, int num_experts, int k, const kernels::Routing& routing,
                  Random& random) {
  SCOPED_TRACE(::testing::Message() << k << " of " << num_experts << ", " << routing.top_groups
                                    << " of " << routing.num_groups << " groups");
  const int64_t rows = 33;
  const HostTensor logits = HostTensor::Of(kernels::DType::kF32, rows, num_experts, random, 3.0f);
  Routes routes(rows, num_experts, k);
  device.ops().experts.RouteExperts(routes.view(), logits, routing);
  const std::vector<int32_t> begin = routes.begin.ints();
  EXPECT_EQ(begin.front(), 0);
  EXPECT_EQ(begin.back(), rows * k);
  for (int e = 0; e < num_experts; ++e) {
    const std::vector<int32_t> entry_rows = routes.rows.ints();
    EXPECT_TRUE(std::is_sorted(entry_rows.begin() + begin[e], entry_rows.begin() + begin[e + 1]));
  }
  const Matrix all = logits.matrix(), weights = routes.weights.matrix();
  for (int64_t r = 0; r < rows; ++r) {
    const ReferenceRoute route =
        ReferenceRouting({&all[r * num_experts], static_cast<size_t>(num_experts)}, k, routing);
    EXPECT_EQ(ExpertsOf(routes, r), route.experts);
    for (int i = 0; i < k; ++i) {
      EXPECT_NEAR(weights[r * k + i], route.weights[i], std::abs(route.weights[i]) * 1e-5);
    }
  }
}

TEST_P(ExpertsTest, RoutesMatchReference) {
  Random random(51);
  for (const auto& [num_experts, k] :
       {std::pair{1, 1}, std::pair{4, 2}, std::pair{8, 8}, std::pair{60, 4}, std::pair{128, 8}}) {
    for (const bool normalise : {false, true}) {
      ExpectRoutes(*device_, num_experts, k, {.normalise = normalise}, random);
    }
  }
}

TEST_P(ExpertsTest, EveryKindOfRoutingMatchesReference) {
  using Scores = kernels::Routing::Scores;
  Random random(53);
  for (const Scores scores : {Scores::kSoftmax, Scores::kSigmoid}) {
    for (const bool normalise : {false, true}) {
      for (const bool is_corrected : {false, true}) {
        for (const bool by_top_two : {false, true}) {
          for (const auto& [experts, k, groups, top] : std::vector<std::array<int, 4>>{
                   {6, 2, 1, 1}, {12, 3, 4, 2}, {64, 6, 8, 3}, {40, 5, 40, 7}, {256, 8, 8, 4}}) {
            const HostTensor correction =
                HostTensor::Of(kernels::DType::kF32, experts, 1, random, 0.3f);
            ExpectRoutes(*device_, experts, k,
                         {.scores = scores,
                          .normalise = normalise,
                          .correction = is_corrected ? correction.tensor() : kernels::Tensor(),
                          .num_groups = groups,
                          .top_groups = top,
                          .by_top_two = by_top_two,
                          .factor = 2.5f},
                         random);
          }
        }
      }
    }
  }
}

TEST_P(ExpertsTest, ExpertsHaveFactorsOfTheirOwn) {
  Random random(56);
  for (const auto& [num_experts, k] : {std::pair{6, 2}, std::pair{64, 8}}) {
    const HostTensor factors = HostTensor::Of(kernels::DType::kF32, num_experts, 1, random, 0.9f);
    HostTensor positive(kernels::DType::kF32, num_experts, 1);
    for (int e = 0; e < num_experts; ++e) {
      positive.Set(e, 1.5f + static_cast<float>(factors.matrix()[e]));
    }
    ExpectRoutes(*device_, num_experts, k,
                 {.normalise = true, .factor = 2.5f, .expert_factors = positive}, random);
  }
}

// Sigmoids of large logits are all 1; the logits still differ.
TEST_P(ExpertsTest, LogitsChooseWhereSigmoidsAreEqual) {
  using Scores = kernels::Routing::Scores;
  Random random(57);
  for (const auto& [num_experts, k] : {std::pair{6, 2}, std::pair{64, 1}, std::pair{128, 8}}) {
    ExpectRoutes(*device_, num_experts, k, {.scores = Scores::kSigmoid, .chooses_by_logits = true},
                 random);
  }
  HostTensor logits(kernels::DType::kF32, 1, 4);
  const float values[] = {30, 40, 60, 50};
  for (int i = 0; i < 4; ++i) logits.Set(i, values[i]);
  Routes routes(1, 4, 1);
  ops().experts.RouteExperts(routes.view(), logits,
                             {.scores = Scores::kSigmoid, .chooses_by_logits = true});
  EXPECT_THAT(ExpertsOf(routes, 0), ElementsAre(2));
  EXPECT_EQ(routes.weights.matrix()[0], 1.0);
  ops().experts.RouteExperts(routes.view(), logits, {.scores = Scores::kSigmoid});
  EXPECT_THAT(ExpertsOf(routes, 0), ElementsAre(0));
}

TEST_P(ExpertsTest, InputsAreWeighed) {
  Random random(58);
  const int64_t num_experts = 5, k = 3, cols = 37;
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    for (const int64_t rows : {0, 1, 19}) {
      const HostTensor logits = HostTensor::Of(kernels::DType::kF32, rows, num_experts, random);
      const HostTensor x = HostTensor::Of(type, rows, cols, random);
      Routes routes(rows, num_experts, k);
      ops().experts.RouteExperts(routes.view(), logits,
                                 {.scores = kernels::Routing::Scores::kSigmoid});
      HostTensor out = HostTensor::Poisoned(type, rows * k, cols);
      ops().experts.WeighInputs(out, x, routes.view());
      const Matrix weights = routes.weights.matrix(), from = x.matrix();
      Matrix expected(static_cast<size_t>(rows * k * cols));
      for (int64_t i = 0; i < rows * k; ++i) {
        for (int64_t c = 0; c < cols; ++c) {
          expected[static_cast<size_t>(routes.entries.ints()[i] * cols + c)] =
              from[static_cast<size_t>(i / k * cols + c)] * weights[static_cast<size_t>(i)];
        }
      }
      ExpectNear(out, expected, RoundingOf(type), {0});
    }
  }
}

TEST_P(ExpertsTest, OfEqualLogitsTheLowerIndexWins) {
  HostTensor logits(kernels::DType::kF32, 3, 5);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {1, 2, 2, 2, 1, 0, 0, 0, 0, 0, kNan, -1, kNan, -2, kNan};
  for (int i = 0; i < 15; ++i) logits.Set(i, values[i]);
  Routes routes(3, 5, 2);
  ops().experts.RouteExperts(routes.view(), logits, {.normalise = true});
  EXPECT_THAT(ExpertsOf(routes, 0), ElementsAre(1, 2));
  EXPECT_THAT(ExpertsOf(routes, 1), ElementsAre(0, 1));
  EXPECT_THAT(ExpertsOf(routes, 2), ElementsAre(1, 3));
  EXPECT_EQ(routes.weights.matrix()[0], 0.5);
}

TEST_P(ExpertsTest, AllNanStillGivesExpertsThatExist) {
  const HostTensor logits = HostTensor::Poisoned(kernels::DType::kF32, 2, 4);
  Routes routes(2, 4, 3);
  ops().experts.RouteExperts(routes.view(), logits, {.normalise = false});
  EXPECT_THAT(ExpertsOf(routes, 1), ElementsAre(0, 1, 2));
  for (const auto scores :
       {kernels::Routing::Scores::kSoftmax, kernels::Routing::Scores::kSigmoid}) {
    ops().experts.RouteExperts(routes.view(), logits,
                               {.scores = scores, .num_groups = 4, .top_groups = 3});
    EXPECT_THAT(ExpertsOf(routes, 1), ElementsAre(0, 1, 2));
  }
}

TEST_P(ExpertsTest, AnEntryHasTheBitsThatMatMulGivesItsRow) {
  Random random(52);
  const int64_t num_experts = 5, k = 3, inner = 70, columns = 37;
  const std::vector<int64_t> cut = {0, 8, 17, 26, 35, 43, 52, 61, 70};
  for (const auto& [type, weights] : {std::pair{kernels::DType::kF32, kernels::WeightType::kF32},
                                      {kernels::DType::kBF16, kernels::WeightType::kBF16},
                                      {kernels::DType::kF32, kernels::WeightType::kBF16},
                                      {kernels::DType::kBF16, kernels::WeightType::kInt8},
                                      {kernels::DType::kBF16, kernels::WeightType::kInt4}}) {
    SCOPED_TRACE(NameOf(weights));
    std::vector<PackedWeight> packed;
    std::vector<kernels::Weight> experts, cut_experts;
    for (int e = 0; e < num_experts; ++e) {
      const HostTensor matrix = HostTensor::Of(kernels::DType::kF32, columns, inner, random);
      packed.emplace_back(*device_, weights, matrix);
      experts.push_back(packed.back().weight());
      packed.emplace_back(*device_, weights, matrix, cut);
      cut_experts.push_back(packed.back().weight());
    }
    // 600 rows are packed in several slabs.
    for (const int64_t rows : {1, 2, 19, 600}) {
      const HostTensor logits = HostTensor::Of(kernels::DType::kF32, rows, num_experts, random);
      const HostTensor x = HostTensor::Of(type, rows, inner, random);
      Routes routes(rows, num_experts, k);
      ops().experts.RouteExperts(routes.view(), logits, {.normalise = true});
      HostTensor out = HostTensor::Poisoned(type, rows * k, columns);
      ops().experts.ExpertMatMul(out, x, experts, routes.view(), /*by_entry=*/false);
      // Other experts' weights are the factors of the gates.
      const std::vector<kernels::Weight> ups(experts.rbegin(), experts.rend());
      for (const kernels::GateFunction function :
           {kernels::GateFunction::kSilu, kernels::GateFunction::kGelu,
            kernels::GateFunction::kClampedSwiglu}) {
        HostTensor expected = HostTensor::Poisoned(type, rows * k, columns);
        HostTensor factor = HostTensor::Poisoned(type, rows * k, columns);
        ops().experts.ExpertMatMul(expected, x, experts, routes.view(), /*by_entry=*/false);
        ops().experts.ExpertMatMul(factor, x, ups, routes.view(), /*by_entry=*/false);
        ops().rows.GateMul(function, expected, expected, factor);
        HostTensor gated = HostTensor::Poisoned(type, rows * k, columns);
        HostTensor scratch = HostTensor::Poisoned(type, rows * k, columns);
        ops().experts.GatedExpertMatMul(gated, scratch, x, experts, ups, routes.view(), function);
        ASSERT_TRUE(gated.SameBits(expected)) << rows << " rows, " << static_cast<int>(function);
      }
      HostTensor by_entry(type, rows * k, inner);
      ops().rows.GatherRows(by_entry, x, routes.rows);
      HostTensor splits = HostTensor::Poisoned(kernels::DType::kF32, rows * k, columns);
      ops().experts.ExpertMatMulSplitK(splits, by_entry, cut_experts, routes.view(), cut);
      const int64_t stride = rows > 100 ? 13 : 1;
      for (int64_t r = 0; r < rows; r += stride) {
        const std::vector<int> own = ExpertsOf(routes, r);
        for (int i = 0; i < k; ++i) {
          const int32_t entry = routes.entries.ints()[r * k + i];
          HostTensor alone = HostTensor::Poisoned(type, 1, columns);
          ops().matmul.MatMul(alone, x.Rows(r, r + 1), experts[own[i]], kernels::Tensor());
          ASSERT_EQ(ToMatrix(out.Rows(entry, entry + 1)), alone.matrix());
          HostTensor sum = HostTensor::Poisoned(kernels::DType::kF32, 1, columns);
          ops().matmul.MatMulSplitK(sum, x.Rows(r, r + 1), cut_experts[own[i]], cut);
          ASSERT_EQ(ToMatrix(splits.Rows(entry, entry + 1)), sum.matrix());
        }
      }
      HostTensor combined = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
      ops().experts.CombineExperts(combined, splits, routes.view());
      const Matrix got = combined.matrix(), terms = splits.matrix();
      const Matrix factors = routes.weights.matrix();
      const std::vector<int32_t> entries = routes.entries.ints();
      for (int64_t i = 0; i < rows * columns; ++i) {
        float expected = 0;
        for (int64_t j = i / columns * k; j < (i / columns + 1) * k; ++j) {
          const auto term = static_cast<float>(terms[entries[j] * columns + i % columns]);
          expected += term * static_cast<float>(factors[j]);
        }
        ASSERT_EQ(got[i], expected);
      }
    }
  }
}

// Adding a bias after MatMul in float gives the bits of one that the product adds.
TEST_P(ExpertsTest, BiasesAreAddedToTheProductsOfTheirExperts) {
  Random random(54);
  const int64_t num_experts = 5, k = 2, inner = 40, columns = 37, rows = 19;
  for (const auto& [type, weights] : {std::pair{kernels::DType::kF32, kernels::WeightType::kF32},
                                      {kernels::DType::kBF16, kernels::WeightType::kBF16},
                                      {kernels::DType::kBF16, kernels::WeightType::kInt8}}) {
    SCOPED_TRACE(NameOf(weights));
    std::vector<PackedWeight> packed;
    std::vector<kernels::Weight> gates, ups;
    for (int e = 0; e < 2 * num_experts; ++e) {
      packed.emplace_back(*device_, weights,
                          HostTensor::Of(kernels::DType::kF32, columns, inner, random));
      (e < num_experts ? gates : ups).push_back(packed.back().weight());
    }
    const HostTensor gate_bias = HostTensor::Of(kernels::DType::kF32, num_experts, columns, random);
    const HostTensor up_bias = HostTensor::Of(kernels::DType::kF32, num_experts, columns, random);
    const HostTensor logits = HostTensor::Of(kernels::DType::kF32, rows, num_experts, random);
    const HostTensor x = HostTensor::Of(type, rows, inner, random);
    Routes routes(rows, num_experts, k);
    ops().experts.RouteExperts(routes.view(), logits, {.normalise = true});
    HostTensor gate = HostTensor::Poisoned(type, rows * k, columns);
    HostTensor up = HostTensor::Poisoned(type, rows * k, columns);
    ops().experts.ExpertMatMul(gate, x, {gates, gate_bias}, routes.view(), /*by_entry=*/false);
    ops().experts.ExpertMatMul(up, x, {ups, up_bias}, routes.view(), /*by_entry=*/false);
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<int> own = ExpertsOf(routes, r);
      for (int i = 0; i < k; ++i) {
        const int32_t entry = routes.entries.ints()[r * k + i];
        HostTensor alone = HostTensor::Poisoned(type, 1, columns);
        ops().matmul.MatMul(alone, x.Rows(r, r + 1), gates[own[i]],
                            gate_bias.Rows(own[i], own[i] + 1));
        ASSERT_EQ(ToMatrix(gate.Rows(entry, entry + 1)), alone.matrix());
      }
    }
    HostTensor expected = HostTensor::Poisoned(type, rows * k, columns);
    ops().rows.GateMul(kernels::GateFunction::kClampedSwiglu, expected, gate, up);
    HostTensor gated = HostTensor::Poisoned(type, rows * k, columns);
    HostTensor scratch = HostTensor::Poisoned(type, rows * k, columns);
    ops().experts.GatedExpertMatMul(gated, scratch, x, {gates, gate_bias}, {ups, up_bias},
                                    routes.view(), kernels::GateFunction::kClampedSwiglu);
    EXPECT_TRUE(gated.SameBits(expected));
  }
}

TEST_P(ExpertsTest, CombinationsAddBiasesAndSharedExperts) {
  Random random(55);
  const int64_t num_experts = 7, k = 3, columns = 37, rows = 21;
  const HostTensor logits = HostTensor::Of(kernels::DType::kF32, rows, num_experts, random);
  Routes routes(rows, num_experts, k);
  ops().experts.RouteExperts(routes.view(), logits, {.normalise = true});
  const HostTensor x = HostTensor::Of(kernels::DType::kF32, rows * k, columns, random);
  const HostTensor bias = HostTensor::Of(kernels::DType::kF32, num_experts, columns, random);
  const HostTensor shared = HostTensor::Of(kernels::DType::kF32, rows, columns, random);
  const HostTensor gate = HostTensor::Of(kernels::DType::kF32, rows, 1, random, 4.0f);
  const Matrix terms = x.matrix(), biases = bias.matrix(), weights = routes.weights.matrix();
  const Matrix shared_terms = shared.matrix(), gates = gate.matrix();
  const std::vector<int32_t> entries = routes.entries.ints();
  for (const int which : {1, 2, 3, 6, 7}) {
    const bool has_bias = which & 1, has_shared = which & 2, has_gate = which & 4;
    kernels::ExpertAddends addends;
    if (has_bias) addends.bias = bias;
    if (has_shared) addends.shared = shared;
    if (has_gate) addends.shared_gate = gate;
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
    ops().experts.CombineExperts(out, x, routes.view(), addends);
    const Matrix got = out.matrix();
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<int> own = ExpertsOf(routes, r);
      for (int64_t c = 0; c < columns; ++c) {
        double expected = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double term = terms[entries[r * k + i] * columns + c];
          expected += weights[r * k + i] * (term + (has_bias ? biases[own[i] * columns + c] : 0));
        }
        const double factor = has_gate ? 1 / (1 + std::exp(-gates[r])) : 1;
        if (has_shared) expected += shared_terms[r * columns + c] * factor;
        ASSERT_NEAR(got[r * columns + c], expected, 1e-5) << which;
      }
    }
  }
}

TEST_P(ExpertsTest, NoRowsAreFine) {
  Routes routes(0, 4, 2);
  ops().experts.RouteExperts(routes.view(), HostTensor(kernels::DType::kF32, 0, 4),
                             {.normalise = true});
  EXPECT_EQ(routes.begin.ints(), std::vector<int32_t>(5, 0));
  ops().experts.CombineExperts(HostTensor(kernels::DType::kF32, 0, 8),
                               HostTensor(kernels::DType::kF32, 0, 8), routes.view());
}

}  // namespace
}  // namespace continuo::testing
