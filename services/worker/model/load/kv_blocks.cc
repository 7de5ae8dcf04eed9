// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/load/kv_blocks.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/network/model.h"
#include "services/worker/model/network/state_cache.h"

namespace continuo::model {
namespace {

// KV slots are counted in 32 bits.
int64_t MaxBlocks(const LoadOptions& options) {
  return std::numeric_limits<int32_t>::max() / options.kv.block_size;
}

// Bytes that a KV block takes of a rank's device, a draft model's block included.
int64_t BlockNeeds(const LoadOptions& options, const LoadPlan& plan, size_t rank) {
  return plan.BlockBytes(plan.shards[rank], options.kv.block_size) +
         (rank == 0 ? options.kv.other_block_bytes : 0);
}

absl::StatusOr<int> Fit(const LoadOptions& options, const LoadPlan& plan, int requested,
                        bool is_measured, kernels::Replica& replica,
                        std::span<const kernels::RankNeeds> needs) {
  ASSIGN_OR_RETURN(const int64_t blocks,
                   replica.PlanBlocks(needs, {.min_blocks = plan.min_blocks,
                                              .max_blocks = MaxBlocks(options),
                                              .wanted = requested,
                                              .is_measured = is_measured}));
  return static_cast<int>(blocks);
}

}  // namespace

absl::StatusOr<int> RequestedBlocks(const LoadOptions& options, const LoadPlan& plan,
                                    bool has_device_memory) {
  const KvCacheSize& kv = options.kv;
  if (kv.is_later) return 0;
  const int64_t max_blocks = MaxBlocks(options);
  const int64_t block = plan.BlockBytes(kv.block_size) + kv.other_block_bytes;
  if (has_device_memory && kv.num_blocks == 0 && kv.memory_bytes == 0 && block > 0) return 0;
  int64_t blocks = kv.num_blocks;
  if (blocks == 0 && block == 0) {
    blocks = BlocksWithoutBytes(plan.min_blocks);
  }
  if (blocks == 0) {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    const auto memory = static_cast<int64_t>(std::min<uint64_t>(kv.memory_bytes, kMax));
    RETURN_IF_ERROR(CheckRange("kv_cache_memory", memory, 1, kMax));
    blocks = std::min(memory / block, max_blocks);
  } else {
    RETURN_IF_ERROR(CheckRange("kv_blocks", blocks, 1, max_blocks));
  }
  if (blocks < plan.min_blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("the KV cache has ", blocks, " blocks of ", kv.block_size, " tokens, ",
                     blocks * kv.block_size, " tokens; one sequence of max_context_tokens, ",
                     plan.config.context_length, ", needs ", plan.min_blocks, " blocks, ",
                     plan.min_blocks * block, " bytes"));
  }
  return static_cast<int>(blocks);
}

absl::StatusOr<int> FitStateSlots(const LoadOptions& options, const LoadPlan& plan, int requested,
                                  const kernels::Replica& replica,
                                  std::span<const kernels::Replica::Rank> ranks) {
  if (!plan.config.has_states()) return 0;
  int slots = options.state_slots.most;
  if (!replica.has_device_memory()) return slots;
  ASSIGN_OR_RETURN(const std::vector<int64_t> free, replica.FreeBytes());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Shard& shard = plan.shards[rank];
    const kernels::Device& device = *ranks[rank].device;
    const int64_t taken =
        WeightBytes(plan.config, shard, plan.checkpoint, plan.types.weights, device) +
        ScratchBytes(plan.config, shard, plan.types.weights, plan.types.activations,
                     options.max_batch_tokens, options.has_adapters(), device) +
        plan.AdapterCopyBytes(rank, device);
    // Blocks that flags ask for come first.
    const int64_t blocks = requested * BlockNeeds(options, plan, rank);
    const int64_t slot = StateCache::SlotBytes(plan.config, shard, plan.types.activations);
    if (slot == 0) continue;  // a rank without heads
    const auto left = static_cast<uint64_t>(std::max<int64_t>(free[rank] - taken - blocks, 0));
    slots = std::min(slots, StateSlotsIn(left, slot, options.state_slots));
  }
  return slots;
}

absl::StatusOr<int> FitBlocks(const LoadOptions& options, const LoadPlan& plan, int requested,
                              int state_slots, kernels::Replica& replica,
                              std::span<const kernels::Replica::Rank> ranks) {
  std::vector<kernels::RankNeeds> needs;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Shard& shard = plan.shards[rank];
    const kernels::Device& device = *ranks[rank].device;
    // The KV cache has a spare block of its own.
    const int64_t spare = plan.BlockBytes(shard, options.kv.block_size);
    needs.push_back(
        {.weights = WeightBytes(plan.config, shard, plan.checkpoint, plan.types.weights, device) +
                    plan.AdapterCopyBytes(rank, device),
         .scratch = spare +
                    ScratchBytes(plan.config, shard, plan.types.weights, plan.types.activations,
                                 options.max_batch_tokens, options.has_adapters(), device) +
                    StateCache::Bytes(plan.config, shard, plan.types.activations, state_slots),
         .block = BlockNeeds(options, plan, rank)});
  }
  // A warm-up will measure what steps take besides, before the requested blocks are allocated.
  const bool is_measured = requested > 0 && options.warm_up_sequences > 0;
  return Fit(options, plan, requested, is_measured, replica, needs);
}

absl::StatusOr<int> FitMeasuredBlocks(const LoadOptions& options, const LoadPlan& plan,
                                      int requested, kernels::Replica& replica,
                                      std::span<const int64_t> graph_bytes) {
  std::vector<kernels::RankNeeds> needs;
  for (size_t rank = 0; rank < graph_bytes.size(); ++rank) {
    needs.push_back({.block = BlockNeeds(options, plan, rank), .graphs = graph_bytes[rank]});
  }
  return Fit(options, plan, requested, /*is_measured=*/true, replica, needs);
}

}  // namespace continuo::model
