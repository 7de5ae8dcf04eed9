// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "kernels/expert_ops.h"
#include "kernels/tensor.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/description/config.h"

namespace continuo::model {

// The buffers of a layer with state, of this rank. A short convolution has q, v and z alone.
struct StateBuffers {
  kernels::Tensor q, k;                          // [rows, key heads * key_dim]; q of kConv: as v
  kernels::Tensor v, z;                          // [rows, heads * value_dim]
  kernels::Tensor mixed_q, mixed_k, mixed_v;     // what the convolutions give, as q, k and v
  kernels::Tensor step, gate;                    // [rows, heads]
  kernels::Tensor decay, strength;               // f32 [rows, heads]
  kernels::Tensor q_length_gain, k_length_gain;  // f32 [key_dim], the same in all steps
  kernels::Tensor part, squares;                 // f32 [rows, heads] of this rank, and of all
};

// The buffers of one pass of a decoder, each [max_rows, …] in one arena; a step uses the first
// rows. Entries are the (row, expert) pairs of a mixture of experts: rows * experts.per_token.
struct Activations {
  kernels::Tensor x, h;  // [rows, hidden]: the residual stream and its norm
  // [rows, heads * head_dim] of this rank, of the widest heads. In a pass they are as wide as the
  // current layer's.
  kernels::Tensor q, k, v, a;
  kernels::Tensor qkv;       // where JoinsHeads, in place of k and v: the product's rows
  kernels::Tensor sum;       // f32 [rows, hidden]: summed over the ranks
  kernels::Tensor gate, up;  // [rows, inner] of this rank, or of wide MLPs
  // f32 [rows, rotary_dim] of each kind of RoPE: of keys, and of queries, which are the same unless
  // those grow with their position.
  std::array<kernels::Tensor, kMaxRopes> angles, query_angles;
  // f32 [rows, heads], of norms over all heads: this rank's squares, and those of all ranks.
  kernels::Tensor q_part, k_part, q_squares, k_squares;
  kernels::Tensor ones;    // f32 [head_dim], of norms without gains; filled once
  kernels::Tensor last;    // [logit_rows, hidden]
  kernels::Tensor part;    // f32 [logit_rows, vocab] of this rank
  kernels::Tensor logits;  // f32 [logit_rows, vocab]; the same as `part` with one rank
  std::array<kernels::Tensor, kMaxRopes> frequencies;  // f32 [rotary_dim / 2]
  void* prepared = nullptr;  // what ops prepare beside h or gate for products (MatMulInput)

  // Empty without experts.
  kernels::Tensor router_logits;           // f32 [rows, num_experts]
  kernels::ExpertRoutes routes;            // without a host copy
  kernels::Tensor expert_gate, expert_up;  // [entries, an expert's inner columns of this rank]
  // Where inputs are weighed: those of each entry, and ones in place of weights, filled once.
  kernels::Tensor expert_in;     // [entries, hidden]
  kernels::Tensor unit_weights;  // f32 [rows, per_token]
  // Of experts beside a dense MLP: the router's input, theirs, and what the MLP gives.
  kernels::Tensor router_h, expert_h;  // [rows, hidden]
  kernels::Tensor dense_sum;           // f32 [rows, hidden]
  // f32 [entries, hidden]: summed over the ranks. With a shared expert its rows follow:
  // [entries + rows, hidden].
  kernels::Tensor expert_sum;
  // With a latent_size, which is the width of expert_sum then, the shared expert's rows are apart.
  kernels::Tensor shared_sum;                // f32 [rows, hidden]
  kernels::Tensor latent_in, latent_out;     // [rows, latent_size]
  kernels::Tensor latent_zeros, latent_sum;  // latent_sum is f32; latent_zeros are filled once
  bool has_shared = false;
  kernels::Tensor shared_gate, shared_up;  // [rows, the shared expert's inner columns of this rank]
  kernels::Tensor shared_switch;           // f32 [rows, 1]

  // Empty unless keys and values are made of latent vectors; the widths are those of LatentConfig.
  kernels::Tensor latent_q, latent_kv;  // [rows, rank]
  kernels::Tensor rotated_k;            // [rows, rotated_dim]
  kernels::Tensor plain_k, short_v;     // [rows, heads * plain_dim or value_dim] of this rank
  kernels::Tensor short_a;              // [rows, heads * value_dim]: the attention's output

  kernels::Tensor output_gate;  // as q, where there is one

  // Empty without per_layer_size, P: those of all layers, L of them, and of one layer.
  kernels::Tensor per_layer;                        // [rows, L * P]
  kernels::Tensor per_layer_sum;                    // f32 [rows, L * P]
  kernels::Tensor per_layer_taken, per_layer_kept;  // [rows, P]
  kernels::Tensor per_layer_gate;                   // [rows, P]

  // Empty without an MTP layer. The first keeps its rows until the next pass.
  kernels::Tensor final_hidden;  // [rows, hidden]: the result of the last layer, normalised
  kernels::Tensor joined;        // [rows, 2 * hidden]
  StateBuffers states;           // empty without layers with state
  kernels::Tensor adapted;       // f32 [rows, adapter_width]; empty without adapters

  // Views of the first rows.
  Activations First(int64_t rows) const;
};

struct ActivationSizes {
  kernels::DType activations = kernels::DType::kF32;
  int64_t rows = 0;
  int64_t logit_rows = 0;      // LogitRows, or `rows` if that is less
  int64_t prepared_bytes = 0;  // 0: ops prepare nothing
  bool joins_heads = false;    // JoinsHeads
  int64_t adapter_width = 0;   // 0: no adapters
};

// Lays the buffers out from `base` (null: only to count) and returns their bytes.
int64_t LayOut(const ModelConfig& config, const Shard& shard, const ActivationSizes& sizes,
               uint8_t* base, Activations* buffers);

}  // namespace continuo::model
