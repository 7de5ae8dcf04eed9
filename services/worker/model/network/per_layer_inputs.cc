// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/per_layer_inputs.h"

#include <cmath>

#include "services/worker/model/network/mlp_layers.h"

namespace continuo::model {

PerLayerInputs::PerLayerInputs(const ModelConfig& config, const Shard& shard,
                               const ModelWeights& weights, const kernels::Ops& ops,
                               kernels::Communicator& communicator)
    : config_(config),
      shard_(shard),
      weights_(weights),
      ops_(ops),
      comm_(communicator),
      gate_function_(GateFunctionOf(config.activation)) {}

void PerLayerInputs::Make(kernels::Tensor token_ids, const Activations& b) {
  // The projection is multiplied by 1 / √hidden before its norm, whose epsilon is multiplied
  // instead.
  const auto eps = static_cast<float>(double{config_.norm_eps} * config_.hidden_size);
  ops_.matmul.MatMul(b.per_layer, b.x, weights_.per_layer_in, kernels::Tensor{});
  ops_.rows.RmsNorm(b.per_layer, b.per_layer, weights_.per_layer_in_gain, eps);
  // Both addends are multiplied by the root of a half, the other one by its norm's gain.
  const auto scale = static_cast<float>(std::sqrt(config_.per_layer_size / 2.0));
  ops_.rows.Embed(b.per_layer_sum, weights_.per_layer_embedding, token_ids,
                  static_cast<int>(shard_.vocab.begin), scale);
  comm_.AllReduceSum(b.per_layer_sum);
  ops_.rows.AddSum(b.per_layer, b.per_layer_sum, kernels::Tensor{});
}

void PerLayerInputs::Take(int layer, const Activations& b) {
  const int size = config_.per_layer_size;
  taken_ = b.per_layer_taken;
  ops_.rows.CopyHeads(
      taken_, b.per_layer,
      {.num_heads = 1, .count = size, .out_stride = size, .x_begin = int64_t{layer} * size});
}

void PerLayerInputs::Keep(kernels::Tensor rows, const Activations& b) {
  ops_.rows.GatherRows(b.per_layer_kept, taken_, rows);
  taken_ = b.per_layer_kept;
}

void PerLayerInputs::Add(const LayerWeights& w, const Activations& b) {
  ops_.matmul.MatMul(b.per_layer_gate, b.x, w.per_layer_gate, kernels::Tensor{});
  ops_.rows.GateMul(gate_function_, b.per_layer_gate, b.per_layer_gate, taken_);
  ops_.matmul.MatMul(b.sum, b.per_layer_gate, w.per_layer_out, kernels::Tensor{});
  ops_.rows.RmsNorm(b.sum, b.sum, w.per_layer_gain, config_.norm_eps);
  ops_.rows.AddSum(b.x, b.sum, kernels::Tensor{});
}

}  // namespace continuo::model
