// SPDX-License-Identifier: Apache-2.0
#include "services/worker/plan_load.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/flags.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/load/load_plan.h"

namespace continuo::worker {
namespace {

constexpr uint64_t kMaxBlocks = std::numeric_limits<int>::max();

// State slots for each sequence of the batch: two that it runs with, and two of snapshots.
constexpr int kSlotsPerSequence = 4;

// Tokens of one step of the draft model; longer prompts take several steps.
constexpr int kMaxDraftBatchTokens = 256;

// The bytes of the KV cache that flags ask for; 0: what is left decides.
uint64_t RequestedKvBytes(const WorkerConfig& config, const model::LoadEstimate& estimate) {
  const model::KvCacheSize& kv = config.load.kv;
  return kv.num_blocks > 0 ? static_cast<uint64_t>(kv.num_blocks) *
                                 static_cast<uint64_t>(estimate.bytes_per_block)
                           : kv.memory_bytes;
}

// The number of KV blocks on the CPU, where `estimate` is what both models take together.
absl::StatusOr<int> PlanBlocks(const WorkerConfig& config, const model::LoadEstimate& estimate,
                               uint64_t available_bytes) {
  const model::KvCacheSize& kv = config.load.kv;
  if (kv.num_blocks == 0 && estimate.bytes_per_block == 0) {
    return static_cast<int>(model::BlocksWithoutBytes(estimate.min_blocks));
  }
  const auto fixed = static_cast<uint64_t>(estimate.weight_bytes + estimate.scratch_bytes);
  const auto block = static_cast<uint64_t>(std::max<int64_t>(estimate.bytes_per_block, 1));
  const auto min_blocks = static_cast<uint64_t>(estimate.min_blocks);
  const uint64_t left = available_bytes > fixed ? available_bytes - fixed : 0;
  uint64_t blocks = static_cast<uint64_t>(kv.num_blocks);
  if (blocks == 0 && kv.memory_bytes > 0) blocks = kv.memory_bytes / block;
  const bool by_flags = kv.num_blocks > 0 || kv.memory_bytes > 0;
  if (by_flags && blocks > left / block) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the KV cache would take ", common::FormatBytes(blocks * block), ", beside ",
                     common::FormatBytes(fixed), " of weights and activations the container has ",
                     common::FormatBytes(left), "; lower --kv_cache_memory or --kv_blocks"));
  }
  if (!by_flags) {
    // A tenth stays free for prompts, answers and the rest of the process.
    const uint64_t useful =
        static_cast<uint64_t>(config.max_running) * std::max<uint64_t>(min_blocks, 1);
    blocks = std::min(left / 10 * 9 / block, useful);
  }
  if (blocks < min_blocks) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a KV cache of ", blocks, " blocks cannot hold one sequence of ",
                     estimate.config.context_length, " tokens, which needs ", min_blocks,
                     " blocks (", common::FormatBytes(min_blocks * block),
                     "); raise --kv_blocks or --kv_cache_memory, or lower --max_context_tokens"));
  }
  return static_cast<int>(std::min(blocks, kMaxBlocks));
}

}  // namespace

absl::StatusOr<model::LoadOptions> PlanLoad(const WorkerConfig& config, uint64_t available_bytes) {
  model::LoadOptions load = config.load;
  load.reads_mtp = config.speculation == "mtp";
  load.state_slots = {
      .most = config.state_slots > 0 ? config.state_slots : kSlotsPerSequence * config.max_running,
      .by_memory = config.state_slots == 0};
  if (load.device.device != "cpu") {
    // The loader sees what the devices have free.
    load.warm_up_sequences = config.max_running;
    return load;
  }
  ASSIGN_OR_RETURN(model::LoadEstimate estimate, model::EstimateLoad(load));
  if (config.speculation == "draft") {
    ASSIGN_OR_RETURN(const model::LoadOptions draft_load,
                     PlanDraftLoad(config, estimate.config.context_length));
    ASSIGN_OR_RETURN(const model::LoadEstimate draft, model::EstimateLoad(draft_load));
    estimate.weight_bytes += draft.weight_bytes;
    estimate.scratch_bytes += draft.scratch_bytes;
    estimate.bytes_per_block += draft.bytes_per_block;
  }
  if (estimate.bytes_per_state_slot > 0) {
    const uint64_t taken = static_cast<uint64_t>(estimate.weight_bytes + estimate.scratch_bytes);
    const uint64_t asked = RequestedKvBytes(config, estimate);
    uint64_t left = available_bytes > taken ? available_bytes - taken : 0;
    left = left > asked ? left - asked : 0;
    load.state_slots.most =
        model::StateSlotsIn(left, estimate.bytes_per_state_slot, load.state_slots);
    estimate.scratch_bytes += load.state_slots.most * estimate.bytes_per_state_slot;
  }
  ASSIGN_OR_RETURN(load.kv.num_blocks, PlanBlocks(config, estimate, available_bytes));
  load.kv.memory_bytes = 0;
  return load;
}

absl::StatusOr<model::LoadOptions> PlanDraftLoad(const WorkerConfig& config, int context_length) {
  model::LoadOptions load = config.load;
  load.source.dir = config.draft_model;
  // Its drafts are those of the model.
  load.adapters.clear();
  load.run_time_adapters = {};
  load.kv = {.block_size = load.kv.block_size, .is_later = true};
  load.device.device = load.device.device.substr(0, load.device.device.find(','));
  // The target model checks every draft token, so no answer depends on how they are computed.
  load.device.deterministic = false;
  load.tensor_parallel = 1;
  load.max_batch_tokens = std::min(load.max_batch_tokens, kMaxDraftBatchTokens);
  if (load.device.device != "cpu") load.warm_up_sequences = config.max_running;
  ASSIGN_OR_RETURN(const model::ModelConfig model,
                   model::ReadModelConfig(load.source.dir, load.source.allow_unread));
  if (model.has_states()) {
    return absl::UnimplementedError(
        absl::StrCat("--draft_model: ", model.architecture,
                     " has layers with a recurrent state, which a draft model cannot have"));
  }
  load.source.max_context_tokens = std::min(context_length, model.context_length);
  return load;
}

}  // namespace continuo::worker
