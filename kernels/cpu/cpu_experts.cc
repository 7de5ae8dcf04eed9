// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: routing, one product per expert for all rows that go to it, and the weighted
// sums. Which rows share an expert changes no bit, since a row of a product is independent of the
// others and a row's experts are added in ascending order.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/rows.h"
#include "kernels/exact_math.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The k experts of the largest logits, ascending. `logits` is changed.
void PickLargest(float* logits, int64_t num_experts, int64_t k, int32_t* experts) {
  for (int64_t e = 0; e < num_experts; ++e) {
    if (std::isnan(logits[e])) logits[e] = kLowest;
  }
  // An insertion into the k best so far; an equal one that comes later stays behind.
  int64_t num = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (num == k && !(logits[e] > logits[experts[k - 1]])) continue;
    int64_t at = num < k ? num++ : k - 1;
    for (; at > 0 && logits[e] > logits[experts[at - 1]]; --at) experts[at] = experts[at - 1];
    experts[at] = static_cast<int32_t>(e);
  }
  std::sort(experts, experts + k);
}

void Weigh(const float* logits, int64_t num_experts, const int32_t* experts, int64_t k,
           bool normalise, float* weights) {
  float max = kLowest;
  for (int64_t i = 0; i < k; ++i) max = std::max(max, logits[experts[i]]);
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) weights[i] = ExactExp(logits[experts[i]] - max);
  if (normalise) {
    // Dividing by the sum over all experts and then by that of the chosen ones cancels.
    for (int64_t i = 0; i < k; ++i) sum += weights[i];
  } else {
    for (int64_t e = 0; e < num_experts; ++e) sum += ExactExp(logits[e] - max);
  }
  for (int64_t i = 0; i < k; ++i) weights[i] /= sum;
}

int32_t* Ints(const Tensor& t) { return static_cast<int32_t*>(t.data); }

}  // namespace

void CpuBackend::RouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise) {
  const int64_t rows = logits.rows(), num_experts = logits.cols();
  const int64_t k = routes.weights.cols();
  CONTINUO_CHECK(logits.dtype == DType::kF32 && routes.weights.dtype == DType::kF32);
  CONTINUO_CHECK(routes.entries.dtype == DType::kI32 && routes.rows.dtype == DType::kI32);
  CONTINUO_CHECK(routes.expert_begin.dtype == DType::kI32);
  CONTINUO_CHECK(k >= 1 && k <= num_experts && routes.weights.rows() == rows);
  CONTINUO_CHECK(routes.entries.size() == rows * k && routes.rows.size() == rows * k);
  CONTINUO_CHECK(routes.expert_begin.size() == num_experts + 1);

  // First `entries` holds the experts themselves.
  int32_t* const entries = Ints(routes.entries);
  ForParts(rows, 16 * num_experts, [&](int64_t begin, int64_t end, int thread) {
    float* row = scratch_[thread].Get(num_experts);
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(row, At(logits, r * num_experts), num_experts * sizeof(float));
      PickLargest(row, num_experts, k, entries + r * k);
      Weigh(row, num_experts, entries + r * k, k, normalise,
            reinterpret_cast<float*>(At(routes.weights, r * k)));
    }
  });
  // Counts, their running sum, then each entry takes the next place of its expert.
  int32_t* const expert_begin = Ints(routes.expert_begin);
  std::fill_n(expert_begin, num_experts + 1, 0);
  for (int64_t i = 0; i < rows * k; ++i) ++expert_begin[entries[i] + 1];
  for (int64_t e = 0; e < num_experts; ++e) expert_begin[e + 1] += expert_begin[e];
  for (int64_t i = 0; i < rows * k; ++i) {
    const int32_t expert = entries[i];
    entries[i] = expert_begin[expert]++;
    Ints(routes.rows)[entries[i]] = static_cast<int32_t>(i / k);
  }
  // Each beginning has become the next one's.
  for (int64_t e = num_experts; e > 0; --e) expert_begin[e] = expert_begin[e - 1];
  expert_begin[0] = 0;
}

void CpuBackend::ExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                              const ExpertRoutes& routes, bool by_entry) {
  const int64_t begins[] = {0, x.cols()};
  MultiplyExperts(out, x, experts, routes, begins, by_entry);
}

void CpuBackend::GatedExpertMatMul(Tensor gate, Tensor up, Tensor x, std::span<const Weight> gates,
                                   std::span<const Weight> ups, const ExpertRoutes& routes,
                                   GateFunction function) {
  CONTINUO_CHECK(gates.size() == ups.size() && !gates.empty());
  CONTINUO_CHECK(up.dtype == gate.dtype && up.size() == gate.size());
  const WeightFormat format = gates[0].format;
  if (format == WeightFormat::kDense || format != ups[0].format) {
    return Backend::GatedExpertMatMul(gate, up, x, gates, ups, routes, function);
  }
  const int64_t begins[] = {0, x.cols()};
  MultiplyExperts(gate, x, gates, routes, begins, /*by_entry=*/false, LoopOf(function), ups);
}

void CpuBackend::ExpertMatMulPieces(Tensor out, Tensor x, std::span<const Weight> experts,
                                    const ExpertRoutes& routes,
                                    std::span<const int64_t> piece_begin) {
  CONTINUO_CHECK(out.dtype == DType::kF32);
  MultiplyExperts(out, x, experts, routes, piece_begin, /*by_entry=*/true);
}

void CpuBackend::MultiplyExperts(Tensor out, Tensor x, std::span<const Weight> experts,
                                 const ExpertRoutes& routes, std::span<const int64_t> piece_begin,
                                 bool by_entry, GateLoop gate, std::span<const Weight> ups) {
  const int64_t num_entries = routes.rows.size();
  CONTINUO_CHECK(IsActivation(out.dtype) && IsActivation(x.dtype));
  CheckPieces(piece_begin, x.cols());
  CONTINUO_CHECK(routes.expert_begin.size() == static_cast<int64_t>(experts.size()) + 1);
  CONTINUO_CHECK(out.rows() == num_entries);
  CONTINUO_CHECK(x.rows() == (by_entry ? num_entries : routes.weights.rows()));
  if (num_entries == 0 || out.cols() == 0) return;
  const int32_t* const x_rows = by_entry ? nullptr : Ints(routes.rows);
  const bool packed = experts[0].format != WeightFormat::kDense;
  CONTINUO_CHECK(gate == nullptr || (packed && ups.size() == experts.size()));
  panel_products_.clear();
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t begin = Ints(routes.expert_begin)[e], end = Ints(routes.expert_begin)[e + 1];
    if (begin == end) continue;
    Tensor part = out;
    part.data = At(out, begin * out.cols());
    part.shape[0] = end - begin;
    CONTINUO_CHECK(experts[e].data.rows() == out.cols() && experts[e].data.cols() == x.cols());
    if (packed) {
      CONTINUO_CHECK(experts[e].format == experts[0].format);
      PanelProduct& product = panel_products_.emplace_back();
      product = {.out = part, .w = experts[e], .bias = Tensor(), .x_row = begin, .gate = gate};
      if (gate == nullptr) continue;
      CONTINUO_CHECK(ups[e].format == experts[0].format);
      CONTINUO_CHECK(ups[e].data.rows() == out.cols() && ups[e].data.cols() == x.cols());
      product.up = ups[e];
      continue;
    }
    Tensor in = x;
    if (by_entry) {
      in.data = At(x, begin * x.cols());
      in.shape[0] = end - begin;
    }
    MultiplyPieces(part, in, experts[e], piece_begin, Tensor(),
                   by_entry ? nullptr : x_rows + begin);
  }
  // All of them share the packing of x and one division of the work.
  if (packed) MultiplyPanels(panel_products_, x, x_rows, num_entries, piece_begin);
}

void CpuBackend::CombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes) {
  const int64_t cols = out.cols(), k = routes.weights.cols();
  CONTINUO_CHECK(out.dtype == DType::kF32 && x.dtype == DType::kF32 && x.cols() == cols);
  CONTINUO_CHECK(out.rows() == routes.weights.rows() && x.rows() == routes.rows.size());
  const float* weights = static_cast<const float*>(routes.weights.data);
  ForParts(out.rows(), k * cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = reinterpret_cast<float*>(At(out, r * cols));
      std::fill_n(row, cols, 0.0f);
      for (int64_t i = r * k; i < (r + 1) * k; ++i) {
        const int64_t entry = Ints(routes.entries)[i];
        kernels_.add_scaled(row, reinterpret_cast<const float*>(At(x, entry * cols)), weights[i],
                            cols);
      }
    }
  });
}

}  // namespace continuo::kernels::cpu
