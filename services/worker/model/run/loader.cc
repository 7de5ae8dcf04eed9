// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/loader.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/replica.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/checkpoint/weights_cache.h"
#include "services/worker/model/network/kv_cache.h"
#include "services/worker/model/network/model.h"
#include "services/worker/model/run/model_runner.h"
#include "services/worker/model/run/rank_group.h"
#include "services/worker/model/run/warm_up.h"

namespace continuo::model {
namespace {

constexpr int kMaxBlockSize = 1024;
constexpr int kMaxThreads = 1024;
constexpr kernels::DType kKvTypes[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                       kernels::DType::kF16, kernels::DType::kI8,
                                       kernels::DType::kF8};

std::string FormatName(kernels::DType dtype) {
  return dtype == kernels::DType::kBF16  ? "bf16"
         : dtype == kernels::DType::kF16 ? "fp16"
         : dtype == kernels::DType::kI8  ? "int8"
         : dtype == kernels::DType::kF8  ? "fp8"
                                         : "fp32";
}

absl::StatusOr<kernels::WeightType> PickWeights(const std::string& value, kernels::DType stored) {
  if (value == "auto")
    return stored == kernels::DType::kBF16 ? kernels::WeightType::kBF16 : kernels::WeightType::kF32;
  for (const kernels::WeightType type :
       {kernels::WeightType::kF32, kernels::WeightType::kBF16, kernels::WeightType::kF16,
        kernels::WeightType::kInt8, kernels::WeightType::kInt4, kernels::WeightType::kFp8}) {
    if (value == kernels::NameOf(type)) return type;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "weights is \"", value, "\"; it must be auto, fp32, bf16, fp16, int8, int4 or fp8"));
}

absl::StatusOr<kernels::DType> PickKvType(const std::string& value, kernels::DType activations) {
  if (value == "auto") return activations;
  for (const kernels::DType type : kKvTypes) {
    if (value == FormatName(type)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("kv_dtype is \"", value, "\"; it must be auto, fp32, bf16, fp16, int8 or fp8"));
}

absl::Status CheckComputes(const kernels::Backend& backend, kernels::WeightType weights) {
  if (backend.Computes(weights)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weights is ", kernels::NameOf(weights), ", with which ", backend.name(),
                   " does not compute; it needs CUDA devices",
                   weights == kernels::WeightType::kFp8 ? " of compute capability 9.0" : ""));
}

absl::Status CheckKeeps(const kernels::Backend& backend, kernels::DType kv_dtype,
                        kernels::DType activations) {
  if (backend.Keeps(kv_dtype, activations)) return absl::OkStatus();
  std::string taken = "auto";
  for (const kernels::DType type : kKvTypes) {
    if (backend.Keeps(type, activations)) absl::StrAppend(&taken, ", ", FormatName(type));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "kv_dtype is ", FormatName(kv_dtype), ", in which ", backend.name(),
      " keeps no keys and values beside activations in ", FormatName(activations), "; it takes ",
      taken,
      kv_dtype == kernels::DType::kF16 ? "; fp16 goes with fp16 weights on CUDA devices" : ""));
}

absl::Status CheckRange(const std::string& option, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is ", value, "; it must be from ", min, " to ", max));
}

// Everything decided before memory is taken.
struct LoadPlan {
  ModelConfig config;
  Checkpoint checkpoint;
  kernels::WeightType weights = kernels::WeightType::kF32;
  kernels::DType activations = kernels::DType::kF32, kv_dtype = kernels::DType::kF32;
  std::vector<Shard> shards;
  int min_blocks = 0;

  int64_t BlockBytes(const Shard& shard, int block_size) const {
    return KvCache::BlockBytes(
        config.num_layers, block_size,
        {static_cast<int>(shard.kv_heads.size()), config.head_dim, kv_dtype});
  }
  int64_t BlockBytes(int block_size) const {
    int64_t bytes = 0;
    for (const Shard& shard : shards) bytes += BlockBytes(shard, block_size);
    return bytes;
  }
};

// num_ranks: options.tensor_parallel, or what the devices say.
absl::StatusOr<LoadPlan> PlanLoad(const LoadOptions& options, int num_ranks) {
  RETURN_IF_ERROR(CheckTensorParallel(num_ranks));
  RETURN_IF_ERROR(CheckRange("threads", options.threads, 1, kMaxThreads));
  RETURN_IF_ERROR(CheckRange("block_size", options.block_size, 1, kMaxBlockSize));
  RETURN_IF_ERROR(CheckRange("max_batch_tokens", options.max_batch_tokens, 1, kMaxBatchTokens));
  ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(options.dir));
  if (options.max_context_tokens != 0) {
    RETURN_IF_ERROR(
        CheckRange("max_context_tokens", options.max_context_tokens, 1, config.context_length));
    config.context_length = options.max_context_tokens;
  }
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(options.dir));
  RETURN_IF_ERROR(CheckWeights(config, checkpoint));
  LoadPlan plan{.config = std::move(config), .checkpoint = std::move(checkpoint)};
  const kernels::DType stored = StoredType(plan.config, plan.checkpoint);
  ASSIGN_OR_RETURN(plan.weights, PickWeights(options.weights, stored));
  // A CUDA device multiplies quantised weights with bf16 alone.
  plan.activations = plan.weights == kernels::WeightType::kF32   ? kernels::DType::kF32
                     : plan.weights == kernels::WeightType::kF16 ? kernels::DType::kF16
                     : plan.weights == kernels::WeightType::kBF16 || options.device != "cpu"
                         ? kernels::DType::kBF16
                         : stored;
  ASSIGN_OR_RETURN(plan.kv_dtype, PickKvType(options.kv_dtype, plan.activations));
  for (int rank = 0; rank < num_ranks; ++rank) {
    plan.shards.push_back(MakeShard(plan.config, rank, num_ranks));
  }
  plan.min_blocks = (plan.config.context_length + options.block_size - 1) / options.block_size;
  return plan;
}

// Slots are counted in 32 bits.
int64_t MaxBlocks(const LoadOptions& options) {
  return std::numeric_limits<int32_t>::max() / options.block_size;
}

// The number of KV blocks that the options ask for; enough for one whole sequence. 0 where the
// devices' memory decides.
absl::StatusOr<int> NumBlocks(const LoadOptions& options, const LoadPlan& plan,
                              bool has_device_memory) {
  const int64_t max_blocks = MaxBlocks(options);
  int64_t blocks = options.num_blocks;
  const int64_t block = plan.BlockBytes(options.block_size) + options.other_block_bytes;
  if (options.cache_later) return 0;
  if (has_device_memory && blocks == 0 && options.kv_cache_memory == 0) return 0;
  if (blocks == 0) {
    RETURN_IF_ERROR(CheckRange("kv_cache_memory", options.kv_cache_memory, 1,
                               std::numeric_limits<int64_t>::max()));
    blocks = std::min(options.kv_cache_memory / block, max_blocks);
  } else {
    RETURN_IF_ERROR(CheckRange("kv_blocks", blocks, 1, max_blocks));
  }
  if (blocks < plan.min_blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("the KV cache has ", blocks, " blocks of ", options.block_size, " tokens, ",
                     blocks * options.block_size, " tokens; one sequence of max_context_tokens, ",
                     plan.config.context_length, ", needs ", plan.min_blocks, " blocks, ",
                     plan.min_blocks * block, " bytes"));
  }
  return static_cast<int>(blocks);
}

// Threads of one rank: their sum is options.threads, but each has at least one.
int RankThreads(const LoadOptions& options, int rank, int size) {
  return std::max(1, options.threads * (rank + 1) / size - options.threads * rank / size);
}

// make(rank) by a thread for each, all at the same time; meanwhile() by this one. The first error
// in the order of ranks.
template <typename T, typename Make, typename Meanwhile>
absl::StatusOr<std::vector<T>> MakeOnAllRanks(size_t num_ranks, Make make, Meanwhile meanwhile) {
  std::vector<absl::StatusOr<T>> made(num_ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] { made[rank] = make(rank); });
  }
  meanwhile();
  for (std::thread& thread : threads) thread.join();
  std::vector<T> all;
  for (auto& one : made) {
    RETURN_IF_ERROR(one.status());
    all.push_back(*std::move(one));
  }
  return all;
}

// Bytes that a KV block takes of a rank's device.
int64_t BlockNeeds(const LoadOptions& options, const LoadPlan& plan, size_t rank) {
  return plan.BlockBytes(plan.shards[rank], options.block_size) +
         (rank == 0 ? options.other_block_bytes : 0);
}

// How many KV blocks the devices have room for, before anything is loaded.
absl::StatusOr<int> PlanBlocks(const LoadOptions& options, const LoadPlan& plan, int wanted,
                               kernels::Replica& replica,
                               const std::vector<kernels::Replica::Rank>& ranks) {
  std::vector<kernels::RankNeeds> needs;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Shard& shard = plan.shards[rank];
    const int64_t spare = plan.BlockBytes(shard, options.block_size);  // KvCache's own
    needs.push_back(
        {.weights = WeightBytes(plan.config, shard, plan.weights, *ranks[rank].backend),
         .scratch = spare + ScratchBytes(plan.config, shard, plan.activations,
                                         options.max_batch_tokens, *ranks[rank].backend),
         .block = BlockNeeds(options, plan, rank)});
  }
  // What steps take besides is measured before the blocks that are wanted are taken.
  const bool is_measured = wanted > 0 && options.warm_up_sequences > 0;
  ASSIGN_OR_RETURN(const int64_t blocks,
                   replica.PlanBlocks(needs, {.min_blocks = plan.min_blocks,
                                              .max_blocks = MaxBlocks(options),
                                              .wanted = wanted,
                                              .is_measured = is_measured}));
  return static_cast<int>(blocks);
}

absl::Status WarmUpWith(const LoadOptions& options, int context_length, int num_blocks,
                        Executor& executor, const ModelRunner& runner) {
  return WarmUp(executor,
                {.max_rows = options.max_batch_tokens,
                 .max_sequences = options.warm_up_sequences,
                 .context_length = context_length,
                 .block_size = options.block_size,
                 .spare_block = num_blocks,
                 .on_stuck = options.on_stuck},
                [&](int rows) { return runner.Repeats(rows); });
}

// Warms the devices up with a KV cache of the spare block alone, sees what their graphs take, and
// gives the cache `wanted` blocks or, where that is 0, what is left beside that: made anew, graphs
// take as much again.
absl::StatusOr<int> MeasureBlocks(const LoadOptions& options, const LoadPlan& plan, int wanted,
                                  kernels::Replica& replica, Executor& executor,
                                  std::span<ModelRunner* const> runners,
                                  std::vector<RankMemory>& memory) {
  const int context = plan.config.context_length;
  RETURN_IF_ERROR(WarmUpWith(options, context, /*num_blocks=*/0, executor, *runners[0]));
  ASSIGN_OR_RETURN(const std::vector<int64_t> with_graphs, replica.FreeBytes());
  for (ModelRunner* const runner : runners) RETURN_IF_ERROR(runner->Forget());
  ASSIGN_OR_RETURN(const std::vector<int64_t> without, replica.FreeBytes());
  std::vector<kernels::RankNeeds> needs;
  for (size_t rank = 0; rank < runners.size(); ++rank) {
    RETURN_IF_ERROR(runners[rank]->ResizeCache(0));  // but for the spare one
    memory[rank].graph_bytes = std::max<int64_t>(0, without[rank] - with_graphs[rank]);
    needs.push_back({.block = BlockNeeds(options, plan, rank), .graphs = memory[rank].graph_bytes});
  }
  ASSIGN_OR_RETURN(const int64_t blocks,
                   replica.PlanBlocks(needs, {.min_blocks = plan.min_blocks,
                                              .max_blocks = MaxBlocks(options),
                                              .wanted = wanted,
                                              .is_measured = true}));
  for (ModelRunner* const runner : runners) {
    RETURN_IF_ERROR(runner->ResizeCache(static_cast<int>(blocks)));
  }
  RETURN_IF_ERROR(WarmUpWith(options, context, static_cast<int>(blocks), executor, *runners[0]));
  return static_cast<int>(blocks);
}

// All ranks, and *num_blocks, which is 0 where the devices' memory decides; it is so too where
// steps are measured before there are blocks.
absl::StatusOr<std::vector<std::unique_ptr<ModelRunner>>> MakeRunners(const LoadOptions& options,
                                                                      const LoadPlan& plan,
                                                                      kernels::Replica& replica,
                                                                      int* num_blocks,
                                                                      Digest128* digest) {
  const auto size = static_cast<size_t>(replica.num_ranks());
  const auto threads = [&](size_t rank) {
    return RankThreads(options, static_cast<int>(rank), replica.num_ranks());
  };
  ASSIGN_OR_RETURN(
      std::vector<kernels::Replica::Rank> ranks,
      MakeOnAllRanks<kernels::Replica::Rank>(
          size,
          [&](size_t rank) { return replica.MakeRank(static_cast<int>(rank), threads(rank)); },
          [] {}));
  for (const kernels::Replica::Rank& rank : ranks) {
    RETURN_IF_ERROR(CheckComputes(*rank.backend, plan.weights));
    RETURN_IF_ERROR(CheckKeeps(*rank.backend, plan.kv_dtype, plan.activations));
  }
  if (replica.has_device_memory()) {
    const bool later = options.cache_later || options.warm_up_sequences > 0;
    ASSIGN_OR_RETURN(*num_blocks, PlanBlocks(options, plan, *num_blocks, replica, ranks));
    if (later) *num_blocks = 0;  // but for the spare one, until it is known what is left
  }
  const auto digest_weights = [&] {
    *digest = WeightsDigest(DigestWeights(plan.config, plan.checkpoint, options.threads));
  };
  std::optional<WeightsCache> cache;
  if (!options.weights_cache.empty() && options.device == "cpu") {
    digest_weights();  // names what is looked for
    cache.emplace(options.weights_cache, *digest);
  }
  return MakeOnAllRanks<std::unique_ptr<ModelRunner>>(
      size,
      [&](size_t rank) {
        ranks[rank].backend->BindThread();  // weights are first touched here
        return ModelRunner::Make(plan.config, plan.checkpoint,
                                 {.weights = plan.weights,
                                  .activations = plan.activations,
                                  .kv_dtype = plan.kv_dtype,
                                  .num_blocks = *num_blocks,
                                  .block_size = options.block_size,
                                  .max_rows = options.max_batch_tokens,
                                  .repeats = options.graphs,
                                  .num_threads = threads(rank),
                                  .weights_cache = cache.has_value() ? &*cache : nullptr},
                                 std::move(ranks[rank].backend),
                                 std::move(ranks[rank].communicator));
      },
      [&] {
        if (!cache.has_value()) digest_weights();
      });
}

}  // namespace

absl::StatusOr<LoadEstimate> EstimateLoad(const LoadOptions& options) {
  ASSIGN_OR_RETURN(LoadPlan plan, PlanLoad(options, options.tensor_parallel));
  // One that computes nothing says how it would pack.
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                   kernels::MakeBackend({.device = options.device, .isa = options.isa}));
  RETURN_IF_ERROR(CheckComputes(*backend, plan.weights));
  RETURN_IF_ERROR(CheckKeeps(*backend, plan.kv_dtype, plan.activations));
  LoadEstimate estimate;
  for (const Shard& shard : plan.shards) {
    estimate.weight_bytes += WeightBytes(plan.config, shard, plan.weights, *backend);
    estimate.scratch_bytes += RunnerScratchBytes(plan.config, shard, plan.activations,
                                                 options.max_batch_tokens, *backend);
  }
  estimate.bytes_per_block = plan.BlockBytes(options.block_size);
  estimate.min_blocks = plan.min_blocks;
  estimate.config = std::move(plan.config);
  return estimate;
}

absl::StatusOr<LoadedModel> LoadExecutor(const LoadOptions& options) {
  RETURN_IF_ERROR(CheckTensorParallel(options.tensor_parallel));
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Replica> replica,
                   kernels::MakeReplica({.device = options.device,
                                         .isa = options.isa,
                                         .num_ranks = options.tensor_parallel,
                                         .deterministic = options.deterministic,
                                         .fp8_fast_accumulation = options.fp8_fast_accumulation,
                                         .early_grids = options.early_grids,
                                         .warpgroup_attention = options.warpgroup_attention,
                                         .on_stuck = options.on_stuck}));
  const int num_ranks = replica->num_ranks();
  ASSIGN_OR_RETURN(const LoadPlan plan, PlanLoad(options, num_ranks));
  ASSIGN_OR_RETURN(int num_blocks, NumBlocks(options, plan, replica->has_device_memory()));
  const bool warms_up = replica->has_device_memory() && options.warm_up_sequences > 0;
  const bool measures = warms_up && !options.cache_later;
  const int wanted_blocks = num_blocks;
  LoadedModel loaded;
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<ModelRunner>> runners,
                   MakeRunners(options, plan, *replica, &num_blocks, &loaded.fingerprint.weights));
  loaded.backend_name = runners[0]->backend_name();
  loaded.is_exact = replica->is_exact();
  loaded.placement = replica->placement();
  loaded.weight_format = kernels::NameOf(plan.weights);
  loaded.kv_format = FormatName(plan.kv_dtype);
  loaded.fingerprint.config = ConfigSummary(plan.config);
  loaded.fingerprint.weight_format =
      absl::StrCat(loaded.weight_format, " activations=", FormatName(plan.activations));
  loaded.fingerprint.kv_format = loaded.kv_format;
  loaded.fingerprint.backend = loaded.backend_name;
  // On the CPU every number of ranks gives the same bits.
  if (options.device != "cpu") absl::StrAppend(&loaded.fingerprint.backend, " ranks=", num_ranks);
  loaded.num_parameters = NumParameters(plan.config);
  for (int rank = 0; rank < num_ranks; ++rank) {
    loaded.num_threads += RankThreads(options, rank, num_ranks);
  }
  loaded.weights_from_cache = true;
  for (const std::unique_ptr<ModelRunner>& runner : runners) {
    loaded.weights_from_cache &= runner->weights().is_from_cache();
    loaded.cache_status.Update(runner->weights().cache_status());
  }
  loaded.config = plan.config;
  std::vector<ModelRunner*> ranks;
  for (const std::unique_ptr<ModelRunner>& runner : runners) ranks.push_back(runner.get());
  if (runners.size() == 1) {
    loaded.executor = std::move(runners[0]);
  } else {
    loaded.executor = std::make_unique<RankGroup>(std::move(runners));
  }
  loaded.ranks.resize(ranks.size());
  if (measures) {
    ASSIGN_OR_RETURN(num_blocks, MeasureBlocks(options, plan, wanted_blocks, *replica,
                                               *loaded.executor, ranks, loaded.ranks));
  } else if (warms_up) {
    RETURN_IF_ERROR(
        WarmUpWith(options, plan.config.context_length, num_blocks, *loaded.executor, *ranks[0]));
  }
  if (options.cache_later) {
    loaded.resize = [options, ranks, warms_up, context = plan.config.context_length,
                     executor = loaded.executor.get()](int blocks,
                                                       std::vector<RankMemory>& memory) {
      for (ModelRunner* const runner : ranks) RETURN_IF_ERROR(runner->Forget());
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        RETURN_IF_ERROR(ranks[rank]->ResizeCache(blocks));
        memory[rank].kv_bytes = ranks[rank]->kv_bytes();
      }
      return warms_up ? WarmUpWith(options, context, blocks, *executor, *ranks[0])
                      : absl::OkStatus();
    };
  }
  loaded.num_blocks = num_blocks;
  loaded.bytes_per_block = plan.BlockBytes(options.block_size);
  loaded.block_size = options.block_size;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    loaded.ranks[rank].weight_bytes = ranks[rank]->weight_bytes();
    loaded.ranks[rank].kv_bytes = ranks[rank]->kv_bytes();
    loaded.ranks[rank].scratch_bytes = ranks[rank]->scratch_bytes();
  }
  return loaded;
}

absl::Status MakeCache(int num_blocks, LoadedModel& model) {
  CONTINUO_CHECK(model.resize != nullptr && model.executor != nullptr && num_blocks >= 1);
  RETURN_IF_ERROR(model.resize(num_blocks, model.ranks));
  model.resize = nullptr;
  model.num_blocks = num_blocks;
  return absl::OkStatus();
}

}  // namespace continuo::model
