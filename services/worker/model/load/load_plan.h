// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "services/worker/model/adapter/adapter_pool.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/load/load_options.h"
#include "services/worker/model/load/precision.h"

namespace continuo::model {

// Everything about a load that is decided before any device memory is taken.
struct LoadPlan {
  ModelConfig served;  // what answers depend on; context_length cut to max_context_tokens
  ModelConfig config;  // what is loaded: the same, and the MTP layer where that is asked for
  Checkpoint checkpoint;
  ComputeTypes types;
  std::vector<Shard> shards;  // of each rank
  int min_blocks = 0;         // KV blocks that hold one sequence of context_length
  // Of all adapters and ranks, and what is reserved for those that are read later.
  int64_t adapter_bytes = 0;
  // The bytes, for each rank, of each adapter that may be in memory at a time: those of the options
  // come first, then the most that others may have. A device with memory of its own keeps a copy of
  // each (DeviceAdapters).
  std::vector<std::vector<int64_t>> adapter_slots;

  // Returns the bytes that a rank's copies take on this device.
  int64_t AdapterCopyBytes(size_t rank, const kernels::Device& device) const;
  // Bytes of a KV block of `block_size` tokens in all layers: of one rank, and of all.
  int64_t BlockBytes(const Shard& shard, int block_size) const;
  int64_t BlockBytes(int block_size) const;
  // Bytes of a slot of states in all layers, of all ranks; 0: no layer has a state.
  int64_t SlotBytes() const;
};

// The limits of the pool that has the model's adapters.
AdapterLimits LimitsOf(const LoadOptions& options);

// Checks the options, reads config.json and maps the weights. `num_ranks` is tensor_parallel, or
// what the devices say. InvalidArgument names the option, file, field or tensor and the limit;
// NotFound a missing file; Unimplemented a model whose heads of states are not divided over the
// ranks in whole groups.
absl::StatusOr<LoadPlan> MakeLoadPlan(const LoadOptions& options, int num_ranks);

// Returns how many slots of `slot_bytes` a model gets where `free_bytes` are left beside weights
// and activations: as many as are wanted, but by memory no more than take a quarter of it, since
// slots do not give their memory back to the KV cache. 0: no layer has a state.
int StateSlotsIn(uint64_t free_bytes, int64_t slot_bytes, const StateSlots& wanted);

// The memory that ModelLoader will take, so that a caller can size the KV cache from what it has.
struct LoadEstimate {
  ModelConfig config;  // context_length cut to max_context_tokens
  // Of all ranks together, replicated parts as often as held; those of adapters, too.
  int64_t weight_bytes = 0;
  int64_t scratch_bytes = 0;         // likewise; states aside
  int64_t bytes_per_block = 0;       // of all ranks together
  int min_blocks = 0;                // KV blocks that hold one sequence of max_context_tokens
  int64_t bytes_per_state_slot = 0;  // of all ranks together; 0: no layer has a state
  ComputeTypes types;
  std::vector<std::string> kept;  // with stored weights, how: DescribeStored
  std::string backend_name;       // Device::name()
};

// Reads the headers of the files only. Errors as MakeLoadPlan, and InvalidArgument for types that
// the device does not support.
absl::StatusOr<LoadEstimate> EstimateLoad(const LoadOptions& options);

// Puts the name of an adapter in front of an error's message.
absl::Status AdapterError(const std::string& name, const absl::Status& status);

// Returns InvalidArgument naming the option unless `value` is in [min, max].
absl::Status CheckRange(const std::string& option, int64_t value, int64_t min, int64_t max);

// The number of KV blocks of a model without keys and values, where nobody asks for another: they
// cost the host their bookkeeping alone, and count the tokens of the prefix cache.
int64_t BlocksWithoutBytes(int64_t min_blocks);

}  // namespace continuo::model
