// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "services/worker/model/checkpoint/config.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/executor.h"

namespace continuo::model {

// Rows of one step at most, whatever the options ask for.
inline constexpr int kMaxBatchTokens = 1 << 17;

struct LoadOptions {
  std::string dir;             // of config.json and the safetensors
  std::string device = "cpu";  // as ReplicaOptions::device
  std::string isa = "auto";    // as BackendOptions::isa
  int tensor_parallel = 1;     // ranks: 1, 2, 4 or 8; on CUDA devices one on each, or 1 for that
  int threads = 1;             // of all ranks together; each has at least one
  bool deterministic = false;  // these as BackendOptions has them
  bool fp8_fast_accumulation = false;
  bool early_grids = true;  // these as ReplicaOptions has them
  bool warpgroup_attention = false;
  // auto (as stored; fp16 becomes fp32), fp32, bf16, fp16, int8, int4, fp8. Activations are bf16
  // where weights are, or are stored so and quantised here, or are quantised for a CUDA device;
  // fp16 where weights are; else fp32.
  std::string weights = "auto";
  std::string kv_dtype = "auto";  // auto (as the activations), fp32, bf16, fp16, int8, fp8
  int max_context_tokens = 0;     // 0: the model's; more than the model's is refused
  int num_blocks = 0;             // of the KV cache; 0: what kv_cache_memory holds
  // Bytes, of all ranks together; read where num_blocks is 0. 0: on the CPU refused, on CUDA
  // devices what they have free beside weights, scratch and a margin.
  int64_t kv_cache_memory = 0;
  // Without KV blocks until MakeCache says how many; num_blocks and kv_cache_memory are not read.
  bool cache_later = false;
  // Bytes that each KV block takes besides on the first device: of a draft model that is there
  // already, with cache_later, and gets as many. kv_cache_memory counts them.
  int64_t other_block_bytes = 0;
  int block_size = 16;          // tokens of a KV block
  int max_batch_tokens = 2048;  // rows of one step at most
  bool graphs = true;           // as ModelRunnerOptions::repeats
  // On CUDA devices: what steps of up to so many sequences take there is taken and measured before
  // the KV cache gets the rest, and their graphs are made. 0: neither; a larger margin stays free.
  int warm_up_sequences = 0;
  // Folder of packed weights of earlier starts (weights_cache.h); empty: none. Only on the CPU.
  std::string weights_cache;
  std::function<void(const absl::Status&)> on_stuck;  // as ReplicaOptions::on_stuck
};

// What one rank holds.
struct RankMemory {
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t scratch_bytes = 0;  // activations of the largest step, and logits
  int64_t graph_bytes = 0;    // that the device's memory lost to graphs, where that was measured
};

// A model ready to run. `executor` owns everything; the rest describes it, but for `resize`.
struct LoadedModel {
  ModelConfig config;  // context_length cut to max_context_tokens
  std::unique_ptr<Executor> executor;
  FingerprintParts fingerprint;  // MakeFingerprint() joins it with the text's digests
  int64_t num_parameters = 0;
  int num_threads = 0;  // that compute, of all ranks: at least one each, whatever was asked for
  int num_blocks = 0;   // of the KV cache
  int64_t bytes_per_block = 0;  // of all ranks together
  int block_size = 0;
  // "fp32", "bf16", "fp16", "int8", "int4", "fp8": as computed, which need not be as stored.
  std::string weight_format;
  std::string kv_format;
  std::string backend_name;  // "cpu/avx2"
  // Whether a row's results depend on that row and the fingerprint alone.
  bool is_exact = true;
  std::string placement;  // as Replica::placement
  std::vector<RankMemory> ranks;
  bool weights_from_cache = false;  // of all ranks
  absl::Status cache_status;        // why the cache was of no use, though there is one
  // With cache_later: what MakeCache does to the executor, and to what is known of its ranks.
  std::function<absl::Status(int num_blocks, std::vector<RankMemory>& ranks)> resize;
};

// Reads config.json, maps the weights, gives each rank its shard and a KV cache, and starts the
// ranks. InvalidArgument names the option, file, field or tensor and the limit (a KV cache that
// cannot hold one sequence of max_context_tokens too, with both numbers); NotFound a missing file;
// ResourceExhausted the bytes that were not to be had.
absl::StatusOr<LoadedModel> LoadExecutor(const LoadOptions& options);

// Gives a model that was loaded with cache_later its KV blocks, before its first step.
// ResourceExhausted as LoadExecutor.
absl::Status MakeCache(int num_blocks, LoadedModel& model);

// What LoadExecutor will need, so that a caller can size it from the memory it has. Reads the
// headers of the files only.
struct LoadEstimate {
  ModelConfig config;           // context_length cut to max_context_tokens
  int64_t weight_bytes = 0;     // of all ranks together, replicated parts as often as held
  int64_t scratch_bytes = 0;    // likewise
  int64_t bytes_per_block = 0;  // of all ranks together
  int min_blocks = 0;           // that hold one sequence of max_context_tokens
};
absl::StatusOr<LoadEstimate> EstimateLoad(const LoadOptions& options);

}  // namespace continuo::model
