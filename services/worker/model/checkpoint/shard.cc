// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/shard.h"

#include "kernels/math/arithmetic.h"
#include "services/base/check.h"

namespace continuo::model {
namespace {

// The first unit of part i of `parts`.
int64_t CutAt(int64_t units, int i, int parts) { return i * units / parts; }

// The first column of each of the rank's K splits, relative to its first unit, and the end. A unit
// is `unit` columns.
std::vector<int64_t> Splits(int64_t units, int64_t unit, int rank, int size) {
  const int per_rank = kernels::kNumSplits / size;
  const int first = rank * per_rank;
  std::vector<int64_t> begin;
  for (int i = first; i <= first + per_rank; ++i) {
    begin.push_back(
        (CutAt(units, i, kernels::kNumSplits) - CutAt(units, first, kernels::kNumSplits)) * unit);
  }
  return begin;
}

// The rank's units. Its first K split begins at ⌊rU/size⌋, since size divides their number.
Range Units(int64_t units, int rank, int size) {
  return {CutAt(units, rank, size), CutAt(units, rank + 1, size)};
}

}  // namespace

Shard MakeShard(const ModelConfig& config, int rank, int size) {
  CONTINUO_CHECK(size >= 1 && kernels::kNumSplits % size == 0 && rank >= 0 && rank < size);
  Shard shard;
  shard.rank = rank;
  shard.size = size;
  shard.heads = Units(config.num_heads, rank, size);
  const int64_t group = config.num_heads / config.num_kv_heads;
  if (shard.heads.size() > 0) {
    shard.kv_heads = {shard.heads.begin / group, (shard.heads.end - 1) / group + 1};
  }
  if (const OtherHeads& other = config.other_heads;
      !other.layers.empty() && shard.heads.size() > 0) {
    const int64_t sharing = config.num_heads / other.num_kv_heads;
    shard.other_kv_heads = {shard.heads.begin / sharing, (shard.heads.end - 1) / sharing + 1};
  }
  const StateConfig& states = config.states;
  shard.state_heads = Units(states.num_heads, rank, size);
  if (shard.state_heads.size() > 0) {
    const int64_t sharing = states.num_heads / states.num_key_heads;
    shard.state_key_heads = {shard.state_heads.begin / sharing,
                             (shard.state_heads.end - 1) / sharing + 1};
  }
  shard.state_splits = Splits(states.num_heads, states.value_dim, rank, size);
  shard.inner = Units(config.intermediate_size, rank, size);
  shard.wide_inner = Units(config.wide_size, rank, size);
  shard.expert_inner = Units(config.experts.intermediate_size, rank, size);
  shard.shared_inner = Units(config.experts.shared_size, rank, size);
  shard.vocab = Units(config.vocab_size, rank, size);
  shard.head_splits = Splits(config.num_heads, config.value_dim(), rank, size);
  shard.other_head_splits = Splits(config.num_heads, config.other_heads.head_dim, rank, size);
  shard.wide_inner_splits = Splits(config.wide_size, 1, rank, size);
  shard.inner_splits = Splits(config.intermediate_size, 1, rank, size);
  shard.expert_splits = Splits(config.experts.intermediate_size, 1, rank, size);
  shard.shared_splits = Splits(config.experts.shared_size, 1, rank, size);
  for (int r = 0; r <= size; ++r) {
    shard.vocab_begin.push_back(CutAt(config.vocab_size, r, size));
    shard.head_begin.push_back(CutAt(config.num_heads, r, size));
    shard.state_head_begin.push_back(CutAt(states.num_heads, r, size));
    // A KV head is first held by the rank of the first of its query heads.
    shard.kv_head_begin.push_back((shard.head_begin.back() + group - 1) / group);
  }
  return shard;
}

}  // namespace continuo::model
