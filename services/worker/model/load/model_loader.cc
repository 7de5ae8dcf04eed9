// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/load/model_loader.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/tensor_names.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/checkpoint/weights_cache.h"
#include "services/worker/model/load/kv_blocks.h"
#include "services/worker/model/load/precision.h"
#include "services/worker/model/load/warm_up.h"
#include "services/worker/model/run/rank_group.h"

namespace continuo::model {
namespace {

// Calls make(rank) on a thread for each rank, all at the same time, and meanwhile() on this one.
// Returns the first error in the order of ranks.
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

}  // namespace

ModelLoader::ModelLoader(const LoadOptions& options, std::unique_ptr<kernels::Replica> replica,
                         LoadPlan plan)
    : options_(options), replica_(std::move(replica)), plan_(std::move(plan)) {}

absl::StatusOr<ModelLoader> ModelLoader::Open(const LoadOptions& options) {
  RETURN_IF_ERROR(CheckTensorParallel(options.tensor_parallel));
  ASSIGN_OR_RETURN(std::unique_ptr<kernels::Replica> replica,
                   kernels::MakeReplica({.device = options.device,
                                         .num_ranks = options.tensor_parallel,
                                         .on_stuck = options.on_stuck}));
  ASSIGN_OR_RETURN(LoadPlan plan, MakeLoadPlan(options, replica->num_ranks()));
  ModelLoader loader(options, std::move(replica), std::move(plan));
  const bool has_device_memory = loader.replica_->has_device_memory();
  ASSIGN_OR_RETURN(loader.requested_blocks_,
                   RequestedBlocks(options, loader.plan_, has_device_memory));
  ASSIGN_OR_RETURN(std::vector<kernels::Replica::Rank> ranks, loader.MakeRanks());
  loader.planned_blocks_ = loader.requested_blocks_;
  ASSIGN_OR_RETURN(
      const int state_slots,
      FitStateSlots(options, loader.plan_, loader.requested_blocks_, *loader.replica_, ranks));
  loader.model_.num_state_slots = state_slots;
  if (has_device_memory) {
    ASSIGN_OR_RETURN(loader.planned_blocks_,
                     FitBlocks(options, loader.plan_, loader.requested_blocks_, state_slots,
                               *loader.replica_, ranks));
  }
  RETURN_IF_ERROR(loader.LoadAdapters());
  RETURN_IF_ERROR(loader.LoadWeights(std::move(ranks)));
  loader.Describe();
  // A model that is loaded next sees the memory that this one's graphs leave.
  if (options.kv.is_later && loader.warms_up()) RETURN_IF_ERROR(loader.RunWarmUp(0));
  return loader;
}

// The ranks' sum is options_.device.num_threads, but each has at least one.
int ModelLoader::NumThreads(size_t rank) const {
  const int threads = options_.device.num_threads, size = replica_->num_ranks();
  const int r = static_cast<int>(rank);
  return std::max(1, threads * (r + 1) / size - threads * r / size);
}

absl::StatusOr<std::vector<kernels::Replica::Rank>> ModelLoader::MakeRanks() {
  ASSIGN_OR_RETURN(
      std::vector<kernels::Replica::Rank> ranks,
      MakeOnAllRanks<kernels::Replica::Rank>(
          static_cast<size_t>(replica_->num_ranks()),
          [&](size_t rank) { return replica_->MakeRank(static_cast<int>(rank), NumThreads(rank)); },
          [] {}));
  for (const kernels::Replica::Rank& rank : ranks) {
    RETURN_IF_ERROR(CheckSupported(*rank.device, plan_.types));
  }
  return ranks;
}

absl::Status ModelLoader::LoadAdapters() {
  if (!options_.has_adapters()) return absl::OkStatus();
  model_.adapter_pool =
      std::make_shared<AdapterPool>(plan_.config, plan_.shards, LimitsOf(options_));
  for (const AdapterSource& source : options_.adapters) {
    const auto lease = model_.adapter_pool->Load(source.dir);
    RETURN_IF_ERROR(AdapterError(source.name, lease.status()));
    model_.adapters.push_back({source.name, *lease});
  }
  return absl::OkStatus();
}

absl::Status ModelLoader::LoadWeights(std::vector<kernels::Replica::Rank> ranks) {
  Digest128 loaded;
  const auto digest_weights = [&] {
    std::vector<TensorDigest> tensors =
        DigestWeights(plan_.config, plan_.checkpoint, options_.device.num_threads);
    loaded = WeightsDigest(tensors);
    // No answer depends on the MTP module.
    std::erase_if(tensors, [](const TensorDigest& t) { return IsMtpTensor(t.name); });
    model_.fingerprint.weights = WeightsDigest(std::move(tensors));
  };
  std::optional<WeightsCache> cache;
  if (!options_.source.weights_cache.empty() && options_.device.device == "cpu") {
    digest_weights();  // names the files of the cache
    cache.emplace(options_.source.weights_cache, loaded);
  }
  std::vector<std::shared_ptr<const Adapter>> loaded_adapters;
  for (const LoadedAdapter& adapter : model_.adapters) {
    loaded_adapters.push_back(adapter.lease->adapter);
  }
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<ModelRunner>> runners,
                   MakeOnAllRanks<std::unique_ptr<ModelRunner>>(
                       ranks.size(),
                       [&](size_t rank) {
                         ranks[rank].device->BindThread();  // weights are first touched here
                         return ModelRunner::Make(
                             plan_.config, plan_.checkpoint,
                             {.weights = plan_.types.weights,
                              .activations = plan_.types.activations,
                              .kv_dtype = plan_.types.kv,
                              .block_size = options_.kv.block_size,
                              .num_state_slots = model_.num_state_slots,
                              .max_rows = options_.max_batch_tokens,
                              .reads_states = options_.reads_states,
                              .adapters = model_.adapter_pool,
                              .adapter_slots = plan_.adapter_slots[rank],
                              .loaded_adapters = loaded_adapters,
                              .graphs = options_.device.graphs,
                              .num_threads = NumThreads(rank),
                              .weights_cache = cache.has_value() ? &*cache : nullptr},
                             std::move(ranks[rank].device), std::move(ranks[rank].communicator));
                       },
                       [&] {
                         if (!cache.has_value()) digest_weights();
                       }));
  for (const std::unique_ptr<ModelRunner>& runner : runners) runners_.push_back(runner.get());
  if (runners.size() == 1) {
    model_.executor = std::move(runners[0]);
  } else {
    model_.executor = std::make_unique<RankGroup>(std::move(runners));
  }
  return absl::OkStatus();
}

void ModelLoader::Describe() {
  model_.config = plan_.served;
  model_.has_mtp = plan_.config.reads_mtp;
  model_.num_parameters = NumParameters(plan_.served);
  model_.bytes_per_block = plan_.BlockBytes(options_.kv.block_size);
  model_.block_size = options_.kv.block_size;
  model_.weight_format = kernels::NameOf(plan_.types.weights);
  model_.kv_format = TypeName(plan_.types.kv);
  model_.backend_name = runners_[0]->backend_name();
  model_.is_exact = replica_->is_exact();
  model_.placement = replica_->placement();
  FingerprintParts& fingerprint = model_.fingerprint;
  fingerprint.config = ConfigSummary(plan_.served);
  fingerprint.weight_format =
      absl::StrCat(model_.weight_format, " activations=", TypeName(plan_.types.activations));
  fingerprint.kv_format = model_.kv_format;
  fingerprint.backend = model_.backend_name;
  // On the CPU every number of ranks gives the same bits.
  if (options_.device.device != "cpu") {
    absl::StrAppend(&fingerprint.backend, " ranks=", runners_.size());
  }
  model_.weights_from_cache = true;
  for (size_t rank = 0; rank < runners_.size(); ++rank) {
    const ModelRunner& runner = *runners_[rank];
    model_.num_threads += NumThreads(rank);
    model_.weights_from_cache &= runner.weights().is_from_cache();
    model_.cache_status.Update(runner.weights().cache_status());
    model_.ranks.push_back({.weight_bytes = runner.weight_bytes(),
                            .kv_bytes = runner.kv_bytes(),
                            .state_bytes = runner.state_bytes(),
                            .scratch_bytes = runner.scratch_bytes()});
  }
}

absl::StatusOr<LoadedModel> ModelLoader::MakeKvCache() && {
  CONTINUO_CHECK(!options_.kv.is_later);
  model_.num_blocks = planned_blocks_;
  if (warms_up()) {
    ASSIGN_OR_RETURN(model_.num_blocks, MeasureBlocks());
  }
  RETURN_IF_ERROR(ResizeCaches(model_.num_blocks));
  if (warms_up()) RETURN_IF_ERROR(RunWarmUp(model_.num_blocks));
  return std::move(model_);
}

absl::StatusOr<LoadedModel> ModelLoader::MakeKvCache(int num_blocks) && {
  CONTINUO_CHECK(options_.kv.is_later && num_blocks >= 1);
  model_.num_blocks = num_blocks;
  RETURN_IF_ERROR(ResizeCaches(num_blocks));
  if (warms_up()) RETURN_IF_ERROR(RunWarmUp(num_blocks));
  return std::move(model_);
}

absl::Status ModelLoader::RunWarmUp(int num_blocks) {
  std::vector<int32_t> adapters;
  for (const LoadedAdapter& adapter : model_.adapters) adapters.push_back(adapter.lease->id);
  return WarmUp(*model_.executor,
                {.max_rows = options_.max_batch_tokens,
                 .max_sequences = options_.warm_up_sequences,
                 .context_length = plan_.config.context_length,
                 .block_size = options_.kv.block_size,
                 .spare_block = num_blocks,
                 .has_mtp = plan_.config.reads_mtp,
                 .has_states = plan_.config.has_states(),
                 .reads_states = options_.reads_states,
                 .adapters = std::move(adapters),
                 .on_stuck = options_.on_stuck},
                [&](int rows) { return runners_[0]->UsesGraphs(rows); });
}

absl::StatusOr<int> ModelLoader::MeasureBlocks() {
  RETURN_IF_ERROR(RunWarmUp(/*num_blocks=*/0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> with_graphs, replica_->FreeBytes());
  for (ModelRunner* const runner : runners_) RETURN_IF_ERROR(runner->DropGraphs());
  ASSIGN_OR_RETURN(const std::vector<int64_t> without, replica_->FreeBytes());
  std::vector<int64_t> graph_bytes;
  for (size_t rank = 0; rank < runners_.size(); ++rank) {
    RETURN_IF_ERROR(runners_[rank]->ResizeCache(0));  // but for the spare block
    graph_bytes.push_back(std::max<int64_t>(0, without[rank] - with_graphs[rank]));
    model_.ranks[rank].graph_bytes = graph_bytes.back();
  }
  return FitMeasuredBlocks(options_, plan_, requested_blocks_, *replica_, graph_bytes);
}

absl::Status ModelLoader::ResizeCaches(int num_blocks) {
  for (ModelRunner* const runner : runners_) RETURN_IF_ERROR(runner->DropGraphs());
  for (size_t rank = 0; rank < runners_.size(); ++rank) {
    RETURN_IF_ERROR(runners_[rank]->ResizeCache(num_blocks));
    model_.ranks[rank].kv_bytes = runners_[rank]->kv_bytes();
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedModel> LoadModel(const LoadOptions& options) {
  ASSIGN_OR_RETURN(ModelLoader loader, ModelLoader::Open(options));
  return std::move(loader).MakeKvCache();
}

}  // namespace continuo::model
