// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/attention_layers.h"

#include <span>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/network/rope.h"

namespace continuo::model {
namespace {

// The epsilon of the norms of latent vectors, whatever that of the other norms is.
constexpr float kLatentEps = 1e-6f;

}  // namespace

AttentionLayers::AttentionLayers(const ModelDependencies& parts, AdapterLayers& adapters)
    : config_(parts.config),
      shard_(parts.shard),
      device_(parts.device),
      ops_(parts.device.ops()),
      comm_(parts.communicator),
      cache_(parts.cache),
      adapters_(adapters) {
  params_[0] = ParamsOf(config_.num_kv_heads, config_.head_dim, shard_.kv_heads);
  if (const OtherHeads& other = config_.other_heads; !other.layers.empty()) {
    params_[1] = ParamsOf(other.num_kv_heads, other.head_dim, shard_.other_kv_heads);
  }
  int next = 0;
  for (int i = 0; i < config_.num_layers; ++i) {
    if (!config_.has_own_kv(i)) {
      places_.push_back(places_[static_cast<size_t>(config_.kv_layers[static_cast<size_t>(i)])]);
    } else {
      places_.push_back(config_.has_mixer(i) && !config_.has_state(i) ? next++ : -1);
    }
  }
  if (config_.reads_mtp) places_.push_back(next);
}

absl::Status AttentionLayers::Prepare(const Activations& all) {
  if (config_.value_dim() < config_.head_dim) {
    // What fills up the heads' values stays 0.
    const std::vector<uint8_t> zeros(all.v.bytes());
    device_.CopyIn(all.v, zeros.data());
    RETURN_IF_ERROR(device_.Synchronize());
  }
  if (all.ones.size() > 0) {
    const std::vector<float> ones(static_cast<size_t>(all.ones.size()), 1.0f);
    device_.CopyIn(all.ones, ones.data());
    RETURN_IF_ERROR(device_.Synchronize());
  }
  for (size_t i = 0; i < config_.ropes.size(); ++i) {
    const RopeConfig& rope = config_.ropes[i];
    const std::vector<float> frequencies =
        RopeFrequencies(rope, config_.rotary_dim_of(rope), config_.context_length);
    device_.CopyIn(all.frequencies[i], frequencies.data());
    RETURN_IF_ERROR(device_.Synchronize());
  }
  return absl::OkStatus();
}

void AttentionLayers::ComputeAngles(kernels::Tensor positions, const Activations& b) {
  for (size_t i = 0; i < config_.ropes.size(); ++i) {
    ops_.attention.RopeAngles(b.angles[i], positions, b.frequencies[i],
                              static_cast<float>(config_.ropes[i].attention_factor));
    if (!config_.grows(config_.ropes[i])) continue;
    ops_.attention.GrowAngles(b.query_angles[i], b.angles[i], positions,
                              {.growth = config_.query_growth,
                               .period = config_.query_growth_period,
                               .offset = config_.query_growth_offset});
  }
}

void AttentionLayers::WriteKeysAndValues(const LayerWeights& w, int layer,
                                         const kernels::MatMulInput& input, const DeviceStep& step,
                                         const Activations& b) {
  if (config_.is_latent()) return WriteLatent(w, layer, input, step, b);
  if (!config_.other_heads.layers.empty()) return WriteShaped(w, layer, input, step, b);
  const size_t rope = config_.layer_ropes[static_cast<size_t>(layer)];
  kernels::HeadRotation rotation = {
      .eps = config_.norm_eps, .angles = b.angles[rope], .head_dim = config_.head_dim};
  if (config_.qk_norm == QueryKeyNorm::kHeads) {
    rotation.q_gain = w.q_gain;
    rotation.k_gain = w.k_gain;
  }
  const kernels::PagedKv kv = Kv(layer, step);
  if (w.qkv.data.size() > 0) {
    const std::array<kernels::Product, 2> joined = {
        {{b.qkv, w.qkv, w.qkv_bias}, {b.output_gate, w.output_gate, {}}}};
    ops_.matmul.MatMuls(input, std::span(joined).first(config_.output_gate ? 2 : 1));
    const int64_t q_width = b.q.cols(), kv_width = (b.qkv.cols() - q_width) / 2;
    adapters_.Add(layer, AdapterInput::kAttention, input.x,
                  {{AdaptedMatrix::kQ, b.qkv},
                   {AdaptedMatrix::kK, b.qkv, q_width},
                   {AdaptedMatrix::kV, b.qkv, q_width + kv_width},
                   {AdaptedMatrix::kOutputGate, b.output_gate}});
    ops_.attention.RotateJoinedAndWriteKv(kv, b.q, b.qkv, step.kv_slots, rotation);
    return;
  }
  const std::array<kernels::Product, 4> products = {{{b.q, w.q, w.q_bias},
                                                     {b.k, w.k, w.k_bias},
                                                     {b.v, w.v, w.v_bias},
                                                     {b.output_gate, w.output_gate, {}}}};
  ops_.matmul.MatMuls(input, std::span(products).first(config_.output_gate ? 4 : 3));
  adapters_.Add(layer, AdapterInput::kAttention, input.x,
                {{AdaptedMatrix::kQ, b.q},
                 {AdaptedMatrix::kK, b.k},
                 {AdaptedMatrix::kV, b.v},
                 {AdaptedMatrix::kOutputGate, b.output_gate}});
  if (config_.encoder.is_encoder && config_.qk_norm == QueryKeyNorm::kNone &&
      !config_.has_rope(layer)) {
    ops_.attention.WriteKv(kv, b.k, b.v, step.kv_slots);
    return;
  }
  if (config_.has_plain_heads()) {
    ops_.attention.RotateAndWriteKv(kv, b.q, b.k, b.v, step.kv_slots, rotation);
    return;
  }
  const int dim = config_.head_dim;
  const bool is_normalised = config_.norms_all_heads || config_.has_rope(layer);
  const auto normalise = [&](QueryKeyNorm kind) {
    if (config_.qk_norm != kind || !is_normalised) return;
    const bool has_gains = config_.qk_gains;
    ops_.rows.RmsNorm(b.q, b.q, has_gains ? w.q_gain : b.ones, config_.norm_eps);
    ops_.rows.RmsNorm(b.k, b.k, has_gains ? w.k_gain : b.ones, config_.norm_eps);
  };
  if (config_.qk_norm == QueryKeyNorm::kWidth) NormaliseWidth(w, b);
  normalise(QueryKeyNorm::kHeads);
  ops_.attention.Rope(b.q, b.query_angles[rope], dim);
  ops_.attention.Rope(b.k, b.angles[rope], dim);
  normalise(QueryKeyNorm::kRotatedHeads);
  ops_.attention.WriteKv(kv, b.k, b.v, step.kv_slots);
}

void AttentionLayers::WriteShaped(const LayerWeights& w, int layer,
                                  const kernels::MatMulInput& input, const DeviceStep& step,
                                  const Activations& b) {
  const bool is_other = config_.has_other_heads(layer), has_own = config_.has_own_kv(layer);
  const bool copies = is_other && config_.other_heads.values_are_keys;
  const int dim = config_.head_dim_of(layer);
  const size_t rope = config_.layer_ropes[static_cast<size_t>(layer)];
  const std::array<kernels::Product, 3> products = {
      {{b.q, w.q, {}}, {b.k, w.k, {}}, {b.v, w.v, {}}}};
  ops_.matmul.MatMuls(input, std::span(products).first(!has_own ? 1 : copies ? 2 : 3));
  adapters_.Add(layer, AdapterInput::kAttention, input.x,
                {{AdaptedMatrix::kQ, b.q}, {AdaptedMatrix::kK, b.k}, {AdaptedMatrix::kV, b.v}});
  ops_.rows.RmsNorm(b.q, b.q, w.q_gain, config_.norm_eps);
  ops_.attention.Rope(b.q, b.query_angles[rope], dim);
  if (!has_own) return;
  if (copies) {
    ops_.rows.CopyHeads(
        b.v, b.k,
        {.num_heads = params_[1].num_kv_heads, .count = dim, .out_stride = dim, .x_stride = dim});
  }
  kernels::Tensor ones = b.ones;
  ones.shape[0] = dim;
  if (config_.value_norm) ops_.rows.RmsNorm(b.v, b.v, ones, config_.norm_eps);
  ops_.rows.RmsNorm(b.k, b.k, w.k_gain, config_.norm_eps);
  ops_.attention.Rope(b.k, b.angles[rope], dim);
  ops_.attention.WriteKv(Kv(layer, step), b.k, b.v, step.kv_slots);
}

void AttentionLayers::WriteLatent(const LayerWeights& w, int layer,
                                  const kernels::MatMulInput& input, const DeviceStep& step,
                                  const Activations& b) {
  const LatentConfig& latent = config_.latent;
  const size_t rope = config_.layer_ropes[static_cast<size_t>(layer)];
  const int heads = static_cast<int>(shard_.heads.size()), dim = config_.head_dim;
  const kernels::Product of_input[] = {{b.latent_kv, w.latent.kv, {}},
                                       {b.rotated_k, w.latent.rotated_k, {}},
                                       latent.q_rank > 0
                                           ? kernels::Product{b.latent_q, w.latent.q, {}}
                                           : kernels::Product{b.q, w.q, {}}};
  ops_.matmul.MatMuls(input, of_input);
  if (latent.q_rank > 0) {
    ops_.rows.RmsNorm(b.latent_q, b.latent_q, w.latent.q_gain, kLatentEps);
    ops_.matmul.MatMul(b.q, b.latent_q, w.q, {});
  }
  ops_.rows.RmsNorm(b.latent_kv, b.latent_kv, w.latent.kv_gain, kLatentEps);
  ops_.matmul.MatMuls(
      b.latent_kv, std::array<kernels::Product, 2>{{{b.plain_k, w.k, {}}, {b.short_v, w.v, {}}}});
  ops_.attention.Rope(b.q, b.query_angles[rope], dim);
  ops_.attention.Rope(b.rotated_k, b.angles[rope], latent.rotated_dim);
  ops_.rows.CopyHeads(b.k, b.rotated_k,
                      {.num_heads = heads, .count = latent.rotated_dim, .out_stride = dim});
  ops_.rows.CopyHeads(b.k, b.plain_k,
                      {.num_heads = heads,
                       .count = latent.plain_dim,
                       .out_stride = dim,
                       .out_begin = latent.rotated_dim,
                       .x_stride = latent.plain_dim});
  ops_.rows.CopyHeads(b.v, b.short_v,
                      {.num_heads = heads,
                       .count = latent.value_dim,
                       .out_stride = dim,
                       .x_stride = latent.value_dim});
  ops_.attention.WriteKv(Kv(layer, step), b.k, b.v, step.kv_slots);
}

void AttentionLayers::NormaliseWidth(const LayerWeights& w, const Activations& b) {
  const int dim = config_.head_dim;
  const auto rank = static_cast<size_t>(shard_.rank);
  const int64_t first_key = shard_.kv_head_begin[rank] - shard_.kv_heads.begin;
  ops_.rows.SumSquares(b.q_part, b.q, dim, 0);
  ops_.rows.SumSquares(b.k_part, b.k, dim, static_cast<int>(first_key));
  if (shard_.size > 1) {
    comm_.AllGather(b.q_squares, b.q_part, shard_.head_begin);
    comm_.AllGather(b.k_squares, b.k_part, shard_.kv_head_begin);
  }
  const float eps = config_.norm_eps;
  ops_.rows.RmsNormBySquares(b.q, b.q_squares, w.q_gain, int64_t{config_.num_heads} * dim, eps);
  ops_.rows.RmsNormBySquares(b.k, b.k_squares, w.k_gain, config_.kv_width(), eps);
}

kernels::PagedKv AttentionLayers::Kv(int layer, const DeviceStep& step) const {
  return cache_.Layer(places_[static_cast<size_t>(layer)], step.kv);
}

kernels::Tensor AttentionLayers::Attend(const LayerWeights& w, int layer, const DeviceStep& step,
                                        const Activations& b) {
  kernels::AttentionParams params = params_[config_.has_other_heads(layer) ? 1 : 0];
  params.window = config_.windows[static_cast<size_t>(layer)];
  params.chunk = config_.chunk(layer);
  params.sinks = w.sinks;
  ops_.attention.PagedAttention(b.a, b.q, Kv(layer, step), params);
  if (!config_.output_gate) return b.a;
  ops_.rows.GateMul(kernels::GateFunction::kSigmoid, b.output_gate, b.output_gate, b.a);
  return b.output_gate;
}

void AttentionLayers::SelectHeads(int layer, Activations& b) const {
  if (config_.other_heads.layers.empty()) return;
  const kernels::AttentionParams& params = params_[config_.has_other_heads(layer) ? 1 : 0];
  b.q.shape[1] = b.a.shape[1] = int64_t{params.num_heads} * params.head_dim;
  b.k.shape[1] = b.v.shape[1] = int64_t{params.num_kv_heads} * params.head_dim;
}

kernels::AttentionParams AttentionLayers::ParamsOf(int num_kv_heads, int head_dim,
                                                   const Range& kv_heads) const {
  kernels::AttentionParams params;
  params.num_heads = static_cast<int>(shard_.heads.size());
  params.num_kv_heads = static_cast<int>(kv_heads.size());
  params.head_dim = head_dim;
  params.heads_per_kv_head = config_.num_heads / num_kv_heads;
  params.first_head = static_cast<int>(shard_.heads.begin);
  params.first_kv_head = static_cast<int>(kv_heads.begin);
  params.scale = static_cast<float>(config_.attention_scale);
  params.softcap = config_.attention_softcap;
  params.bidirectional = config_.encoder.is_encoder;
  return params;
}

}  // namespace continuo::model
