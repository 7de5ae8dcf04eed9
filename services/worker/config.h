// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/common/tls.h"
#include "services/worker/engine/engine.h"
#include "services/worker/model/run/loader.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::worker {

// What the flags of continuo-worker say; README.md lists them.
struct WorkerConfig {
  std::string model;       // folder of the model
  std::string model_name;  // default: the folder's name
  std::string worker_name;
  std::string device = "cpu";
  std::string listen = "0.0.0.0:50051";
  std::string metrics_listen = "0.0.0.0:9090";
  common::TlsFiles tls;
  common::SpanTarget spans;
  uint64_t max_receive_bytes = 32 << 20;
  uint64_t max_buffer_bytes = uint64_t{1} << 30;
  int max_streams_per_connection = 4096;

  int tensor_parallel = 1;
  int threads = 1;
  std::string isa = "auto";
  std::string weights = "auto";
  std::string weights_cache;  // folder; empty: none
  std::string kv_dtype = "auto";
  int max_context_tokens = 0;    // 0: the model's
  uint64_t kv_cache_memory = 0;  // 0: what the container has
  int kv_blocks = 0;             // 0: what kv_cache_memory holds
  int block_size = 16;
  int max_batch_tokens = 2048;
  int max_prefill_chunk = 512;
  int max_running = 256;
  int64_t max_queued_tokens = 262144;
  std::string speculation = "lookup";
  std::string draft_model;  // folder, of speculation=draft
  int max_draft_tokens = 8;
  absl::Duration drain_grace = absl::Seconds(5);
  bool deterministic = false;
  bool fp8_fast_accumulation = false;
  bool cuda_graphs = true;
  bool cuda_early_grids = true;
  bool cuda_warpgroup_attention = false;
};

// Either a configuration or the exit code: 0 after --help or --version, 2 after a bad command
// line, of which one line on stderr tells.
struct ParsedConfig {
  WorkerConfig config;
  std::optional<int> exit_code;
};
ParsedConfig ParseWorkerConfig(int argc, const char* const* argv);

// How the flags ask for a model, be it the one that is served or a draft model; of the folder, the
// KV cache, tensor parallelism and the context it says nothing.
model::LoadOptions CommonLoad(const WorkerConfig& config);

// What the loader is to do, KV blocks included: as many as the flags say, else as the container's
// memory holds beside weights and activations, but no more than max_running sequences of the
// whole context can fill. A draft model's weights, activations and blocks count, too.
// ResourceExhausted where the flags ask for more than `available_bytes` hold, with both numbers.
absl::StatusOr<model::LoadOptions> PlanLoad(const WorkerConfig& config, uint64_t available_bytes);

// Without the drafter of speculation=draft (draft_model.h).
engine::EngineOptions MakeEngineOptions(const WorkerConfig& config,
                                        const model::LoadedModel& model);

// `text` outlives the result.
server::ServedModel DescribeModel(const WorkerConfig& config, const model::LoadedModel& model,
                                  const text::TextModel* text);

}  // namespace continuo::worker
