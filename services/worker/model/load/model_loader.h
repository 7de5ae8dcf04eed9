// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/replica.h"
#include "services/worker/model/adapter/adapter_pool.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/executor.h"
#include "services/worker/model/load/load_options.h"
#include "services/worker/model/load/load_plan.h"
#include "services/worker/model/run/model_runner.h"

namespace continuo::model {

// The memory of one rank, in bytes.
struct RankMemory {
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t state_bytes = 0;    // slots of recurrent states
  int64_t scratch_bytes = 0;  // activations of the largest step, and logits
  int64_t graph_bytes = 0;    // device memory of CUDA graphs, where a warm-up measured it
};

// An adapter in memory.
struct LoadedAdapter {
  std::string name;
  std::shared_ptr<const AdapterLease> lease;
};

// A model ready to run. `executor` owns everything; the rest describes it.
struct LoadedModel {
  ModelConfig config;  // context_length cut to max_context_tokens
  std::unique_ptr<Executor> executor;
  FingerprintParts fingerprint;  // MakeFingerprint() joins it with the text's digests
  int64_t num_parameters = 0;
  int num_threads = 0;          // host threads that compute, of all ranks; at least one each
  int num_blocks = 0;           // of the KV cache
  int64_t bytes_per_block = 0;  // of all ranks together
  int block_size = 0;           // tokens
  int num_state_slots = 0;      // 0: the model has no layers with state
  // A name of WeightSchemeNames(): the types computed in, which need not be those stored.
  std::string weight_format;
  std::string kv_format;     // a name of KvTypeNames()
  std::string backend_name;  // "cpu/avx2"
  bool has_mtp = false;      // the executor takes steps of the MTP module (StepPlan::hidden_rows)
  bool is_exact = true;      // a row's results depend on that row and the fingerprint alone
  std::string placement;     // as Replica::placement
  std::vector<RankMemory> ranks;
  bool weights_from_cache = false;  // of all ranks
  absl::Status cache_status;        // the error that made the weights cache useless, if any
  std::shared_ptr<AdapterPool> adapter_pool;  // null where no adapter was asked for
  std::vector<LoadedAdapter> adapters;        // in the order of LoadOptions::adapters
};

// Loads a model in two steps, so that two models can divide a device's memory: the draft model
// opens, the served model takes what KV blocks there is room for, then the draft model gets as
// many. One thread at a time.
class ModelLoader {
 public:
  // Reads config.json, maps the weights, gives each rank its shard, and starts the ranks.
  // InvalidArgument names the option, file, field or tensor and the limit (a KV cache that cannot
  // hold one sequence of max_context_tokens too, with both numbers); NotFound a missing file;
  // ResourceExhausted the bytes that were not to be had. With is_later and a warm-up the CUDA
  // graphs' memory is taken on return, too.
  static absl::StatusOr<ModelLoader> Open(const LoadOptions& options);
  ModelLoader(ModelLoader&&) = default;
  ModelLoader& operator=(ModelLoader&&) = default;

  // Describes what was opened; there are no KV blocks yet.
  const LoadedModel& model() const { return model_; }

  // Allocates the KV cache that the options ask for, and ends the loader. ResourceExhausted as
  // Open.
  absl::StatusOr<LoadedModel> MakeKvCache() &&;
  // The same with is_later, for `num_blocks` ≥ 1 blocks.
  absl::StatusOr<LoadedModel> MakeKvCache(int num_blocks) &&;

 private:
  ModelLoader(const LoadOptions& options, std::unique_ptr<kernels::Replica> replica, LoadPlan plan);

  bool warms_up() const { return replica_->has_device_memory() && options_.warm_up_sequences > 0; }
  int NumThreads(size_t rank) const;
  // The device and communicator of each rank, checked against the plan's types.
  absl::StatusOr<std::vector<kernels::Replica::Rank>> MakeRanks();
  absl::Status LoadAdapters();
  absl::Status LoadWeights(std::vector<kernels::Replica::Rank> ranks);
  void Describe();
  absl::Status RunWarmUp(int num_blocks);
  // Warms the devices up with a KV cache of the spare block alone, measures what their graphs take,
  // and returns how many KV blocks fit beside graphs that are captured anew.
  absl::StatusOr<int> MeasureBlocks();
  // Drops the graphs and gives every rank `num_blocks` empty KV blocks.
  absl::Status ResizeCaches(int num_blocks);

  LoadOptions options_;
  std::unique_ptr<kernels::Replica> replica_;
  LoadPlan plan_;
  int requested_blocks_ = 0;  // 0: the devices' memory decides
  int planned_blocks_ = 0;    // without a warm-up
  LoadedModel model_;
  std::vector<ModelRunner*> runners_;  // of model_.executor
};

// Opens a model and makes its KV cache.
absl::StatusOr<LoadedModel> LoadModel(const LoadOptions& options);

}  // namespace continuo::model
