// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/state_layers.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::model {
namespace {

// The epsilon beside the sum of the squares of a head's keys or queries.
constexpr float kLengthEps = 1e-6f;

}  // namespace

absl::Status StateLayers::Prepare(const Activations& all) {
  const auto keys = static_cast<size_t>(config_.states.key_dim);
  if (config_.states.kind != StateKind::kDelta) return absl::OkStatus();
  // An RmsNorm with these gains divides by the root of a sum in place of a mean; queries are
  // divided by the root of their number of elements besides.
  const double root = std::sqrt(static_cast<double>(keys));
  const std::vector<float> q(keys, static_cast<float>(1 / (root * root)));
  const std::vector<float> k(keys, static_cast<float>(1 / root));
  device_.CopyIn(all.states.q_length_gain, q.data());
  device_.CopyIn(all.states.k_length_gain, k.data());
  return device_.Synchronize();
}

kernels::Tensor StateLayers::Mix(const StateWeights& w, const StateCache::Layer& states,
                                 const kernels::MatMulInput& input, const Activations& buffers,
                                 const kernels::StatePlaces& places) {
  switch (config_.states.kind) {
    case StateKind::kNone:
      break;
    case StateKind::kConv:
      return MixConv(w, states, input, buffers.states, places);
    case StateKind::kDelta:
      return MixDelta(w, states, input, buffers.states, places);
    case StateKind::kSum:
      return MixSum(w, states, input, buffers.states, places);
  }
  CONTINUO_CHECK(!"a layer without a kind");
}

kernels::Tensor StateLayers::MixConv(const StateWeights& w, const StateCache::Layer& states,
                                     const kernels::MatMulInput& input, const StateBuffers& b,
                                     const kernels::StatePlaces& places) {
  ops_.matmul.MatMuls(input,
                      std::array<kernels::Product, 3>{
                          {{b.q, w.q, w.q_bias}, {b.z, w.z, w.z_bias}, {b.v, w.v, w.v_bias}}});
  ops_.rows.GateMul(kernels::GateFunction::kProduct, b.q, b.q, b.v);
  ops_.states.CausalConv(b.v, b.q, {w.q_taps, w.taps_bias}, /*silu=*/false, states.q_rows, places);
  ops_.rows.GateMul(kernels::GateFunction::kProduct, b.z, b.z, b.v);
  return b.z;
}

kernels::Tensor StateLayers::MixDelta(const StateWeights& w, const StateCache::Layer& states,
                                      const kernels::MatMulInput& input, const StateBuffers& b,
                                      const kernels::StatePlaces& places) {
  const kernels::Product products[] = {{b.q, w.q, {}},       {b.k, w.k, {}},
                                       {b.v, w.v, {}},       {b.z, w.z, {}},
                                       {b.step, w.step, {}}, {b.gate, w.strength, {}}};
  ops_.matmul.MatMuls(input, products);
  ops_.states.CausalConv(b.mixed_q, b.q, {.taps = w.q_taps}, /*silu=*/true, states.q_rows, places);
  ops_.states.CausalConv(b.mixed_k, b.k, {.taps = w.k_taps}, /*silu=*/true, states.k_rows, places);
  ops_.states.CausalConv(b.mixed_v, b.v, {.taps = w.v_taps}, /*silu=*/true, states.v_rows, places);
  const float eps = kLengthEps / static_cast<float>(config_.states.key_dim);
  ops_.rows.RmsNorm(b.mixed_q, b.mixed_q, b.q_length_gain, eps);
  ops_.rows.RmsNorm(b.mixed_k, b.mixed_k, b.k_length_gain, eps);
  ops_.states.StateDecay(b.decay, {}, b.step, w.rate, w.step_bias, 0,
                         std::numeric_limits<float>::infinity());
  ops_.states.Sigmoid(b.strength, b.gate);
  kernels::StateUpdate update;
  update.q = b.mixed_q;
  update.k = b.mixed_k;
  update.v = b.mixed_v;
  update.decay = b.decay;
  update.strength = b.strength;
  update.num_heads = static_cast<int>(shard_.state_heads.size());
  update.num_key_heads = static_cast<int>(shard_.state_key_heads.size());
  ops_.states.UpdateStates(b.v, update, states.matrix, places);
  ops_.rows.RmsNorm(b.v, b.v, w.gain, config_.norm_eps);
  ops_.rows.GateMul(kernels::GateFunction::kSilu, b.z, b.z, b.v);
  return b.z;
}

kernels::Tensor StateLayers::MixSum(const StateWeights& w, const StateCache::Layer& states,
                                    const kernels::MatMulInput& input, const StateBuffers& b,
                                    const kernels::StatePlaces& places) {
  const StateConfig& config = config_.states;
  const kernels::Product products[] = {
      {b.z, w.z, {}}, {b.v, w.v, {}}, {b.k, w.k, {}}, {b.q, w.q, {}}, {b.step, w.step, {}}};
  ops_.matmul.MatMuls(input, products);
  ops_.states.CausalConv(b.mixed_v, b.v, {w.v_taps, w.v_taps_bias}, /*silu=*/true, states.v_rows,
                         places);
  ops_.states.CausalConv(b.mixed_k, b.k, {w.k_taps, w.k_taps_bias}, /*silu=*/true, states.k_rows,
                         places);
  ops_.states.CausalConv(b.mixed_q, b.q, {w.q_taps, w.taps_bias}, /*silu=*/true, states.q_rows,
                         places);
  ops_.states.StateDecay(b.decay, b.strength, b.step, w.rate, w.step_bias, config.least_step,
                         config.most_step);
  kernels::StateUpdate update;
  update.rule = kernels::StateUpdate::Rule::kSum;
  update.q = b.mixed_q;
  update.k = b.mixed_k;
  update.v = b.mixed_v;
  update.decay = b.decay;
  update.strength = b.strength;
  update.skip = w.skip;
  update.num_heads = static_cast<int>(shard_.state_heads.size());
  update.num_key_heads = static_cast<int>(shard_.state_key_heads.size());
  ops_.states.UpdateStates(b.v, update, states.matrix, places);
  ops_.rows.GateMul(kernels::GateFunction::kSilu, b.z, b.z, b.v);
  // A head's squares come from one rank, and are added in the order of heads, so every number of
  // ranks gives the same sum.
  ops_.rows.SumSquares(b.part, b.z, config.value_dim, 0);
  if (shard_.size > 1) comm_.AllGather(b.squares, b.part, shard_.state_head_begin);
  ops_.rows.RmsNormBySquares(b.z, b.squares, w.gain, int64_t{config.num_heads} * config.value_dim,
                             config_.norm_eps, {config.num_key_heads, shard_.state_heads.begin});
  return b.z;
}

}  // namespace continuo::model
