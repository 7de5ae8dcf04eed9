// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "services/worker/model/config.h"
#include "services/worker/model/shard.h"

namespace continuo {

// Buffers of one pass of a decoder, each [max_rows, …] in one arena; a step uses the first rows.
// logit_rows is LogitRows, or max_rows if that is less.
// Entries are the (row, expert) pairs of a mixture of experts: rows * experts.per_token.
struct Activations {
  Tensor x, h;         // [rows, hidden]: the residual stream and its norm
  Tensor q, k, v, a;   // [rows, heads * head_dim] of this rank
  Tensor sum;          // f32 [rows, hidden]: what the ranks add up
  Tensor gate, up;     // [rows, inner] of this rank
  Tensor angles;       // f32 [rows, rotary_dim]
  Tensor last;         // [logit_rows, hidden]
  Tensor part;         // f32 [logit_rows, vocab] of this rank
  Tensor logits;       // f32 [logit_rows, vocab]; the same as `part` with one rank
  Tensor frequencies;  // f32 [rotary_dim / 2]

  // Empty without experts.
  Tensor router_logits;           // f32 [rows, num_experts]
  ExpertRoutes routes;            //
  Tensor expert_gate, expert_up;  // [entries, an expert's inner columns of this rank]
  Tensor expert_sum;              // f32 [entries, hidden]: what the ranks add up

  // Views of the first rows.
  Activations First(int64_t rows) const;
};

// Lays the buffers out from `base` (null: only to count) and returns their bytes.
int64_t LayOut(const ModelConfig& config, const Shard& shard, DType activations, int64_t rows,
               int64_t logit_rows, uint8_t* base, Activations* buffers);

}  // namespace continuo
