// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/attention_ops.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "kernels/state_ops.h"
#include "kernels/tensor.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/network/adapter_layers.h"
#include "services/worker/model/network/kv_cache.h"
#include "services/worker/model/network/state_cache.h"

namespace continuo::model {

// The most rows of the head that are computed at a time, so that logits take bounded memory
// whatever the number of samples (exactness: prompt-logprobs). Where a device has memory of its
// own, reading the head's weights again costs more than the memory of more logits.
inline constexpr int kHostLogitRows = 64;
inline int LogitRows(const kernels::Device& device) {
  return device.SharesHostMemory() ? kHostLogitRows : 256;
}

// The arrays of a StepPlan after they have reached the device, all i32.
struct DeviceStep {
  kernels::Tensor token_ids, positions, kv_slots;  // [rows]
  kernels::Tensor token_types;  // [rows] of an encoder with such a table, else empty
  kernels::PagedKv kv;          // `cache` is filled in per layer
  kernels::StatePlaces states;  // empty unless the model has layers with state
  kernels::Tensor wanted_rows;  // [n], strictly ascending: the rows whose logits may be asked for
  // [rows] in a step of the MTP module, else empty: see StepPlan::hidden_rows.
  kernels::Tensor hidden_rows;
  // The rows with an adapter, and those of them that are wanted, by their places in wanted_rows.
  // Null: there are none.
  const AdapterRows *adapters = nullptr, *wanted_adapters = nullptr;
  // The step has one of the few shapes of steps that only decode (step_shape.h), so that a graph of
  // it will be replayed. All rows are wanted.
  bool is_capturable = false;
};

// The transformer of one rank, a list of ops. Every rank of a replica makes the same calls in the
// same order.
class Model {
 public:
  virtual ~Model() = default;
  // Enqueues one pass. The hidden states of the wanted rows live until the next one.
  virtual absl::Status Forward(const DeviceStep& step) = 0;
  // Returns whether capturable steps of so many rows are captured as graphs (Device::RunGraph).
  virtual bool IsCapturable(int64_t /*rows*/) const { return false; }
  // Enqueues the final norm of the last pass's wanted rows [first, first + n), n ≤ LogitRows: what
  // the head reads, [n, hidden] in the activations' type, the same on every rank. It lives until
  // the next call of this or of Logits.
  virtual kernels::Tensor FinalStates(int64_t first, int64_t n) = 0;
  // Enqueues the head for the last pass's wanted rows [first, first + n), n ≤ LogitRows. The
  // logits f32 [n, vocab], the same on every rank, live until the next call.
  virtual kernels::Tensor Logits(int64_t first, int64_t n) = 0;
};

// The dependencies of a model; the references outlive it.
struct ModelDependencies {
  const ModelConfig& config;
  const Shard& shard;
  const ModelWeights& weights;
  kernels::WeightType weight_type = kernels::WeightType::kF32;  // of most matrices
  kernels::DType activations = kernels::DType::kF32;            // f32, bf16 or f16
  int max_rows = 0;                                             // of one pass
  kernels::Device& device;
  kernels::Communicator& communicator;
  const KvCache& cache;                // of the layers with keys and values
  const StateCache* states = nullptr;  // null: no layer has a state
  bool has_adapters = false;           // rows of steps may have adapters
};

// The bytes of a decoder's buffers: what MakeModel allocates on the device.
int64_t ScratchBytes(const ModelConfig& config, const Shard& shard, kernels::WeightType weights,
                     kernels::DType activations, int max_rows, bool has_adapters,
                     const kernels::Device& device);

// Makes the model of the architecture (registry.cc). Unimplemented names one that is no family's;
// ResourceExhausted where the device has not enough memory.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelDependencies& parts);

}  // namespace continuo::model
