// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "services/worker/model/checkpoint/config.h"
#include "services/worker/model/checkpoint/shard.h"

namespace continuo::model {

// Buffers of one pass of a decoder, each [max_rows, …] in one arena; a step uses the first rows.
// logit_rows is LogitRows, or max_rows if that is less.
// Entries are the (row, expert) pairs of a mixture of experts: rows * experts.per_token.
struct Activations {
  kernels::Tensor x, h;         // [rows, hidden]: the residual stream and its norm
  kernels::Tensor q, k, v, a;   // [rows, heads * head_dim] of this rank
  kernels::Tensor sum;          // f32 [rows, hidden]: what the ranks add up
  kernels::Tensor gate, up;     // [rows, inner] of this rank
  kernels::Tensor angles;       // f32 [rows, rotary_dim]
  kernels::Tensor last;         // [logit_rows, hidden]
  kernels::Tensor part;         // f32 [logit_rows, vocab] of this rank
  kernels::Tensor logits;       // f32 [logit_rows, vocab]; the same as `part` with one rank
  kernels::Tensor frequencies;  // f32 [rotary_dim / 2]

  // Empty without experts.
  kernels::Tensor router_logits;           // f32 [rows, num_experts]
  kernels::ExpertRoutes routes;            //
  kernels::Tensor expert_gate, expert_up;  // [entries, an expert's inner columns of this rank]
  kernels::Tensor expert_sum;              // f32 [entries, hidden]: what the ranks add up

  // Views of the first rows.
  Activations First(int64_t rows) const;
};

// Lays the buffers out from `base` (null: only to count) and returns their bytes.
int64_t LayOut(const ModelConfig& config, const Shard& shard, kernels::DType activations,
               int64_t rows, int64_t logit_rows, uint8_t* base, Activations* buffers);

}  // namespace continuo::model
