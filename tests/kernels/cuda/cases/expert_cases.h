// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/cases/joined_cases.h"
#include "tests/kernels/cuda/cases/ops_cases.h"
#include "tests/kernels/cuda/cases/quantised_cases.h"
#include "tests/kernels/cuda/sampled.h"
#include "tests/kernels/host_tensor.h"

// Mixture of experts on a Device whose memory the host does not read, beside the CPU. The cases run
// on whatever is linked: the shim or a device.
namespace continuo::testing {

// The routes of rows with random logits, on the device and on the CPU.
class Routed {
 public:
  // `correction` is added to the scores for the choice, and weights have `factors`, where these are
  // not empty.
  Routed(kernels::Device& b, kernels::Device& cpu, int64_t rows, int64_t num_experts, int64_t k,
         kernels::Routing routing,
         const HostTensor& correction = HostTensor(kernels::DType::kF32, 0, 1),
         const HostTensor& factors = HostTensor(kernels::DType::kF32, 0, 1))
      : weights_(HostTensor::Poisoned(kernels::DType::kF32, rows, k)),
        places_(HostTensor::Poisoned(kernels::DType::kI32, rows, k)),
        rows_(HostTensor::Poisoned(kernels::DType::kI32, rows * k, 1)),
        begin_(HostTensor::Poisoned(kernels::DType::kI32, num_experts + 1, 1)),
        device_weights_(b, weights_),
        device_places_(b, places_),
        device_rows_(b, rows_),
        device_begin_(b, begin_) {
    Random random(10);
    HostTensor logits = HostTensor::Of(kernels::DType::kF32, rows, num_experts, random);
    logits.Set(0, NAN);
    for (int64_t e = 2; e < num_experts; e += 3) logits.Set(e, 1);  // some are equal
    const DeviceTensor device_logits(b, logits);
    const DeviceTensor device_correction(b, correction), device_factors(b, factors);
    kernels::Routing on_host = routing;
    if (correction.tensor().size() > 0) {
      routing.correction = device_correction;
      on_host.correction = correction;
    }
    if (factors.tensor().size() > 0) {
      routing.expert_factors = device_factors;
      on_host.expert_factors = factors;
    }
    b.ops().experts.RouteExperts(device(), device_logits, routing);
    cpu.ops().experts.RouteExperts(host(), logits, on_host);
    read_begin_ = device_begin_.Get().ints();
  }
  kernels::ExpertRoutes device() const {
    return {device_weights_, device_places_, device_rows_, device_begin_, read_begin_};
  }
  kernels::ExpertRoutes host() const { return {weights_, places_, rows_, begin_}; }
  // Expects the CPU's bits.
  void Check() const {
    EXPECT_TRUE(device_weights_.Get().SameBits(weights_));
    EXPECT_TRUE(device_places_.Get().SameBits(places_));
    EXPECT_TRUE(device_rows_.Get().SameBits(rows_));
    EXPECT_TRUE(device_begin_.Get().SameBits(begin_));
  }

 private:
  HostTensor weights_, places_, rows_, begin_;
  DeviceTensor device_weights_, device_places_, device_rows_, device_begin_;
  std::vector<int32_t> read_begin_;  // the host's copy of device_begin_
};

inline void CheckRoutes(kernels::Device& b, kernels::Device& cpu, int64_t rows, int64_t num_experts,
                        int64_t k) {
  SCOPED_TRACE(::testing::Message() << rows << " rows, " << k << " of " << num_experts);
  for (const bool normalise : {false, true}) {
    Routed(b, cpu, rows, num_experts, k, {.normalise = normalise}).Check();
  }
}

// Every kind of scores, with corrections and without, by groups of which some are left out.
inline void CheckEveryRouting(kernels::Device& b, kernels::Device& cpu, int64_t rows,
                              int num_experts, int k, int num_groups, int top_groups) {
  Random random(17);
  const HostTensor correction = HostTensor::Of(kernels::DType::kF32, num_experts, 1, random, 0.3f);
  for (const auto scores :
       {kernels::Routing::Scores::kSoftmax, kernels::Routing::Scores::kSigmoid}) {
    for (const bool flag : {false, true}) {
      const kernels::Routing routing = {.scores = scores,
                                        .normalise = flag,
                                        .num_groups = num_groups,
                                        .top_groups = top_groups,
                                        .by_top_two = !flag,
                                        .factor = 2.5f};
      SCOPED_TRACE(::testing::Message() << static_cast<int>(scores) << flag << " " << k << " of "
                                        << num_experts << ", " << num_groups << " groups");
      Routed(b, cpu, rows, num_experts, k, routing).Check();
      Routed(b, cpu, rows, num_experts, k, routing, correction).Check();
    }
  }
}

// Factors of the experts' weights, and a choice by logits whose sigmoids may be equal.
inline void CheckOtherRouting(kernels::Device& b, kernels::Device& cpu, int64_t rows,
                              int num_experts, int k) {
  SCOPED_TRACE(::testing::Message() << k << " of " << num_experts);
  Random random(19);
  HostTensor factors(kernels::DType::kF32, num_experts, 1);
  for (int e = 0; e < num_experts; ++e) factors.Set(e, 1.5f + random.Value() / 4);
  Routed(b, cpu, rows, num_experts, k, {.normalise = true}, HostTensor(kernels::DType::kF32, 0, 1),
         factors)
      .Check();
  Routed(b, cpu, rows, num_experts, k,
         {.scores = kernels::Routing::Scores::kSigmoid, .chooses_by_logits = true})
      .Check();
}

// Inputs times the weights of their entries have the CPU's bits in f32 and bf16.
inline void CheckWeighedInputs(kernels::Device& b, kernels::Device& cpu, int64_t rows,
                               int64_t num_experts, int64_t k, int64_t cols) {
  SCOPED_TRACE(::testing::Message() << rows << " rows, " << k << " of " << num_experts);
  Random random(20);
  const Routed routed(b, cpu, rows, num_experts, k,
                      {.scores = kernels::Routing::Scores::kSigmoid, .chooses_by_logits = true});
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    const HostTensor x = HostTensor::Of(type, rows, cols, random);
    HostTensor expected = HostTensor::Poisoned(type, rows * k, cols);
    cpu.ops().experts.WeighInputs(expected, x, routed.host());
    const DeviceTensor from(b, x), out(b, HostTensor::Poisoned(type, rows * k, cols));
    b.ops().experts.WeighInputs(out, from, routed.device());
    EXPECT_TRUE(out.Get().SameBits(expected));
  }
}

inline constexpr kernels::WeightType kExpertTypes[] = {
    kernels::WeightType::kBF16, kernels::WeightType::kF16, kernels::WeightType::kInt8,
    kernels::WeightType::kInt4};

// Returns the type of activations that experts of a type are multiplied with.
inline kernels::DType BesideOf(kernels::WeightType type) {
  return type == kernels::WeightType::kF16 ? kernels::DType::kF16 : kernels::DType::kBF16;
}

// Matrices of small integers as a device stores them.
struct DeviceExperts {
  DeviceExperts(kernels::Device& b, kernels::WeightType type,
                const std::vector<HostTensor>& matrices, const std::vector<int64_t>& split_begin) {
    for (const HostTensor& matrix : matrices) {
      if (type == kernels::WeightType::kBF16 || type == kernels::WeightType::kF16) {
        dense.push_back(std::make_unique<DeviceTensor>(b, As(BesideOf(type), matrix)));
        weights.push_back(dense.back()->weight());
      } else {
        packed.push_back(std::make_unique<DeviceWeight>(b, type, matrix, split_begin));
        weights.push_back(packed.back()->weight());
      }
    }
  }
  std::vector<std::unique_ptr<DeviceTensor>> dense;
  std::vector<std::unique_ptr<DeviceWeight>> packed;
  std::vector<kernels::Weight> weights;
};

// Checks products of integers, whose sums are exact in any order, so they have the CPU's bits;
// those in f16 have the bits of those in bf16. There are k experts a row, of [columns, inner];
// `splits` cut inner.
inline void CheckExperts(kernels::Device& b, kernels::Device& cpu,
                         const std::vector<int64_t>& row_counts, int64_t num_experts, int64_t k,
                         kernels::WeightType type = kernels::WeightType::kBF16,
                         const std::vector<int64_t>& splits = {0, 8, 8, 16, 24},
                         int64_t columns = 40) {
  const int64_t inner = splits.back();
  Random random(11);
  std::vector<HostTensor> matrices;
  std::vector<kernels::Weight> cpu_weights;
  for (int64_t i = 0; i < num_experts; ++i) {
    matrices.push_back(WeightIntegers(type, columns, splits, random));
    cpu_weights.push_back(matrices.back().weight());
  }
  const DeviceExperts whole(b, type, matrices, {0, inner}), in_splits(b, type, matrices, splits);
  for (const int64_t rows : row_counts) {
    SCOPED_TRACE(::testing::Message() << rows << " rows, " << k << " of " << num_experts << ", "
                                      << NameOf(type) << ", inner " << inner);
    const int64_t entries = rows * k;
    const Routed routed(b, cpu, rows, num_experts, k, {.normalise = true});
    routed.Check();
    const kernels::ExpertRoutes routes = routed.device(), host_routes = routed.host();
    const HostTensor x = SmallIntegers(kernels::DType::kBF16, rows, inner, 3, random);
    const HostTensor x_entries = SmallIntegers(kernels::DType::kBF16, entries, inner, 3, random);
    const DeviceTensor device_x(b, As(BesideOf(type), x));
    const DeviceTensor device_entries(b, As(BesideOf(type), x_entries));
    const auto sums = [&] { return HostTensor::Poisoned(kernels::DType::kF32, entries, columns); };
    const DeviceTensor out(b, sums()), of_splits(b, sums());
    const HostTensor expected = sums(), expected_of_splits = sums();
    b.ops().experts.ExpertMatMul(out, device_x, whole.weights, routes, /*by_entry=*/false);
    cpu.ops().experts.ExpertMatMul(expected, x, cpu_weights, host_routes, /*by_entry=*/false);
    EXPECT_TRUE(out.Get().SameBits(expected));
    const HostTensor bias = SmallIntegers(kernels::DType::kF32, num_experts, columns, 5, random);
    const DeviceTensor device_bias(b, bias), with_bias(b, sums());
    const HostTensor expected_with_bias = sums();
    b.ops().experts.ExpertMatMul(with_bias, device_x, {whole.weights, device_bias}, routes,
                                 /*by_entry=*/false);
    cpu.ops().experts.ExpertMatMul(expected_with_bias, x, {cpu_weights, bias}, host_routes,
                                   /*by_entry=*/false);
    EXPECT_TRUE(with_bias.Get().SameBits(expected_with_bias));
    EXPECT_FALSE(expected_with_bias.SameBits(expected));
    b.ops().experts.ExpertMatMulSplitK(of_splits, device_entries, in_splits.weights, routes,
                                       splits);
    cpu.ops().experts.ExpertMatMulSplitK(expected_of_splits, x_entries, cpu_weights, host_routes,
                                         splits);
    EXPECT_TRUE(of_splits.Get().SameBits(expected_of_splits));
    const DeviceTensor combined(b, HostTensor::Poisoned(kernels::DType::kF32, rows, columns));
    const HostTensor expected_combined = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
    b.ops().experts.CombineExperts(combined, out, routes);
    cpu.ops().experts.CombineExperts(expected_combined, expected, host_routes);
    EXPECT_TRUE(combined.Get().SameBits(expected_combined));
    const HostTensor shared = HostTensor::Of(kernels::DType::kF32, rows, columns, random);
    const HostTensor gate = HostTensor::Of(kernels::DType::kF32, rows, 1, random, 3);
    const DeviceTensor device_shared(b, shared), device_gate(b, gate);
    b.ops().experts.CombineExperts(combined, out, routes,
                                   {device_bias, device_shared, device_gate});
    cpu.ops().experts.CombineExperts(expected_combined, expected, host_routes,
                                     {bias, shared, gate});
    EXPECT_TRUE(combined.Get().SameBits(expected_combined));
    if (::testing::Test::HasFailure()) return;
  }
}

// Checks gates of experts beside the reference. Products of integers times a power of two are
// exact, so both factors are known as they are rounded before the function takes them. Some entries
// and columns are compared.
inline void CheckGatedExperts(kernels::Device& b, const std::vector<int64_t>& row_counts,
                              int64_t num_experts, int64_t k, kernels::WeightType type,
                              int64_t columns, int64_t inner, int64_t most_checked = kAll) {
  const kernels::DType activations = BesideOf(type);
  // The largest element of a group counts for more than the others.
  const bool has_large = type != kernels::WeightType::kBF16;
  const float factor = GateFactor(inner) * (has_large ? 0.25f : 1);
  Random random(16);
  std::vector<HostTensor> gate_matrices, up_matrices;
  for (int64_t i = 0; i < num_experts; ++i) {
    gate_matrices.push_back(WeightIntegers(type, columns, {0, inner}, random, factor));
    up_matrices.push_back(WeightIntegers(type, columns, {0, inner}, random, factor));
  }
  const DeviceExperts gates(b, type, gate_matrices, {0, inner});
  const DeviceExperts ups(b, type, up_matrices, {0, inner});
  for (const int64_t rows : row_counts) {
    const int64_t entries = rows * k;
    const DeviceTensor logits(b, HostTensor::Of(kernels::DType::kF32, rows, num_experts, random));
    const DeviceTensor weights(b, HostTensor::Poisoned(kernels::DType::kF32, rows, k));
    const DeviceTensor places(b, HostTensor::Poisoned(kernels::DType::kI32, rows, k));
    const DeviceTensor of_entries(b, HostTensor::Poisoned(kernels::DType::kI32, entries, 1));
    const DeviceTensor begin(b, HostTensor::Poisoned(kernels::DType::kI32, num_experts + 1, 1));
    kernels::ExpertRoutes routes = {weights, places, of_entries, begin};
    b.ops().experts.RouteExperts(routes, logits, {.normalise = true});
    const std::vector<int32_t> row_of = of_entries.Get().ints(), begins = begin.Get().ints();
    routes.host_expert_begin = begins;
    const HostTensor x = SmallIntegers(activations, rows, inner, 3, random);
    const DeviceTensor in(b, x);
    const Sample some(entries, columns, most_checked, random);
    Matrix gate_values, up_values;
    for (const int64_t entry : some.rows) {
      const auto expert = static_cast<size_t>(
          std::upper_bound(begins.begin(), begins.end(), entry) - begins.begin() - 1);
      ASSERT_LT(expert, gate_matrices.size());
      const int64_t row = row_of[static_cast<size_t>(entry)];
      const Matrix of_x = ToMatrix(x.Rows(row, row + 1));
      for (const auto& [matrices, values] :
           {std::pair{&gate_matrices, &gate_values}, std::pair{&up_matrices, &up_values}}) {
        for (const double sum :
             ReferenceMatMul(of_x, RowsOf((*matrices)[expert], some.columns).matrix(), {}, 1,
                             static_cast<int64_t>(some.columns.size()), inner)) {
          values->push_back(RoundedTo(activations, static_cast<float>(sum)));
        }
      }
    }
    for (const kernels::GateFunction function :
         {kernels::GateFunction::kSilu, kernels::GateFunction::kGelu,
          kernels::GateFunction::kClampedSwiglu}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows, " << k << " of " << num_experts << ", "
                                        << NameOf(type) << ", inner " << inner);
      const DeviceTensor gate(b, HostTensor::Poisoned(activations, entries, columns));
      const DeviceTensor up(b, HostTensor::Poisoned(activations, entries, columns));
      b.ops().experts.GatedExpertMatMul(gate, up, in, gates.weights, ups.weights, routes, function);
      const HostTensor got = gate.Get();
      ExpectWritten(got);
      ExpectGated(Part(got, some.rows, some.columns), function, gate_values, up_values);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Runs layers one after the other whose routes are the same arrays. after_routes() is called before
// the host reads a layer's numbers of rows, after_layer() behind its products.
template <typename AfterRoutes, typename AfterLayer>
void CheckLayersOfExperts(kernels::Device& b, kernels::Device& cpu, AfterRoutes after_routes,
                          AfterLayer after_layer) {
  constexpr int64_t kRows = 60, kExperts = 3, kInner = 24, kColumns = 16;
  Random random(13);
  std::vector<HostTensor> matrices;
  std::vector<kernels::Weight> cpu_weights;
  for (int64_t i = 0; i < kExperts; ++i) {
    matrices.push_back(SmallIntegers(kernels::DType::kBF16, kColumns, kInner, 7, random));
    cpu_weights.push_back(matrices.back().weight());
  }
  const DeviceExperts experts(b, kernels::WeightType::kBF16, matrices, {0, kInner});
  const HostTensor x = SmallIntegers(kernels::DType::kBF16, kRows, kInner, 3, random);
  const DeviceTensor device_x(b, x);
  const HostTensor weights = HostTensor::Poisoned(kernels::DType::kF32, kRows, 1);
  const HostTensor places = HostTensor::Poisoned(kernels::DType::kI32, kRows, 1);
  const HostTensor of_entries = HostTensor::Poisoned(kernels::DType::kI32, kRows, 1);
  const HostTensor begin = HostTensor::Poisoned(kernels::DType::kI32, kExperts + 1, 1);
  const DeviceTensor device_weights(b, weights), device_places(b, places);
  const DeviceTensor device_of_entries(b, of_entries), device_begin(b, begin);
  const kernels::ExpertRoutes host = {weights, places, of_entries, begin};
  kernels::ExpertRoutes routes = {device_weights, device_places, device_of_entries, device_begin};
  const HostTensor sums = HostTensor::Poisoned(kernels::DType::kF32, kRows, kColumns);
  std::vector<std::unique_ptr<DeviceTensor>> logits, outs;
  std::vector<HostTensor> expected;
  for (int layer = 0; layer < 3; ++layer) {
    const HostTensor layer_logits = HostTensor::Of(kernels::DType::kF32, kRows, kExperts, random);
    logits.push_back(std::make_unique<DeviceTensor>(b, layer_logits));
    cpu.ops().experts.RouteExperts(host, layer_logits, {.normalise = true});
    expected.push_back(sums.Clone());
    cpu.ops().experts.ExpertMatMul(expected.back(), x, cpu_weights, host, /*by_entry=*/false);
    for (int product = 0; product < 3; ++product) {
      outs.push_back(std::make_unique<DeviceTensor>(b, sums));
    }
  }
  for (size_t layer = 0; layer < 3; ++layer) {
    b.ops().experts.RouteExperts(routes, *logits[layer], {.normalise = true});
    after_routes();
    // A model does the same where NeedsHostRoutes: it reads the numbers once for the layer.
    std::vector<int32_t> begins(kExperts + 1);
    b.CopyOut(begins.data(), device_begin);
    ASSERT_TRUE(b.Synchronize().ok());
    routes.host_expert_begin = begins;
    for (size_t product = 0; product < 3; ++product) {
      b.ops().experts.ExpertMatMul(*outs[3 * layer + product], device_x, experts.weights, routes,
                                   /*by_entry=*/false);
    }
    after_layer();
  }
  for (size_t i = 0; i < 9; ++i) EXPECT_TRUE(outs[i]->Get().SameBits(expected[i / 3])) << i;
  // The caller may fill the arrays itself.
  b.CopyIn(device_begin, HostTensor::OfInts({0, 60, 60, 60}).tensor().data);
  const std::vector<int32_t> filled_begins = {0, 60, 60, 60};
  routes.host_expert_begin = filled_begins;
  b.ops().experts.ExpertMatMul(*outs[0], device_x, experts.weights, routes, /*by_entry=*/false);
  const HostTensor all_to_one = HostTensor::OfInts({0, 60, 60, 60});
  const kernels::ExpertRoutes filled = {weights, places, of_entries, all_to_one};
  cpu.ops().experts.ExpertMatMul(expected[0], x, cpu_weights, filled, /*by_entry=*/false);
  EXPECT_TRUE(outs[0]->Get().SameBits(expected[0]));
}

// A rank may own no columns of the experts' inner size.
inline void CheckExpertsOfNoColumns(kernels::Device& b, kernels::Device& cpu) {
  const Routed routed(b, cpu, 5, 4, 2, {.normalise = true});
  const DeviceTensor x(b, HostTensor(kernels::DType::kBF16, 10, 0));
  const DeviceTensor weights(b, HostTensor(kernels::DType::kBF16, 40, 0));
  const DeviceTensor out(b, HostTensor::Poisoned(kernels::DType::kF32, 10, 40));
  const int64_t splits[] = {0, 0};
  b.ops().experts.ExpertMatMulSplitK(out, x, std::vector<kernels::Weight>(4, weights.weight()),
                                     routed.device(), splits);
  for (const double value : out.Get().matrix()) ASSERT_EQ(value, 0);
}

// An entry's bits are the same with few rows in the step and with many. Every row goes to the same
// experts, so entries lie expert by expert.
inline void CheckExpertRows(kernels::Device& b, kernels::WeightType type, int64_t inner,
                            const std::vector<int64_t>& counts) {
  constexpr int64_t kExperts = 3, kColumns = 33;
  Random random(12);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const HostTensor x = HostTensor::Of(BesideOf(type), most, inner, random);
  std::vector<HostTensor> matrices;
  for (int64_t i = 0; i < kExperts; ++i) {
    matrices.push_back(HostTensor::Of(kernels::DType::kBF16, kColumns, inner, random));
  }
  const DeviceExperts experts(b, type, matrices, {0, inner});
  const auto multiply = [&](int64_t rows) {
    const HostTensor logits(kernels::DType::kF32, rows, kExperts);  // all equal
    const DeviceTensor device_logits(b, logits), device_x(b, x.Rows(0, rows));
    const auto ints = [&](int64_t n, int64_t cols) {
      return HostTensor::Poisoned(kernels::DType::kI32, n, cols);
    };
    const DeviceTensor weights(b, HostTensor::Poisoned(kernels::DType::kF32, rows, kExperts));
    const DeviceTensor places(b, ints(rows, kExperts)), of_entries(b, ints(rows * kExperts, 1));
    const DeviceTensor begin(b, ints(kExperts + 1, 1));
    kernels::ExpertRoutes routes = {weights, places, of_entries, begin};
    b.ops().experts.RouteExperts(routes, device_logits, {.normalise = false});
    const std::vector<int32_t> begins = begin.Get().ints();
    routes.host_expert_begin = begins;
    const DeviceTensor out(b,
                           HostTensor::Poisoned(kernels::DType::kF32, rows * kExperts, kColumns));
    b.ops().experts.ExpertMatMul(out, device_x, experts.weights, routes, /*by_entry=*/false);
    return out.Get();
  };
  const HostTensor all = multiply(most);
  for (const int64_t rows : counts) {
    const HostTensor some = multiply(rows);
    for (int64_t e = 0; e < kExperts; ++e) {
      const kernels::Tensor part = some.Rows(e * rows, (e + 1) * rows);
      EXPECT_EQ(std::memcmp(part.data, all.Rows(e * most, e * most + rows).data, part.bytes()), 0)
          << NameOf(type) << ' ' << rows << " rows";
    }
  }
}

}  // namespace continuo::testing
