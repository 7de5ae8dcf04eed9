// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/load/load_plan.h"

#include <algorithm>

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device.h"
#include "services/base/status_macros.h"
#include "services/worker/model/adapter/adapter.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/network/kv_cache.h"
#include "services/worker/model/network/state_cache.h"
#include "services/worker/model/run/model_runner.h"
#include "services/worker/model/run/rank_group.h"

namespace continuo::model {
namespace {

constexpr int kMaxBlockSize = 1024;
constexpr int kMaxThreads = 1024;
constexpr int kMinStateSlots = 2;  // of a sequence that runs
constexpr int kMaxStateSlots = 1 << 20;
constexpr int kStatesShare = 4;

// True if every key head of the rank is read by equally many of its heads, which UpdateStates asks
// for.
bool HasWholeGroups(const ModelConfig& config, const Shard& shard) {
  const Range heads = shard.state_heads, keys = shard.state_key_heads;
  if (heads.size() == 0 || keys.size() == 1) return true;
  const int64_t group = config.states.num_heads / config.states.num_key_heads;
  return heads.begin % group == 0 && heads.end % group == 0;
}

absl::Status CheckStates(const LoadOptions& options, const LoadPlan& plan) {
  const ModelConfig& config = plan.config;
  if (!config.has_states()) return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckRange("state_slots", options.state_slots.most, kMinStateSlots, kMaxStateSlots));
  for (const Shard& shard : plan.shards) {
    if (HasWholeGroups(config, shard)) continue;
    return absl::UnimplementedError(absl::StrCat(
        "tensor_parallel is ", plan.shards.size(), "; it cuts the ", config.states.num_heads,
        " heads of recurrent states inside a group that shares one of ",
        config.states.num_key_heads, " key heads"));
  }
  return absl::OkStatus();
}

// Counts what an adapter takes, and checks that it fits the model.
absl::Status ReadAdapter(const AdapterSource& source, LoadPlan& plan) {
  ASSIGN_OR_RETURN(const AdapterFiles files, AdapterFiles::Open(source.dir));
  for (size_t rank = 0; rank < plan.shards.size(); ++rank) {
    const std::span<const Shard> shard(&plan.shards[rank], 1);
    ASSIGN_OR_RETURN(const int64_t bytes, Adapter::Bytes(files.modules(), plan.config, shard));
    plan.adapter_bytes += bytes;
    plan.adapter_slots[rank].push_back(bytes);
  }
  return absl::OkStatus();
}

// The same for all of the options, and what those that are read later may take.
absl::Status ReadAdapters(const LoadOptions& options, LoadPlan& plan) {
  plan.adapter_slots.resize(plan.shards.size());
  for (const AdapterSource& source : options.adapters) {
    RETURN_IF_ERROR(AdapterError(source.name, ReadAdapter(source, plan)));
  }
  const AdapterLimits limits = LimitsOf(options);
  plan.adapter_bytes +=
      AdapterPool::MostBytes(plan.config, plan.shards, limits, options.adapters.size());
  if (limits.most == 0) return absl::OkStatus();
  // Those of the options stay, so the largest comes into one of the other slots.
  for (size_t rank = 0; rank < plan.shards.size(); ++rank) {
    const int64_t most = Adapter::MostBytes(
        plan.config, std::span<const Shard>(&plan.shards[rank], 1), limits.max_rank);
    std::vector<int64_t>& slots = plan.adapter_slots[rank];
    slots.resize(std::max(slots.size(), limits.most), most);
  }
  return absl::OkStatus();
}

// What encoders demand of the options.
absl::Status CheckEncoder(const LoadOptions& options, const ModelConfig& config) {
  if (!config.encoder.is_encoder) return absl::OkStatus();
  if (!options.reads_states) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: ", config.architecture,
                     " is an encoder, which generates nothing; --task=embed serves it"));
  }
  if (options.device.device != "cpu") {
    return absl::UnimplementedError(absl::StrCat(
        "encoders are computed on the CPU alone, and the device is ", options.device.device));
  }
  if (options.has_adapters()) {
    return absl::UnimplementedError(
        "--lora_adapter, --lora_root: adapters of encoders are not supported");
  }
  if (options.max_batch_tokens < config.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("max_batch_tokens is ", options.max_batch_tokens,
                                                   "; an encoder computes a text of up to ",
                                                   config.context_length, " tokens in one step"));
  }
  return absl::OkStatus();
}

absl::Status ReadMtp(LoadPlan& plan) {
  absl::Status status = AddMtpLayer(plan.config);
  if (status.ok()) status = CheckWeights(plan.config, plan.checkpoint);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--speculation=mtp: ", status.message()));
}

}  // namespace

AdapterLimits LimitsOf(const LoadOptions& options) {
  const RunTimeAdapters& later = options.run_time_adapters;
  if (later.root.empty()) return {};
  return {.most = static_cast<size_t>(later.most), .max_rank = later.max_rank};
}

absl::Status AdapterError(const std::string& name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("adapter \"", name, "\": ", status.message()));
}

absl::Status CheckRange(const std::string& option, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is ", value, "; it must be from ", min, " to ", max));
}

int64_t BlocksWithoutBytes(int64_t min_blocks) { return std::max<int64_t>(min_blocks, 1 << 18); }

int64_t LoadPlan::AdapterCopyBytes(size_t rank, const kernels::Device& device) const {
  if (device.SharesHostMemory()) return 0;
  const std::vector<int64_t>& slots = adapter_slots[rank];
  return std::accumulate(slots.begin(), slots.end(), int64_t{0});
}

int64_t LoadPlan::BlockBytes(const Shard& shard, int block_size) const {
  return KvCache::BlockBytes(KvCache::Shapes(config, shard, types.kv), block_size);
}

int64_t LoadPlan::BlockBytes(int block_size) const {
  int64_t bytes = 0;
  for (const Shard& shard : shards) bytes += BlockBytes(shard, block_size);
  return bytes;
}

int64_t LoadPlan::SlotBytes() const {
  int64_t bytes = 0;
  for (const Shard& shard : shards) {
    bytes += StateCache::SlotBytes(config, shard, types.activations);
  }
  return bytes;
}

int StateSlotsIn(uint64_t free_bytes, int64_t slot_bytes, const StateSlots& wanted) {
  if (slot_bytes == 0) return 0;
  if (!wanted.by_memory) return wanted.most;
  const uint64_t fitting = free_bytes / kStatesShare / static_cast<uint64_t>(slot_bytes);
  const auto most = static_cast<uint64_t>(wanted.most);
  return static_cast<int>(std::max<uint64_t>(std::min(fitting, most), kMinStateSlots));
}

absl::StatusOr<LoadPlan> MakeLoadPlan(const LoadOptions& options, int num_ranks) {
  RETURN_IF_ERROR(CheckTensorParallel(num_ranks));
  RETURN_IF_ERROR(CheckRange("threads", options.device.num_threads, 1, kMaxThreads));
  RETURN_IF_ERROR(CheckRange("block_size", options.kv.block_size, 1, kMaxBlockSize));
  RETURN_IF_ERROR(CheckRange("max_batch_tokens", options.max_batch_tokens, 1, kMaxBatchTokens));
  ASSIGN_OR_RETURN(ModelConfig config,
                   ReadModelConfig(options.source.dir, options.source.allow_unread));
  if (options.source.max_context_tokens != 0) {
    RETURN_IF_ERROR(CheckRange("max_context_tokens", options.source.max_context_tokens, 1,
                               config.context_length));
    config.context_length = options.source.max_context_tokens;
  }
  if (config.has_score_head() && !options.reads_states) {
    return absl::InvalidArgumentError(
        "config.json: architectures names a class for sequence classification, whose head gives "
        "scores and no tokens; --task=score serves it");
  }
  RETURN_IF_ERROR(CheckEncoder(options, config));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(options.source.dir));
  // A head that nobody reads counts as the embedding where the files leave it out.
  if (options.reads_states && !options.needs_head && !HasHead(checkpoint)) {
    config.tied_embeddings = true;
  }
  RETURN_IF_ERROR(CheckWeights(config, checkpoint));
  config.warnings.insert(config.warnings.end(), checkpoint.warnings().begin(),
                         checkpoint.warnings().end());
  LoadPlan plan{.served = std::move(config), .checkpoint = std::move(checkpoint)};
  ASSIGN_OR_RETURN(plan.types,
                   ResolvePrecision(options.precision, AutoType(plan.served, plan.checkpoint),
                                    options.device.device == "cpu"));
  plan.config = plan.served;
  if (options.reads_mtp) RETURN_IF_ERROR(ReadMtp(plan));
  if (plan.types.weights == kernels::WeightType::kStored) {
    RETURN_IF_ERROR(CheckStored(plan.config, plan.checkpoint));
  }
  if (std::string skipped = DescribeSkipped(plan.config, plan.checkpoint); !skipped.empty()) {
    plan.served.warnings.push_back(std::move(skipped));
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    plan.shards.push_back(MakeShard(plan.config, rank, num_ranks));
  }
  RETURN_IF_ERROR(CheckStates(options, plan));
  RETURN_IF_ERROR(ReadAdapters(options, plan));
  const int block_size = options.kv.block_size;
  plan.min_blocks = (plan.config.context_length + block_size - 1) / block_size;
  return plan;
}

absl::StatusOr<LoadEstimate> EstimateLoad(const LoadOptions& options) {
  ASSIGN_OR_RETURN(LoadPlan plan, MakeLoadPlan(options, options.tensor_parallel));
  // This device computes nothing; it says how it would pack the weights.
  ASSIGN_OR_RETURN(
      const std::unique_ptr<kernels::Device> device,
      kernels::MakeDevice({.device = options.device.device, .isa = options.device.isa}));
  RETURN_IF_ERROR(CheckSupported(*device, plan.types));
  LoadEstimate estimate;
  for (const Shard& shard : plan.shards) {
    estimate.weight_bytes +=
        WeightBytes(plan.config, shard, plan.checkpoint, plan.types.weights, *device);
    estimate.scratch_bytes +=
        RunnerScratchBytes(plan.config, shard, plan.types.weights, plan.types.activations,
                           options.max_batch_tokens, options.has_adapters(), *device);
  }
  estimate.weight_bytes += plan.adapter_bytes;
  estimate.bytes_per_block = plan.BlockBytes(options.kv.block_size);
  estimate.min_blocks = plan.min_blocks;
  estimate.bytes_per_state_slot = plan.SlotBytes();
  estimate.types = plan.types;
  if (plan.types.weights == kernels::WeightType::kStored) {
    estimate.kept = DescribeStored(plan.config, plan.checkpoint);
  }
  estimate.backend_name = device->name();
  estimate.config = std::move(plan.served);
  return estimate;
}

}  // namespace continuo::model
