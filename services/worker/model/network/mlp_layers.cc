// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/mlp_layers.h"

#include "kernels/tensor_rows.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::model {

kernels::GateFunction GateFunctionOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return kernels::GateFunction::kSilu;
    case Activation::kGeluTanh:
      return kernels::GateFunction::kGelu;
    case Activation::kClampedSwiglu:
      return kernels::GateFunction::kClampedSwiglu;
    case Activation::kReluSquared:
      return kernels::GateFunction::kReluSquared;
    case Activation::kGeluErf:
      return kernels::GateFunction::kGeluErf;
  }
  CONTINUO_CHECK(!"an activation without a function");
}

namespace {

kernels::Routing RoutingOf(const ExpertsConfig& experts) {
  return {.scores = experts.by_sigmoid ? kernels::Routing::Scores::kSigmoid
                                       : kernels::Routing::Scores::kSoftmax,
          .normalise = experts.normalise,
          .chooses_by_logits = experts.chooses_by_logits,
          .num_groups = experts.num_groups,
          .top_groups = experts.top_groups,
          .by_top_two = experts.by_top_two,
          .factor = static_cast<float>(experts.factor)};
}

}  // namespace

MlpLayers::MlpLayers(const ModelConfig& config, const Shard& shard, kernels::Device& device,
                     kernels::Communicator& communicator, AdapterLayers& adapters)
    : config_(config),
      shard_(shard),
      device_(device),
      ops_(device.ops()),
      comm_(communicator),
      adapters_(adapters),
      gate_function_(GateFunctionOf(config.activation)) {
  const ExpertsConfig& experts = config.experts;
  CONTINUO_CHECK(experts.latent_size == 0 || (!experts.biases && !experts.shared_gate));
  CONTINUO_CHECK(!experts.weighs_inputs || (experts.latent_size == 0 && config.gated));
}

absl::Status MlpLayers::Prepare(const Activations& all) {
  host_expert_begin_.resize(static_cast<size_t>(config_.experts.num_experts) + 1);
  if (all.latent_zeros.size() > 0) {
    const std::vector<uint8_t> zeros(all.latent_zeros.bytes());
    device_.CopyIn(all.latent_zeros, zeros.data());
    RETURN_IF_ERROR(device_.Synchronize());
  }
  if (all.unit_weights.size() == 0) return absl::OkStatus();
  const std::vector<float> ones(static_cast<size_t>(all.unit_weights.size()), 1.0f);
  device_.CopyIn(all.unit_weights, ones.data());
  return device_.Synchronize();
}

void MlpLayers::Dense(const LayerWeights& w, int layer, const kernels::MatMulInput& input,
                      const Activations& b) {
  const bool is_wide = config_.has_wide_mlp(layer);
  kernels::Tensor gate = b.gate, up = b.up;
  for (kernels::Tensor* const part : {&gate, &up}) {
    if (part->size() > 0) part->shape[1] = (is_wide ? shard_.wide_inner : shard_.inner).size();
  }
  const kernels::MatMulInput inner =
      AdaptedInner(layer, input, {gate, w.gate, w.gate_bias}, {up, w.up, w.up_bias}, b);
  const std::vector<int64_t>& splits = shard_.inner_splits_of(is_wide);
  ops_.matmul.MatMulSplitK(b.sum, inner, w.down, splits);
  comm_.AllReduceSum(b.sum);
  adapters_.AddSplitK(layer, AdaptedMatrix::kDown, inner.x, splits, b.sum);
}

void MlpLayers::SideBySide(const LayerWeights& w, int layer, const kernels::MatMulInput& input,
                           const Activations& b) {
  const float eps = config_.norm_eps;
  Activations dense = b, experts = b;
  dense.sum = b.dense_sum;
  experts.h = b.expert_h;
  Dense(w, layer, input, dense);
  ops_.rows.RmsNorm(b.dense_sum, b.dense_sum, w.dense_output_gain, eps);
  ops_.rows.RmsNorm(b.router_h, b.x, w.experts.router_gain, eps);
  ops_.rows.RmsNorm(b.expert_h, b.x, w.expert_gain, eps);
  Experts(w.experts, b.expert_h, experts, b.router_h);
  ops_.rows.RmsNorm(b.sum, b.sum, w.expert_output_gain, eps);
  ops_.rows.AddSum(b.sum, b.dense_sum, kernels::Tensor{});
}

kernels::MatMulInput MlpLayers::Inner(const kernels::MatMulInput& input,
                                      const kernels::Product& gate, const kernels::Product& up,
                                      const Activations& b) {
  if (config_.gated) {
    return ops_.matmul.GatedMatMul(input, gate, up, gate_function_, b.prepared);
  }
  ops_.matmul.ActivatedMatMul(input, gate, gate_function_);
  return gate.out;
}

kernels::MatMulInput MlpLayers::AdaptedInner(int layer, const kernels::MatMulInput& input,
                                             const kernels::Product& gate,
                                             const kernels::Product& up, const Activations& b) {
  if (!adapters_.Changes(layer, AdapterInput::kMlp)) return Inner(input, gate, up, b);
  // Rows without an adapter get the bits of the joined op.
  const kernels::Product products[] = {gate, up};
  ops_.matmul.MatMuls(input, std::span(products).first(config_.gated ? 2 : 1));
  adapters_.Add(layer, AdapterInput::kMlp, input.x,
                {{AdaptedMatrix::kGate, gate.out}, {AdaptedMatrix::kUp, up.out}});
  ops_.rows.GateMul(gate_function_, gate.out, gate.out, config_.gated ? up.out : kernels::Tensor{});
  return gate.out;
}

void MlpLayers::Experts(const ExpertsWeights& w, const kernels::MatMulInput& input,
                        const Activations& b, kernels::Tensor router_input) {
  kernels::ExpertOps& experts = ops_.experts;
  ops_.matmul.MatMul(b.router_logits, router_input, w.router, w.router_bias);
  kernels::ExpertRoutes routes = b.routes;
  kernels::Routing routing = RoutingOf(config_.experts);
  routing.correction = w.correction;
  routing.expert_factors = w.factors;
  experts.RouteExperts(routes, b.router_logits, routing);
  const int64_t entries = routes.rows.size();
  if (experts.NeedsHostRoutes(b.h.dtype, w.gate, entries)) {
    device_.CopyOut(host_expert_begin_.data(), routes.expert_begin);
    // After an error the ops do nothing, and the end of the step returns it.
    (void)device_.Synchronize();
    routes.host_expert_begin = host_expert_begin_;
  }
  const bool is_latent = config_.experts.latent_size > 0;
  if (is_latent) ops_.matmul.MatMul(b.latent_in, b.h, w.latent_in, kernels::Tensor{});
  const kernels::Tensor x = is_latent ? b.latent_in : b.h;
  if (config_.experts.weighs_inputs) {
    experts.WeighInputs(b.expert_in, x, routes);
    experts.ExpertMatMul(b.expert_gate, b.expert_in, {w.gate, w.gate_bias}, routes,
                         /*by_entry=*/true);
    experts.ExpertMatMul(b.expert_up, b.expert_in, {w.up, w.up_bias}, routes, /*by_entry=*/true);
    ops_.rows.GateMul(gate_function_, b.expert_gate, b.expert_gate, b.expert_up);
    routes.weights = b.unit_weights;  // results are added up as they are
  } else if (config_.gated) {
    experts.GatedExpertMatMul(b.expert_gate, b.expert_up, x, {w.gate, w.gate_bias},
                              {w.up, w.up_bias}, routes, gate_function_);
  } else {
    experts.ExpertMatMul(b.expert_gate, x, {w.gate, w.gate_bias}, routes, /*by_entry=*/false);
    Activate(b.expert_gate);
  }
  const kernels::Tensor sums = RowsOf(b.expert_sum, 0, entries);
  experts.ExpertMatMulSplitK(sums, b.expert_gate, w.down, routes, shard_.expert_splits);
  kernels::Tensor shared;
  if (b.has_shared) {
    shared = is_latent ? b.shared_sum : RowsOf(b.expert_sum, entries, b.h.rows());
    SharedExpert(w, input, b, shared);
  }
  comm_.AllReduceSum(b.expert_sum);
  if (is_latent) {
    CombineLatent(w, sums, routes, b);
    return;
  }
  kernels::ExpertAddends addends = {.bias = w.down_bias, .shared = shared};
  if (b.has_shared && config_.experts.shared_gate) addends.shared_gate = b.shared_switch;
  experts.CombineExperts(b.sum, sums, routes, addends);
}

void MlpLayers::CombineLatent(const ExpertsWeights& w, kernels::Tensor sums,
                              const kernels::ExpertRoutes& routes, const Activations& b) {
  const int width = config_.experts.latent_size;
  ops_.experts.CombineExperts(b.latent_sum, sums, routes, {});
  // The sum takes the activations' type on the way.
  ops_.rows.CopyHeads(b.latent_out, b.latent_zeros,
                      {.num_heads = 1, .count = width, .out_stride = width, .x_stride = width});
  ops_.rows.AddSum(b.latent_out, b.latent_sum, kernels::Tensor{});
  ops_.matmul.MatMul(b.sum, b.latent_out, w.latent_out, kernels::Tensor{});
  if (!b.has_shared) return;
  comm_.AllReduceSum(b.shared_sum);
  ops_.rows.AddSum(b.sum, b.shared_sum, kernels::Tensor{});
}

void MlpLayers::SharedExpert(const ExpertsWeights& w, const kernels::MatMulInput& input,
                             const Activations& b, kernels::Tensor out) {
  if (config_.experts.shared_gate) {
    ops_.matmul.MatMul(b.shared_switch, b.h, w.shared_switch, kernels::Tensor{});
  }
  const kernels::MatMulInput inner =
      Inner(input, {b.shared_gate, w.shared_gate, {}}, {b.shared_up, w.shared_up, {}}, b);
  ops_.matmul.MatMulSplitK(out, inner, w.shared_down, shard_.shared_splits);
}

}  // namespace continuo::model
