// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device_options.h"

namespace continuo::model {

// The most tokens of one step, whatever the options ask for.
inline constexpr int kMaxBatchTokens = 1 << 17;

// The files of the model, and how much of its context is served.
struct ModelSource {
  std::string dir;  // folder of config.json and the safetensors, or a GGUF file
  // Folder of packed weights of earlier starts (weights_cache.h), on the CPU only; empty: none.
  std::string weights_cache;
  int max_context_tokens = 0;  // 0: the model's; more than the model's is an error
  // Patterns of fields of config.json and of tensors that may stay unread (known_fields.h).
  std::string allow_unread;
};

// The types that the model computes in. Activations follow the weights (weight_schemes.h).
struct Precision {
  std::string weights = "auto";   // a name of WeightSchemeNames()
  std::string kv_dtype = "auto";  // a name of KvTypeNames(); auto: the activations' type
};

// The size of the KV cache.
struct KvCacheSize {
  int block_size = 16;  // tokens of a KV block
  int num_blocks = 0;   // 0: as many as memory_bytes holds
  // Bytes of all ranks together, read where num_blocks is 0. 0 is an error on the CPU; CUDA devices
  // then give what they have free beside weights, scratch and a margin.
  uint64_t memory_bytes = 0;
  // Extra bytes per KV block on the first device, reserved for a draft model that was opened
  // before with is_later and will get the same number of blocks. memory_bytes counts them.
  int64_t other_block_bytes = 0;
  // The number of blocks is told to ModelLoader::MakeKvCache; num_blocks and memory_bytes are not
  // read.
  bool is_later = false;
};

// Slots for the states of sequences, of models that have them. Half as many sequences can run; the
// others keep states for later ones.
struct StateSlots {
  int most = 64;           // at least 2
  bool by_memory = false;  // fewer where they would take much of the memory (StateSlotsIn)
};

// A LoRA adapter that is loaded beside the model.
struct AdapterSource {
  std::string name;  // that requests give as their model
  std::string dir;   // folder of adapter_config.json and adapter_model.safetensors
};

// Adapters that are read while the model serves. Their memory is reserved.
struct RunTimeAdapters {
  std::string root;   // folder in which they lie; empty: none are
  int most = 0;       // in memory at a time, LoadOptions::adapters included
  int max_rank = 64;  // of each matrix
};

// Everything that ModelLoader needs to know.
struct LoadOptions {
  ModelSource source;
  Precision precision;
  KvCacheSize kv;
  kernels::DeviceOptions device;  // num_threads: of all ranks together; each has at least one
  StateSlots state_slots;
  std::vector<AdapterSource> adapters;
  RunTimeAdapters run_time_adapters;
  // The files' module for multi-token prediction is read, too, for an engine::MtpDrafter.
  bool reads_mtp = false;
  // Steps read final hidden states and sample nothing, as those of embedding models do. The files
  // need no head then, unless scores are made of its rows.
  bool reads_states = false;
  bool needs_head = false;
  int tensor_parallel = 1;      // ranks: 1, 2, 4 or 8; on CUDA devices one on each, or 1 for that
  int max_batch_tokens = 2048;  // of one step
  // CUDA: run warm-up steps with up to this many sequences, measure their memory, and give the KV
  // cache the rest. 0 disables the warm-up and keeps a larger safety margin.
  int warm_up_sequences = 0;
  // Is called where ReplicaOptions::on_stuck is, and where a warm-up step hangs.
  std::function<void(const absl::Status&)> on_stuck;

  // Rows of steps may have adapters.
  bool has_adapters() const { return !adapters.empty() || !run_time_adapters.root.empty(); }
};

}  // namespace continuo::model
