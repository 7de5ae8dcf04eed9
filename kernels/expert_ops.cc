// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_ops.h"

#include "kernels/check_tensor.h"
#include "services/base/check.h"

namespace continuo::kernels {
namespace {

void CheckBiases(const Tensor& bias, int64_t num_experts, int64_t columns) {
  CONTINUO_CHECK(bias.size() == 0 || (bias.dtype == DType::kF32 && bias.rows() == num_experts &&
                                      bias.cols() == columns));
}

}  // namespace

void ExpertOps::CheckExperts(const Tensor& out, const Tensor& x, const ExpertMatrices& matrices,
                             const ExpertRoutes& routes, bool by_entry) const {
  const std::span<const Weight> experts = matrices.weights;
  CheckBiases(matrices.bias, static_cast<int64_t>(experts.size()), out.cols());
  const int64_t num_entries = routes.rows.size();
  CONTINUO_CHECK(IsActivation(out.dtype) && IsActivation(x.dtype) && !experts.empty());
  CONTINUO_CHECK(routes.expert_begin.size() == static_cast<int64_t>(experts.size()) + 1);
  CONTINUO_CHECK(out.rows() == num_entries);
  CONTINUO_CHECK(x.rows() == (by_entry ? num_entries : routes.weights.rows()));
  for (const Weight& expert : experts) {
    CONTINUO_CHECK(IsAlike(expert, experts[0]));
    CONTINUO_CHECK(expert.data.rows() == out.cols() && expert.data.cols() == x.cols());
  }
  CONTINUO_CHECK(routes.host_expert_begin.size() == experts.size() + 1 ||
                 !NeedsHostRoutes(x.dtype, experts, num_entries));
}

void ExpertOps::RouteExperts(const ExpertRoutes& routes, Tensor logits, const Routing& routing) {
  const int64_t rows = logits.rows(), num_experts = logits.cols(), k = routes.weights.cols();
  CONTINUO_CHECK(logits.dtype == DType::kF32 && routes.weights.dtype == DType::kF32);
  CONTINUO_CHECK(routes.entries.dtype == DType::kI32 && routes.rows.dtype == DType::kI32);
  CONTINUO_CHECK(routes.expert_begin.dtype == DType::kI32);
  CONTINUO_CHECK(k >= 1 && k <= num_experts && routes.weights.rows() == rows);
  CONTINUO_CHECK(routes.entries.size() == rows * k && routes.rows.size() == rows * k);
  CONTINUO_CHECK(routes.expert_begin.size() == num_experts + 1);
  const Tensor& correction = routing.correction;
  CONTINUO_CHECK(correction.size() == 0 ||
                 (correction.dtype == DType::kF32 && correction.size() == num_experts));
  const Tensor& factors = routing.expert_factors;
  CONTINUO_CHECK(factors.size() == 0 ||
                 (factors.dtype == DType::kF32 && factors.size() == num_experts));
  const int groups = routing.num_groups;
  CONTINUO_CHECK(groups >= 1 && num_experts % groups == 0);
  CONTINUO_CHECK(routing.top_groups >= 1 && routing.top_groups <= groups);
  CONTINUO_CHECK(num_experts / groups * routing.top_groups >= k);
  CONTINUO_CHECK(!routing.chooses_by_logits || (routing.scores == Routing::Scores::kSigmoid &&
                                                groups == 1 && correction.size() == 0));
  DoRouteExperts(routes, logits, routing);
}

void ExpertOps::WeighInputs(Tensor out, Tensor x, const ExpertRoutes& routes) {
  CONTINUO_CHECK(IsActivation(out.dtype) && out.dtype == x.dtype && out.cols() == x.cols());
  CONTINUO_CHECK(x.rows() == routes.weights.rows() && out.rows() == routes.rows.size());
  if (out.size() > 0) DoWeighInputs(out, x, routes);
}

void ExpertOps::ExpertMatMul(Tensor out, Tensor x, const ExpertMatrices& experts,
                             const ExpertRoutes& routes, bool by_entry) {
  CheckExperts(out, x, experts, routes, by_entry);
  if (out.size() > 0) DoExpertMatMul(out, x, experts, routes, by_entry);
}

void ExpertOps::GatedExpertMatMul(Tensor gate, Tensor up, Tensor x, const ExpertMatrices& gates,
                                  const ExpertMatrices& ups, const ExpertRoutes& routes,
                                  GateFunction function) {
  CheckExperts(gate, x, gates, routes, /*by_entry=*/false);
  CheckExperts(up, x, ups, routes, /*by_entry=*/false);
  CONTINUO_CHECK(up.dtype == gate.dtype && up.size() == gate.size());
  if (gate.size() > 0) DoGatedExpertMatMul(gate, up, x, gates, ups, routes, function);
}

void ExpertOps::DoGatedExpertMatMul(Tensor gate, Tensor up, Tensor x, const ExpertMatrices& gates,
                                    const ExpertMatrices& ups, const ExpertRoutes& routes,
                                    GateFunction function) {
  DoExpertMatMul(gate, x, gates, routes, /*by_entry=*/false);
  DoExpertMatMul(up, x, ups, routes, /*by_entry=*/false);
  rows_.GateMul(function, gate, gate, up);
}

void ExpertOps::ExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                                   const ExpertRoutes& routes,
                                   std::span<const int64_t> split_begin) {
  CONTINUO_CHECK(out.dtype == DType::kF32);
  CheckExperts(out, x, experts, routes, /*by_entry=*/true);
  CheckSplits(split_begin, x.cols());
  if (out.size() > 0) DoExpertMatMulSplitK(out, x, experts, routes, split_begin);
}

void ExpertOps::CombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes,
                               const ExpertAddends& addends) {
  CONTINUO_CHECK(out.dtype == DType::kF32 && x.dtype == DType::kF32 && x.cols() == out.cols());
  CONTINUO_CHECK(out.rows() == routes.weights.rows() && x.rows() == routes.rows.size());
  CheckBiases(addends.bias, routes.expert_begin.size() - 1, out.cols());
  const Tensor &shared = addends.shared, &gate = addends.shared_gate;
  CONTINUO_CHECK(
      shared.size() == 0 ||
      (shared.dtype == DType::kF32 && shared.rows() == out.rows() && shared.cols() == out.cols()));
  CONTINUO_CHECK(gate.size() == 0 ||
                 (gate.dtype == DType::kF32 && gate.size() == out.rows() && shared.size() > 0));
  if (out.size() > 0) DoCombineExperts(out, x, routes, addends);
}

}  // namespace continuo::kernels
