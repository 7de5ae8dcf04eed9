// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/estimate/calibration.h"

#include <algorithm>

#include "services/worker/engine/kv/block_pool.h"
#include "services/worker/engine/kv/state_pool.h"

namespace continuo::engine {
namespace {

constexpr int kTokensPerSequence = 8;  // few enough for any context length

// Plans `num_tokens` times token 0, each sequence in blocks of its own.
model::StepPlan PlanOf(int num_tokens, const EngineOptions& options, StepLoad& load) {
  const int block_size = options.block_size;
  model::StepPlan plan;
  plan.max_blocks = BlocksFor(kTokensPerSequence, block_size);
  load = {};
  for (int at = 0; at < num_tokens; at += kTokensPerSequence) {
    const int n = std::min(kTokensPerSequence, num_tokens - at);
    const int first_block = plan.num_seqs() * plan.max_blocks;
    for (int i = 0; i < n; ++i) {
      plan.token_ids.push_back(0);
      plan.positions.push_back(i);
      plan.kv_slots.push_back(first_block * block_size + i);
    }
    for (int b = 0; b < plan.max_blocks; ++b) {
      plan.block_tables.push_back(b < BlocksFor(n, block_size) ? first_block + b : kNoBlock);
    }
    if (options.num_state_slots > 0) {
      plan.state_from.push_back(kNoState);
      plan.state_to.resize(plan.token_ids.size(), kNoState);
      plan.state_to.back() = plan.num_seqs();
    }
    plan.sequence_ids.push_back(plan.num_seqs() + 1);
    plan.query_begin.push_back(plan.num_rows());
    plan.kv_len.push_back(n);
    plan.sample_rows.push_back(plan.num_rows() - 1);
    plan.sample_targets.push_back(options.reads_states ? model::kReadState : model::kSampleToken);
    plan.sampling.push_back({.temperature = 0});
    plan.bias_begin.push_back(0);
    plan.seen_begin.push_back(0);
    plan.sample_begin.push_back(plan.num_samples());
    load = load.WithTokens(0, n, 1);
  }
  return plan;
}

}  // namespace

absl::Status Calibrate(const EngineOptions& options, model::Executor& executor, const Clock& clock,
                       StepCost& cost) {
  const int per_sequence = BlocksFor(kTokensPerSequence, options.block_size);
  int most = std::min({options.max_batch_tokens, options.max_running * kTokensPerSequence,
                       options.num_blocks / per_sequence * kTokensPerSequence});
  if (options.num_state_slots > 0) {
    most = std::min(most, options.num_state_slots * kTokensPerSequence);
  }
  bool warm = false;
  for (const int num_tokens : {1, 1, 8, 1, 32, 64}) {
    StepLoad load;
    const model::StepPlan plan = PlanOf(num_tokens, options, load);
    if (num_tokens > most || cost.Predict(load) > options.target_step) break;
    const absl::Duration begin = clock.Elapsed();
    if (auto result = executor.Run(plan, [](std::span<uint32_t>) {}); !result.ok()) {
      return std::move(result).status();
    }
    // The first step does not count: it also pages weights in.
    if (warm) cost.Observe(load, clock.Elapsed() - begin);
    warm = true;
  }
  return absl::OkStatus();
}

}  // namespace continuo::engine
