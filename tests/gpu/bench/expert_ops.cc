// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

// Of Qwen3-30B-A3B.
constexpr int64_t kExperts = 128, kPicked = 8, kHidden = 2048, kInner = 768;
// Steps of few rows go to other experts, in turn: with all of their weights in the second-level
// cache products would not be those of a model.
constexpr int kRoutes = 16;

kernels::ExpertRoutes RoutesOf(OpsSource& s, int64_t rows) {
  return {.weights = s.Zeros(kernels::DType::kF32, {rows, kPicked, 1}),
          .entries = s.Zeros(kernels::DType::kI32, {rows, kPicked, 1}),
          .rows = s.Zeros(kernels::DType::kI32, {rows * kPicked, 1, 1}),
          .expert_begin = s.Zeros(kernels::DType::kI32, {kExperts + 1, 1, 1})};
}

// Rows of one long array of random numbers, so that each set of routes has others.
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

void AddExpertsOf(OpsSource& s, int64_t rows) {
  const int64_t entries = rows * kPicked;
  const std::string of = ", rows " + std::to_string(rows);
  const int sets = rows > 256 ? 1 : kRoutes;
  // Experts that some row goes to, of independent rows.
  const double used = kExperts * (1 - std::pow(1 - static_cast<double>(kPicked) / kExperts, rows));
  const double matrix = 2.0 * kHidden * kInner, n = static_cast<double>(entries);
  const kernels::Weight shape = {{nullptr, kernels::DType::kBF16, {kInner, kHidden, 1}},
                                 kernels::WeightFormat::kDense};
  const std::vector<kernels::Weight> shapes(kExperts, shape);
  const bool waits = s.b.WaitsForExperts(kernels::DType::kBF16, shapes, entries);

  s.Add("experts", "RouteExperts" + of, 4.0 * static_cast<double>(rows) * kExperts + 16 * n,
        kColdBytes, [=, &s] {
          const kernels::ExpertRoutes routes = RoutesOf(s, rows);
          const kernels::Tensor logits = LogitsOf(s, rows, 0);
          return [=, &s] { s.b.RouteExperts(routes, logits, /*normalise=*/true); };
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
                 s.b.RouteExperts(routes, LogitsOf(s, rows, i), /*normalise=*/true);
                 calls.push_back([=, &s] {
                   s.b.GatedExpertMatMul(gate, up, x, gates, ups, routes,
                                         kernels::GateFunction::kSilu);
                 });
               }
               return calls;
             },
         .repeats = !waits,
         .ceilings = {kReading, PeakOf(kernels::WeightType::kBF16)}});
  s.Add({.group = "experts",
         .name = "ExpertMatMulPieces" + of,
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
                 s.b.RouteExperts(routes, LogitsOf(s, rows, i), /*normalise=*/true);
                 calls.push_back([=, &s] {
                   const int64_t pieces[] = {0, kInner};
                   s.b.ExpertMatMulPieces(out, x, downs, routes, pieces);
                 });
               }
               return calls;
             },
         .repeats = !waits,
         .ceilings = {kReading, PeakOf(kernels::WeightType::kBF16)}});
  const double combined = 4 * n * kHidden + 4.0 * static_cast<double>(rows) * kHidden;
  s.Add("experts", "CombineExperts" + of, combined, kColdBytes, [=, &s] {
    const kernels::ExpertRoutes routes = RoutesOf(s, rows);
    s.b.RouteExperts(routes, LogitsOf(s, rows, 0), /*normalise=*/true);
    const kernels::Tensor x = s.Random(kernels::DType::kF32, {entries, kHidden, 1});
    const kernels::Tensor out = s.Zeros(kernels::DType::kF32, {rows, kHidden, 1});
    return [=, &s] { s.b.CombineExperts(out, x, routes); };
  });
}

}  // namespace

void AddExperts(OpsSource& s) {
  for (const int64_t rows : {1, 64, 4096}) AddExpertsOf(s, rows);
}

}  // namespace continuo
