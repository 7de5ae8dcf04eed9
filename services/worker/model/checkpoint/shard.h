// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/model/description/config.h"

namespace continuo::model {

// A half-open range of indices, perhaps empty.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The part of the model that one rank of a replica holds (exactness: fixed-k-order). Attention
// heads and the MLP's inner columns are cut into kNumSplits K splits, split i being units ⌊iU/8⌋ …
// ⌊(i+1)U/8⌋ of U, and each rank owns the same number of neighbouring splits, so a rank may own no
// head at all. A KV head belongs to every rank that owns a query head reading it. Rows of the
// vocabulary are cut at ⌊rV/size⌋.
struct Shard {
  int rank = 0, size = 1;
  Range heads, kv_heads;  // of num_heads, num_kv_heads
  Range inner;            // of intermediate_size
  Range other_kv_heads;   // of other_heads.num_kv_heads
  Range wide_inner;       // of wide_size
  Range expert_inner;     // of experts.intermediate_size: every rank holds a part of each expert
  Range shared_inner;     // of experts.shared_size
  Range state_heads, state_key_heads;  // of states.num_heads, num_key_heads, cut as heads are
  Range vocab;                         // of vocab_size
  // For MatMulSplitK: the first column of each of this rank's K splits, among its own columns, and
  // the end.
  std::vector<int64_t> head_splits;    // columns of the attention's output: heads * value_dim
  std::vector<int64_t> inner_splits;   // columns of the MLP's inner rows
  std::vector<int64_t> expert_splits;  // likewise of an expert's
  std::vector<int64_t> shared_splits;  // likewise of the shared expert's
  // Likewise of layers with other_heads, and of wide MLPs.
  std::vector<int64_t> other_head_splits, wide_inner_splits;
  std::vector<int64_t> state_splits;  // likewise of a layer with state: heads * value_dim
  // The first vocabulary row of every rank's part, and the end.
  std::vector<int64_t> vocab_begin;
  std::vector<int64_t> state_head_begin;  // likewise of heads of states
  // Likewise its first head, and its first KV head among those that no rank before it holds.
  std::vector<int64_t> head_begin, kv_head_begin;

  const Range& kv_heads_of(bool other) const { return other ? other_kv_heads : kv_heads; }
  const std::vector<int64_t>& head_splits_of(bool other) const {
    return other ? other_head_splits : head_splits;
  }
  const std::vector<int64_t>& inner_splits_of(bool wide) const {
    return wide ? wide_inner_splits : inner_splits;
  }
};

// `size` is 1, 2, 4 or 8.
Shard MakeShard(const ModelConfig& config, int rank, int size);

}  // namespace continuo::model
