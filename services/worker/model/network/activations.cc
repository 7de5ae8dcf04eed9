// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/activations.h"

#include <algorithm>

#include "services/base/check.h"

namespace continuo::model {

Activations Activations::First(int64_t rows) const {
  CONTINUO_CHECK(rows <= x.rows());
  const int64_t entries = rows * routes.weights.cols();
  Activations first = *this;
  for (kernels::Tensor* tensor : {&first.x,
                                  &first.h,
                                  &first.q,
                                  &first.k,
                                  &first.v,
                                  &first.qkv,
                                  &first.a,
                                  &first.sum,
                                  &first.gate,
                                  &first.up,
                                  &first.q_part,
                                  &first.k_part,
                                  &first.q_squares,
                                  &first.k_squares,
                                  &first.router_logits,
                                  &first.routes.weights,
                                  &first.routes.entries,
                                  &first.unit_weights,
                                  &first.router_h,
                                  &first.expert_h,
                                  &first.dense_sum,
                                  &first.per_layer,
                                  &first.per_layer_sum,
                                  &first.per_layer_taken,
                                  &first.per_layer_kept,
                                  &first.per_layer_gate,
                                  &first.shared_gate,
                                  &first.shared_up,
                                  &first.shared_switch,
                                  &first.shared_sum,
                                  &first.latent_in,
                                  &first.latent_out,
                                  &first.latent_zeros,
                                  &first.latent_sum,
                                  &first.latent_q,
                                  &first.latent_kv,
                                  &first.rotated_k,
                                  &first.plain_k,
                                  &first.short_v,
                                  &first.short_a,
                                  &first.output_gate,
                                  &first.final_hidden,
                                  &first.joined,
                                  &first.states.q,
                                  &first.states.k,
                                  &first.states.v,
                                  &first.states.z,
                                  &first.states.mixed_q,
                                  &first.states.mixed_k,
                                  &first.states.mixed_v,
                                  &first.states.step,
                                  &first.states.gate,
                                  &first.states.decay,
                                  &first.states.strength,
                                  &first.states.part,
                                  &first.states.squares}) {
    tensor->shape[0] = rows;
  }
  for (auto* const angles : {&first.angles, &first.query_angles}) {
    for (kernels::Tensor& tensor : *angles) tensor.shape[0] = rows;
  }
  for (kernels::Tensor* tensor :
       {&first.routes.rows, &first.expert_gate, &first.expert_up, &first.expert_in}) {
    tensor->shape[0] = entries;
  }
  first.expert_sum.shape[0] = has_shared && shared_sum.size() == 0 ? entries + rows : entries;
  return first;
}

int64_t LayOut(const ModelConfig& c, const Shard& s, const ActivationSizes& sizes, uint8_t* base,
               Activations* b) {
  const auto& [activations, rows, logit_rows, prepared_bytes, joins_heads, adapter_width] = sizes;
  int64_t offset = 0;
  const auto place = [base, &offset](kernels::Tensor& tensor, kernels::DType dtype, int64_t n,
                                     int64_t cols) {
    tensor = {base == nullptr ? nullptr : base + offset, dtype, {n, cols, 1}};
    offset += (static_cast<int64_t>(tensor.bytes()) + 63) / 64 * 64;
  };
  const int64_t hidden = c.hidden_size, dim = c.head_dim;
  const int64_t q_width = s.heads.size() * c.max_head_dim();
  const int64_t kv_width =
      std::max(s.kv_heads.size() * dim, s.other_kv_heads.size() * c.other_heads.head_dim);
  const int64_t inner = std::max(s.inner.size(), s.wide_inner.size());
  place(b->x, activations, rows, hidden);
  place(b->h, activations, rows, hidden);
  place(b->q, activations, rows, q_width);
  if (joins_heads) {
    place(b->qkv, activations, rows, (s.heads.size() + 2 * s.kv_heads.size()) * dim);
  } else {
    place(b->k, activations, rows, kv_width);
    place(b->v, activations, rows, kv_width);
  }
  place(b->a, activations, rows, q_width);
  place(b->sum, kernels::DType::kF32, rows, hidden);
  place(b->gate, activations, rows, inner);
  if (c.gated) place(b->up, activations, rows, inner);
  for (size_t i = 0; i < c.ropes.size(); ++i) {
    const int64_t rotary_dim = c.rotary_dim_of(c.ropes[i]);
    place(b->angles[i], kernels::DType::kF32, rows, rotary_dim);
    b->query_angles[i] = b->angles[i];
    if (c.grows(c.ropes[i])) place(b->query_angles[i], kernels::DType::kF32, rows, rotary_dim);
  }
  if (c.qk_norm == QueryKeyNorm::kWidth) {
    const auto rank = static_cast<size_t>(s.rank);
    place(b->q_part, kernels::DType::kF32, rows, s.heads.size());
    place(b->k_part, kernels::DType::kF32, rows, s.kv_head_begin[rank + 1] - s.kv_head_begin[rank]);
    b->q_squares = b->q_part;
    b->k_squares = b->k_part;
    if (s.size > 1) {
      place(b->q_squares, kernels::DType::kF32, rows, c.num_heads);
      place(b->k_squares, kernels::DType::kF32, rows, c.num_kv_heads);
    }
  }
  if (!c.qk_gains || c.value_norm) place(b->ones, kernels::DType::kF32, c.max_head_dim(), 1);
  place(b->last, activations, logit_rows, hidden);
  place(b->part, kernels::DType::kF32, logit_rows, s.vocab.size());
  if (s.size > 1) {
    place(b->logits, kernels::DType::kF32, logit_rows, c.vocab_size);
  } else {
    b->logits = b->part;
  }
  for (size_t i = 0; i < c.ropes.size(); ++i) {
    place(b->frequencies[i], kernels::DType::kF32, c.rotary_dim_of(c.ropes[i]) / 2, 1);
  }
  if (prepared_bytes > 0) {
    kernels::Tensor prepared;
    place(prepared, kernels::DType::kI8, prepared_bytes, 1);
    b->prepared = prepared.data;
  }
  if (c.experts.num_experts > 0) {
    const int64_t per_row = c.experts.per_token, entries = rows * per_row;
    place(b->router_logits, kernels::DType::kF32, rows, c.experts.num_experts);
    place(b->routes.weights, kernels::DType::kF32, rows, per_row);
    place(b->routes.entries, kernels::DType::kI32, rows, per_row);
    place(b->routes.rows, kernels::DType::kI32, entries, 1);
    place(b->routes.expert_begin, kernels::DType::kI32, c.experts.num_experts + 1, 1);
    place(b->expert_gate, activations, entries, s.expert_inner.size());
    if (c.gated) place(b->expert_up, activations, entries, s.expert_inner.size());
    if (c.experts.weighs_inputs) {
      place(b->expert_in, activations, entries, hidden);
      place(b->unit_weights, kernels::DType::kF32, rows, per_row);
    }
    if (c.experts.beside_dense) {
      place(b->router_h, activations, rows, hidden);
      place(b->expert_h, activations, rows, hidden);
      place(b->dense_sum, kernels::DType::kF32, rows, hidden);
    }
    b->has_shared = c.experts.shared_size > 0;
    if (const int64_t latent = c.experts.latent_size; latent > 0) {
      place(b->expert_sum, kernels::DType::kF32, entries, latent);
      if (b->has_shared) place(b->shared_sum, kernels::DType::kF32, rows, hidden);
      for (kernels::Tensor* const t : {&b->latent_in, &b->latent_out, &b->latent_zeros}) {
        place(*t, activations, rows, latent);
      }
      place(b->latent_sum, kernels::DType::kF32, rows, latent);
    } else {
      place(b->expert_sum, kernels::DType::kF32, b->has_shared ? entries + rows : entries, hidden);
    }
    if (b->has_shared) {
      place(b->shared_gate, activations, rows, s.shared_inner.size());
      if (c.gated) place(b->shared_up, activations, rows, s.shared_inner.size());
    }
    if (c.experts.shared_gate) place(b->shared_switch, kernels::DType::kF32, rows, 1);
  }
  if (c.is_latent()) {
    const int64_t heads = s.heads.size();
    if (c.latent.q_rank > 0) place(b->latent_q, activations, rows, c.latent.q_rank);
    place(b->latent_kv, activations, rows, c.latent.kv_rank);
    place(b->rotated_k, activations, rows, c.latent.rotated_dim);
    place(b->plain_k, activations, rows, heads * c.latent.plain_dim);
    place(b->short_v, activations, rows, heads * c.latent.value_dim);
    place(b->short_a, activations, rows, heads * c.latent.value_dim);
  }
  if (const int64_t size = c.per_layer_size; size > 0) {
    place(b->per_layer, activations, rows, c.num_layers * size);
    place(b->per_layer_sum, kernels::DType::kF32, rows, c.num_layers * size);
    for (kernels::Tensor* const t : {&b->per_layer_taken, &b->per_layer_kept, &b->per_layer_gate}) {
      place(*t, activations, rows, size);
    }
  }
  if (adapter_width > 0) place(b->adapted, kernels::DType::kF32, rows, adapter_width);
  if (c.output_gate) place(b->output_gate, activations, rows, s.heads.size() * dim);
  if (c.reads_mtp) {
    place(b->final_hidden, activations, rows, hidden);
    place(b->joined, activations, rows, 2 * hidden);
  }
  if (c.states.kind != StateKind::kNone) {
    StateBuffers& states = b->states;
    const int64_t heads = s.state_heads.size(), values = heads * c.states.value_dim;
    const bool is_conv = c.states.kind == StateKind::kConv;
    const int64_t keys = is_conv ? values : s.state_key_heads.size() * c.states.key_dim;
    place(states.q, activations, rows, keys);
    place(states.v, activations, rows, values);
    place(states.z, activations, rows, values);
    if (!is_conv) {
      place(states.k, activations, rows, keys);
      place(states.mixed_q, activations, rows, keys);
      place(states.mixed_k, activations, rows, keys);
      place(states.mixed_v, activations, rows, values);
      place(states.step, activations, rows, heads);
      place(states.gate, activations, rows, heads);
      place(states.decay, kernels::DType::kF32, rows, heads);
      place(states.strength, kernels::DType::kF32, rows, heads);
    }
    if (c.states.kind == StateKind::kSum) {
      place(states.part, kernels::DType::kF32, rows, heads);
      states.squares = states.part;
      if (s.size > 1) place(states.squares, kernels::DType::kF32, rows, c.states.num_heads);
    } else if (!is_conv) {
      place(states.q_length_gain, kernels::DType::kF32, c.states.key_dim, 1);
      place(states.k_length_gain, kernels::DType::kF32, c.states.key_dim, 1);
    }
  }
  return offset;
}

}  // namespace continuo::model
