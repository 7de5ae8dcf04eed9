// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/warm_up.h"

#include <algorithm>
#include <span>
#include <vector>

#include "services/worker/model/step_shape.h"

namespace continuo {
namespace {

// A plan of sequences that all lie in the spare block.
class SparePlan {
 public:
  SparePlan(const WarmUpOptions& options, int columns) : options_(options) {
    plan_.max_blocks = columns;
  }

  // One with `rows` rows, the last of which draws.
  void Add(int rows) {
    for (int i = 0; i < rows; ++i) {
      plan_.token_ids.push_back(0);
      plan_.positions.push_back(i);
      plan_.kv_slots.push_back(options_.spare_block * options_.block_size +
                               i % options_.block_size);
    }
    plan_.sequence_ids.push_back(static_cast<SequenceId>(plan_.num_seqs()) + 1);
    plan_.query_begin.push_back(plan_.num_rows());
    plan_.kv_len.push_back(rows);
    const int used = (rows + options_.block_size - 1) / options_.block_size;
    plan_.block_tables.insert(plan_.block_tables.end(), static_cast<size_t>(used),
                              options_.spare_block);
    plan_.block_tables.insert(plan_.block_tables.end(),
                              static_cast<size_t>(plan_.max_blocks - used), -1);
    plan_.sample_rows.push_back(plan_.num_rows() - 1);
    plan_.sample_targets.push_back(-1);
    plan_.sampling.push_back({.temperature = 0});
    plan_.bias_begin.push_back(0);
    plan_.seen_begin.push_back(0);
    plan_.sample_begin.push_back(plan_.num_samples());
  }
  const StepPlan& plan() const { return plan_; }

 private:
  const WarmUpOptions& options_;
  StepPlan plan_;
};

absl::Status RunOnce(Executor& executor, const StepPlan& plan) {
  return executor.Run(plan, [](std::span<uint32_t>) {}).status();
}

}  // namespace

absl::Status WarmUp(Executor& executor, const WarmUpOptions& options) {
  const int most_blocks = (options.context_length + options.block_size - 1) / options.block_size;
  // The largest first, with most rows of prompts beside most sequences: what grows does so once.
  SparePlan mixed(options, most_blocks);
  int left = options.max_rows;
  for (int others = std::min(options.max_sequences, left); others > 0; --others) {
    const int rows = std::min(left - (others - 1), options.context_length);
    mixed.Add(rows);
    left -= rows;
  }
  if (absl::Status status = RunOnce(executor, mixed.plan()); !status.ok()) return status;
  std::vector<int> columns = AllPaddedBlocks(most_blocks);
  std::vector<int> rows = AllPaddedRows(options.max_sequences, options.max_rows);
  std::ranges::reverse(columns);
  std::ranges::reverse(rows);
  for (const int blocks : columns) {
    for (const int n : rows) {
      SparePlan decodes(options, blocks);
      for (int i = 0; i < n; ++i) decodes.Add(1);
      for (int time = 0; time < 2; ++time) {
        if (absl::Status status = RunOnce(executor, decodes.plan()); !status.ok()) return status;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace continuo
