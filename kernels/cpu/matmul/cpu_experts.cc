// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/cpu_experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/runtime/rows.h"
#include "kernels/exact_math.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The k experts of the largest logits, ascending. Replaces NaN in `logits`.
void PickLargest(float* logits, int64_t num_experts, int64_t k, int32_t* experts) {
  for (int64_t e = 0; e < num_experts; ++e) {
    if (std::isnan(logits[e])) logits[e] = kLowest;
  }
  // Insertion into the k best so far; an equal one that comes later stays behind.
  int64_t num = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (num == k && !(logits[e] > logits[experts[k - 1]])) continue;
    int64_t at = num < k ? num++ : k - 1;
    for (; at > 0 && logits[e] > logits[experts[at - 1]]; --at) experts[at] = experts[at - 1];
    experts[at] = static_cast<int32_t>(e);
  }
  std::sort(experts, experts + k);
}

// The weights of k experts.
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

bool IsPacked(std::span<const Weight> experts) { return experts[0].format != WeightFormat::kDense; }

}  // namespace

void CpuExperts::DoRouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise) {
  const int64_t rows = logits.rows(), num_experts = logits.cols();
  const int64_t k = routes.weights.cols();
  // First `entries` holds the experts themselves.
  int32_t* const entries = Ints(routes.entries);
  context_.ForRanges(rows, 16 * num_experts, [&](int64_t begin, int64_t end, int thread) {
    float* row = context_.Scratch(thread, num_experts);
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

void CpuExperts::DoExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                                const ExpertRoutes& routes, bool by_entry) {
  const int64_t whole[] = {0, x.cols()};
  if (IsPacked(experts)) {
    MultiplyPacked(out, x, experts, routes, whole, by_entry);
  } else {
    MultiplyDense(out, x, experts, routes, whole, by_entry);
  }
}

void CpuExperts::DoGatedExpertMatMul(Tensor gate, Tensor up, Tensor x,
                                     std::span<const Weight> gates, std::span<const Weight> ups,
                                     const ExpertRoutes& routes, GateFunction function) {
  if (!IsPacked(gates) || gates[0].format != ups[0].format) {
    ExpertOps::DoGatedExpertMatMul(gate, up, x, gates, ups, routes, function);
    return;
  }
  const int64_t whole[] = {0, x.cols()};
  MultiplyPacked(gate, x, gates, routes, whole, /*by_entry=*/false, GateLoopOf(kernels_, function),
                 ups);
}

void CpuExperts::DoExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                                      const ExpertRoutes& routes,
                                      std::span<const int64_t> split_begin) {
  if (IsPacked(experts)) {
    MultiplyPacked(out, x, experts, routes, split_begin, /*by_entry=*/true);
  } else {
    MultiplyDense(out, x, experts, routes, split_begin, /*by_entry=*/true);
  }
}

void CpuExperts::MultiplyDense(Tensor out, Tensor x, std::span<const Weight> experts,
                               const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                               bool by_entry) {
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t begin = Ints(routes.expert_begin)[e];
    const int64_t n = Ints(routes.expert_begin)[e + 1] - begin;
    if (n == 0) continue;
    matmul_.Multiply({RowsOf(out, begin, n), experts[e], Tensor()},
                     by_entry ? RowsOf(x, begin, n) : x, split_begin,
                     by_entry ? nullptr : Ints(routes.rows) + begin);
  }
}

void CpuExperts::MultiplyPacked(Tensor out, Tensor x, std::span<const Weight> experts,
                                const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                                bool by_entry, GateLoop gate, std::span<const Weight> ups) {
  CheckComputes(x.dtype);
  CheckComputes(out.dtype);
  products_.clear();
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t begin = Ints(routes.expert_begin)[e];
    const int64_t n = Ints(routes.expert_begin)[e + 1] - begin;
    if (n == 0) continue;
    PanelProduct& product = products_.emplace_back();
    product = {.out = RowsOf(out, begin, n),
               .w = experts[e],
               .bias = Tensor(),
               .x_row = begin,
               .gate = gate};
    if (gate != nullptr) product.up = ups[e];
  }
  matmul_.panels().Run(products_, x, by_entry ? nullptr : Ints(routes.rows), out.rows(),
                       split_begin);
}

void CpuExperts::DoCombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes) {
  const int64_t cols = out.cols(), k = routes.weights.cols();
  const auto* const weights = static_cast<const float*>(routes.weights.data);
  context_.ForRanges(out.rows(), k * cols, [&](int64_t begin, int64_t end, int) {
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
