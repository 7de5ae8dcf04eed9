// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/cpu_experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/runtime/rows.h"
#include "kernels/math/exact_math.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLeastSum = 1e-20f;  // keeps weights that are all 0 from becoming NaN

// Replaces what is no number, which nothing would be larger than.
void ReplaceNan(float* scores, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(scores[i])) scores[i] = kLowest;
  }
}

// The k experts of the largest scores, ascending. There is no NaN.
void PickLargest(const float* scores, int64_t num_experts, int64_t k, int32_t* experts) {
  // Insertion into the k best so far; an equal one that comes later stays behind.
  int64_t num = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (num == k && !(scores[e] > scores[experts[k - 1]])) continue;
    int64_t at = num < k ? num++ : k - 1;
    for (; at > 0 && scores[e] > scores[experts[at - 1]]; --at) experts[at] = experts[at - 1];
    experts[at] = static_cast<int32_t>(e);
  }
  std::sort(experts, experts + k);
}

// The weights of k experts that the logits of a softmax chose.
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

// Turns logits into scores.
void Score(float* logits, int64_t num_experts, Routing::Scores kind) {
  if (kind == Routing::Scores::kSigmoid) {
    for (int64_t e = 0; e < num_experts; ++e) logits[e] = 1.0f / (1.0f + ExactExp(-logits[e]));
    return;
  }
  const float max = *std::max_element(logits, logits + num_experts);
  float sum = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    logits[e] = ExactExp(logits[e] - max);
    sum += logits[e];
  }
  for (int64_t e = 0; e < num_experts; ++e) logits[e] /= sum;
}

// Takes the experts of all groups but the first top_groups out of the choice. `groups` has room for
// a number of each group.
void KeepGroups(float* choice, int64_t num_experts, const Routing& routing, float* groups) {
  const int num_groups = routing.num_groups;
  const int64_t size = num_experts / num_groups;
  for (int g = 0; g < num_groups; ++g) {
    float first = kLowest, second = kLowest;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(first, choice[e]));
      first = std::max(first, choice[e]);
    }
    groups[g] = routing.by_top_two && size > 1 ? first + second : first;
  }
  for (int g = 0; g < num_groups; ++g) {
    int before = 0;
    for (int other = 0; other < num_groups; ++other) {
      before += groups[other] > groups[g] || (groups[other] == groups[g] && other < g) ? 1 : 0;
    }
    if (before >= routing.top_groups) std::fill_n(choice + g * size, size, kLowest);
  }
}

// Picks a row's experts by their scores and weighs them. `logits` becomes scores; `choice` has room
// for as many, `groups` for a number of each group.
void PickByScores(float* logits, int64_t num_experts, int64_t k, const Routing& routing,
                  float* choice, float* groups, int32_t* experts, float* weights) {
  std::copy_n(logits, num_experts, choice);
  Score(logits, num_experts, routing.scores);
  const auto* const correction = static_cast<const float*>(routing.correction.data);
  for (int64_t e = 0; e < num_experts && !routing.chooses_by_logits; ++e) {
    choice[e] = routing.correction.size() > 0 ? logits[e] + correction[e] : logits[e];
  }
  ReplaceNan(choice, num_experts);
  if (routing.num_groups > 1) KeepGroups(choice, num_experts, routing, groups);
  PickLargest(choice, num_experts, k, experts);
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    weights[i] = logits[experts[i]];
    sum += weights[i];
  }
  if (!routing.normalise) return;
  for (int64_t i = 0; i < k; ++i) weights[i] /= sum + kLeastSum;
}

int32_t* Ints(const Tensor& t) { return static_cast<int32_t*>(t.data); }

bool IsPacked(const ExpertMatrices& experts) {
  return experts.weights[0].format != WeightFormat::kDense;
}

// The bias of one expert, or none.
Tensor BiasOf(const Tensor& biases, int64_t expert) {
  return biases.size() == 0 ? Tensor() : RowsOf(biases, expert, 1);
}

}  // namespace

void CpuExperts::DoRouteExperts(const ExpertRoutes& routes, Tensor logits, const Routing& routing) {
  const int64_t rows = logits.rows(), num_experts = logits.cols();
  const int64_t k = routes.weights.cols();
  // First `entries` holds the experts themselves.
  int32_t* const entries = Ints(routes.entries);
  const bool by_logits = routing.scores == Routing::Scores::kSoftmax &&
                         routing.correction.size() == 0 && routing.num_groups == 1;
  context_.ForRanges(rows, 16 * num_experts, [&](int64_t begin, int64_t end, int thread) {
    float* row = context_.Scratch(thread, 3 * num_experts);
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(row, At(logits, r * num_experts), num_experts * sizeof(float));
      ReplaceNan(row, num_experts);
      auto* const weights = reinterpret_cast<float*>(At(routes.weights, r * k));
      if (by_logits) {
        PickLargest(row, num_experts, k, entries + r * k);
        Weigh(row, num_experts, entries + r * k, k, routing.normalise, weights);
      } else {
        PickByScores(row, num_experts, k, routing, row + num_experts, row + 2 * num_experts,
                     entries + r * k, weights);
      }
      for (int64_t i = 0; i < k; ++i) weights[i] *= routing.factor;
      if (routing.expert_factors.size() == 0) continue;
      const auto* const factors = static_cast<const float*>(routing.expert_factors.data);
      for (int64_t i = 0; i < k; ++i) weights[i] *= factors[entries[r * k + i]];
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

void CpuExperts::DoWeighInputs(Tensor out, Tensor x, const ExpertRoutes& routes) {
  const int64_t cols = x.cols(), k = routes.weights.cols();
  const auto* const weights = static_cast<const float*>(routes.weights.data);
  context_.ForRanges(x.rows(), k * cols, [&](int64_t begin, int64_t end, int thread) {
    float* const buffer = context_.Scratch(thread, 2 * cols);
    for (int64_t r = begin; r < end; ++r) {
      const float* const from = Read(kernels_, x, r * cols, cols, buffer);
      for (int64_t i = r * k; i < (r + 1) * k; ++i) {
        const int64_t at = Ints(routes.entries)[i] * cols;
        float* const to = Begin(out, at, buffer + cols);
        for (int64_t c = 0; c < cols; ++c) to[c] = from[c] * weights[i];
        Finish(kernels_, out, at, cols, to);
      }
    }
  });
}

void CpuExperts::DoExpertMatMul(Tensor out, Tensor x, const ExpertMatrices& experts,
                                const ExpertRoutes& routes, bool by_entry) {
  const int64_t whole[] = {0, x.cols()};
  if (IsPacked(experts)) {
    MultiplyPacked(out, x, experts, routes, whole, by_entry);
  } else {
    MultiplyDense(out, x, experts, routes, whole, by_entry);
  }
}

void CpuExperts::DoGatedExpertMatMul(Tensor gate, Tensor up, Tensor x, const ExpertMatrices& gates,
                                     const ExpertMatrices& ups, const ExpertRoutes& routes,
                                     GateFunction function) {
  if (!IsPacked(gates) || !IsAlike(gates.weights[0], ups.weights[0])) {
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

void CpuExperts::MultiplyDense(Tensor out, Tensor x, const ExpertMatrices& experts,
                               const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                               bool by_entry) {
  for (size_t e = 0; e < experts.weights.size(); ++e) {
    const int64_t begin = Ints(routes.expert_begin)[e];
    const int64_t n = Ints(routes.expert_begin)[e + 1] - begin;
    if (n == 0) continue;
    matmul_.Multiply({RowsOf(out, begin, n), experts.weights[e], BiasOf(experts.bias, e)},
                     by_entry ? RowsOf(x, begin, n) : x, split_begin,
                     by_entry ? nullptr : Ints(routes.rows) + begin);
  }
}

void CpuExperts::MultiplyPacked(Tensor out, Tensor x, const ExpertMatrices& experts,
                                const ExpertRoutes& routes, std::span<const int64_t> split_begin,
                                bool by_entry, GateLoop gate, const ExpertMatrices& ups) {
  CheckComputes(x.dtype);
  CheckComputes(out.dtype);
  products_.clear();
  for (size_t e = 0; e < experts.weights.size(); ++e) {
    const int64_t begin = Ints(routes.expert_begin)[e];
    const int64_t n = Ints(routes.expert_begin)[e + 1] - begin;
    if (n == 0) continue;
    PanelProduct& product = products_.emplace_back();
    product = {.out = RowsOf(out, begin, n),
               .w = experts.weights[e],
               .bias = BiasOf(experts.bias, e),
               .x_row = begin,
               .gate = gate};
    if (gate == nullptr) continue;
    product.up = ups.weights[e];
    product.up_bias = BiasOf(ups.bias, e);
  }
  matmul_.panels().Run(products_, x, by_entry ? nullptr : Ints(routes.rows), out.rows(),
                       split_begin);
}

void CpuExperts::DoCombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes,
                                  const ExpertAddends& addends) {
  const int64_t cols = out.cols(), k = routes.weights.cols();
  const auto* const weights = static_cast<const float*>(routes.weights.data);
  const int32_t* const expert_begin = Ints(routes.expert_begin);
  const int32_t* const expert_end = expert_begin + routes.expert_begin.size();
  context_.ForRanges(out.rows(), k * cols, [&](int64_t begin, int64_t end, int thread) {
    float* const buffer = context_.Scratch(thread, cols);
    for (int64_t r = begin; r < end; ++r) {
      float* row = reinterpret_cast<float*>(At(out, r * cols));
      std::fill_n(row, cols, 0.0f);
      for (int64_t i = r * k; i < (r + 1) * k; ++i) {
        const int64_t entry = Ints(routes.entries)[i];
        const auto* term = reinterpret_cast<const float*>(At(x, entry * cols));
        if (addends.bias.size() > 0) {
          const auto* const after = std::upper_bound(expert_begin, expert_end, entry);
          const int64_t expert = after - expert_begin - 1;
          kernels_.add(buffer, term,
                       reinterpret_cast<const float*>(At(addends.bias, expert * cols)), cols);
          term = buffer;
        }
        kernels_.add_scaled(row, term, weights[i], cols);
      }
      if (addends.shared.size() == 0) continue;
      float factor = 1;
      if (addends.shared_gate.size() > 0) {
        factor = 1.0f / (1.0f + ExactExp(-static_cast<const float*>(addends.shared_gate.data)[r]));
      }
      kernels_.add_scaled(row, reinterpret_cast<const float*>(At(addends.shared, r * cols)), factor,
                          cols);
    }
  });
}

}  // namespace continuo::kernels::cpu
