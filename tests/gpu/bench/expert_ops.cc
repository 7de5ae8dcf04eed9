// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

// The sizes are those of Qwen3-30B-A3B.
constexpr int64_t kExperts = 128, kPicked = 8, kHidden = 2048, kInner = 768;
// Steps of few rows go to different experts in turn: with all weights in the L2 cache products
// would not be those of a model.
constexpr int kRoutes = 16;

kernels::ExpertRoutes RoutesOf(OpsSource& s, int64_t rows) {
  return {.weights = s.Zeros(kernels::DType::kF32, {rows, kPicked, 1}),
          .entries = s.Zeros(kernels::DType::kI32, {rows, kPicked, 1}),
          .rows = s.Zeros(kernels::DType::kI32, {rows * kPicked, 1, 1}),
          .expert_begin = s.Zeros(kernels::DType::kI32, {kExperts + 1, 1, 1})};
}

// Takes rows of one long array of random numbers, so that each set of routes has others.
kernels::Tensor LogitsOf(OpsSource& s, int64_t rows, int set) {
  kernels::Tensor all = s.Random(kernels::DType::kF32, {rows * kRoutes, kExperts, 1});
  all.data = static_cast<float*>(all.data) + int64_t{set} * rows * kExperts;
  all.shape[0] = rows;
  return all;
}

std::vector<kernels::Weight> Matrices(OpsSource& s, int64_t columns, int64_t k) {
  const kernels::Tensor all = s.Random(kernels::DType::kBF16, {kExperts * columns, k, 1});
  std::vector<kernels::Weight> matrices;
  for (int64_t i = 0; i < kExperts; ++i) {
    kernels::Tensor one = all;
    one.data = static_cast<uint16_t*>(all.data) + i * columns * k;
    one.shape[0] = columns;
    matrices.push_back({one, kernels::WeightFormat::kDense});
  }
  return matrices;
}

// Reads the numbers of rows to `begin`, as a model does where NeedsHostRoutes.
kernels::ExpertRoutes ReadRoutes(OpsSource& s, kernels::ExpertRoutes routes,
                                 std::vector<int32_t>& begin) {
  s.b.CopyOut(begin.data(), routes.expert_begin);
  EndOnFailure(s.b.Synchronize());
  routes.host_expert_begin = begin;
  return routes;
}

void AddExpertsOf(OpsSource& s, int64_t rows) {
  const int64_t entries = rows * kPicked;
  const std::string of = ", rows " + std::to_string(rows);
  const int sets = rows > 256 ? 1 : kRoutes;
  // The number of experts that some row goes to, with independent rows.
  const double used = kExperts * (1 - std::pow(1 - static_cast<double>(kPicked) / kExperts, rows));
  const double matrix = 2.0 * kHidden * kInner, n = static_cast<double>(entries);
  const kernels::Weight shape = {{nullptr, kernels::DType::kBF16, {kInner, kHidden, 1}},
                                 kernels::WeightFormat::kDense};
  const std::vector<kernels::Weight> shapes(kExperts, shape);
  const bool waits = s.b.ops().experts.NeedsHostRoutes(kernels::DType::kBF16, shapes, entries);

  s.Add("experts", "RouteExperts" + of, 4.0 * static_cast<double>(rows) * kExperts + 16 * n,
        kColdBytes, [=, &s] {
          const kernels::ExpertRoutes routes = RoutesOf(s, rows);
          const kernels::Tensor logits = LogitsOf(s, rows, 0);
          return [=, &s] { s.b.ops().experts.RouteExperts(routes, logits, {.normalise = true}); };
        });
  s.Add({.group = "experts",
         .name = "GatedExpertMatMul" + of,
         .bytes = used * 2 * matrix + 2.0 * static_cast<double>(rows) * kHidden + 2 * n * kInner,
         .flops = 2 * n * 2 * kHidden * kInner,
         .make =
             [=, &s] {
               const std::vector<kernels::Weight> gates = Matrices(s, kInner, kHidden);
               const std::vector<kernels::Weight> ups = Matrices(s, kInner, kHidden);
               const kernels::Tensor x = s.Random(kernels::DType::kBF16, {rows, kHidden, 1});
               const kernels::Tensor gate = s.Zeros(kernels::DType::kBF16, {entries, kInner, 1});
               const kernels::Tensor up = s.Zeros(kernels::DType::kBF16, {entries, kInner, 1});
               Calls calls;
               for (int i = 0; i < sets; ++i) {
                 const kernels::ExpertRoutes routes = RoutesOf(s, rows);
                 s.b.ops().experts.RouteExperts(routes, LogitsOf(s, rows, i), {.normalise = true});
                 calls.push_back([=, &s, begin = std::vector<int32_t>(kExperts + 1)]() mutable {
                   s.b.ops().experts.GatedExpertMatMul(
                       gate, up, x, gates, ups, waits ? ReadRoutes(s, routes, begin) : routes,
                       kernels::GateFunction::kSilu);
                 });
               }
               return calls;
             },
         .is_capturable = !waits,
         .ceilings = {kReading, PeakOf(kernels::WeightType::kBF16)}});
  s.Add({.group = "experts",
         .name = "ExpertMatMulSplitK" + of,
         .bytes = used * matrix + 2 * n * kInner + 4 * n * kHidden,
         .flops = 2 * n * kHidden * kInner,
         .make =
             [=, &s] {
               const std::vector<kernels::Weight> downs = Matrices(s, kHidden, kInner);
               const kernels::Tensor x = s.Random(kernels::DType::kBF16, {entries, kInner, 1});
               const kernels::Tensor out = s.Zeros(kernels::DType::kF32, {entries, kHidden, 1});
               Calls calls;
               for (int i = 0; i < sets; ++i) {
                 const kernels::ExpertRoutes routes = RoutesOf(s, rows);
                 s.b.ops().experts.RouteExperts(routes, LogitsOf(s, rows, i), {.normalise = true});
                 calls.push_back([=, &s, begin = std::vector<int32_t>(kExperts + 1)]() mutable {
                   const int64_t splits[] = {0, kInner};
                   s.b.ops().experts.ExpertMatMulSplitK(
                       out, x, downs, waits ? ReadRoutes(s, routes, begin) : routes, splits);
                 });
               }
               return calls;
             },
         .is_capturable = !waits,
         .ceilings = {kReading, PeakOf(kernels::WeightType::kBF16)}});
  const double combined = 4 * n * kHidden + 4.0 * static_cast<double>(rows) * kHidden;
  s.Add("experts", "CombineExperts" + of, combined, kColdBytes, [=, &s] {
    const kernels::ExpertRoutes routes = RoutesOf(s, rows);
    s.b.ops().experts.RouteExperts(routes, LogitsOf(s, rows, 0), {.normalise = true});
    const kernels::Tensor x = s.Random(kernels::DType::kF32, {entries, kHidden, 1});
    const kernels::Tensor out = s.Zeros(kernels::DType::kF32, {rows, kHidden, 1});
    return [=, &s] { s.b.ops().experts.CombineExperts(out, x, routes); };
  });
}

}  // namespace

void AddExperts(OpsSource& s) {
  for (const int64_t rows : {1, 64, 4096}) AddExpertsOf(s, rows);
}

}  // namespace continuo
