// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/model/step_plan.h"

namespace continuo::testing {

// Builds the plans of a few sequences as a scheduler would. Sequence s owns the blocks
// s * max_blocks, s * max_blocks + 1, …
class PlanBuilder {
 public:
  PlanBuilder(int block_size, int max_blocks) : block_size_(block_size), max_blocks_(max_blocks) {
    plan_.max_blocks = max_blocks;
  }

  // Adds rows of sequence `id` at positions begin, begin + 1, …; everything before is in the cache.
  // Samples the given rows, which are indices into `tokens`.
  PlanBuilder& Add(int id, int begin, std::span<const int32_t> tokens,
                   std::span<const int32_t> sampled, const model::SamplingParams& params = {},
                   int32_t target = -1) {
    const int32_t first_row = plan_.num_rows();
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int32_t position = begin + static_cast<int32_t>(i);
      plan_.token_ids.push_back(tokens[i]);
      plan_.positions.push_back(position);
      plan_.kv_slots.push_back(id * max_blocks_ * block_size_ + position);
    }
    plan_.sequence_ids.push_back(static_cast<model::SequenceId>(id));
    plan_.query_begin.push_back(plan_.num_rows());
    plan_.kv_len.push_back(begin + static_cast<int32_t>(tokens.size()));
    for (int block = 0; block < max_blocks_; ++block) {
      const bool used = block * block_size_ < plan_.kv_len.back();
      plan_.block_tables.push_back(used ? id * max_blocks_ + block : -1);
    }
    for (const int32_t row : sampled) {
      plan_.sample_rows.push_back(first_row + row);
      plan_.sample_targets.push_back(target);
      plan_.sampling.push_back(params);
      plan_.bias_begin.push_back(static_cast<int32_t>(plan_.biases.size()));
      plan_.seen_begin.push_back(static_cast<int32_t>(plan_.seen.size()));
    }
    plan_.sample_begin.push_back(plan_.num_samples());
    if (!plan_.adapters.empty()) plan_.adapters.push_back(model::kNoAdapter);
    return *this;
  }

  // Gives the sequence that was added last an adapter.
  PlanBuilder& Adapt(int32_t adapter) {
    plan_.adapters.resize(plan_.sequence_ids.size(), model::kNoAdapter);
    plan_.adapters.back() = adapter;
    return *this;
  }

  // Says where the state before the first row of the sequence that was added last is (-1: zeros),
  // and which slot receives the one behind its last row.
  PlanBuilder& KeepState(int from, int to) {
    plan_.state_from.push_back(from);
    plan_.state_to.resize(static_cast<size_t>(plan_.num_rows()), -1);
    plan_.state_to.back() = to;
    return *this;
  }

  model::StepPlan& plan() { return plan_; }

 private:
  const int block_size_, max_blocks_;
  model::StepPlan plan_;
};

// Names the slots of states in a plan of a model that has them: each sequence has that of its id.
inline void PlaceStates(model::StepPlan& plan) {
  plan.state_to.assign(plan.token_ids.size(), -1);
  for (size_t s = 0; s < plan.sequence_ids.size(); ++s) {
    const auto slot = static_cast<int32_t>(plan.sequence_ids[s]);
    const auto first = static_cast<size_t>(plan.query_begin[s]);
    plan.state_from.push_back(plan.positions[first] == 0 ? -1 : slot);
    plan.state_to[static_cast<size_t>(plan.query_begin[s + 1]) - 1] = slot;
  }
}

// Returns a sequence's last row, as Add takes it.
inline std::vector<int32_t> LastOf(std::span<const int32_t> tokens) {
  return {static_cast<int32_t>(tokens.size()) - 1};
}

inline std::vector<int32_t> AllOf(std::span<const int32_t> tokens) {
  std::vector<int32_t> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  return rows;
}

}  // namespace continuo::testing
