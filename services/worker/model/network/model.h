// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/communicator.h"
#include "services/worker/model/checkpoint/config.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/network/kv_cache.h"

namespace continuo::model {

// Rows of the head computed at a time, at most, so that logits take bounded memory whatever the
// number of samples (exactness: prompt-logprobs): those that a host reads, and those that a device
// keeps apart, for which reading the head again costs more than their memory.
inline constexpr int kHostLogitRows = 64;
inline int LogitRows(const kernels::Backend& backend) {
  return backend.SharesHostMemory() ? kHostLogitRows : 256;
}

// The arrays of a StepPlan after they reached the device, all i32.
struct DeviceStep {
  kernels::Tensor token_ids, positions, kv_slots;  // [rows]
  kernels::PagedKv kv;                             // `cache` is filled in per layer
  kernels::Tensor wanted_rows;  // [n], strictly ascending: those whose logits may be asked for
  // One of the few shapes of steps that decode (step_shape.h): all rows are wanted.
  bool recurs = false;
};

// One rank's transformer, as a list of Backend calls. Every rank of a replica makes the same calls
// in the same order.
class Model {
 public:
  virtual ~Model() = default;
  // Enqueues one pass. The hidden states of the wanted rows live until the next one.
  virtual absl::Status Forward(const DeviceStep& step) = 0;
  // Whether that of so many rows is done again by Backend::Repeat where the step recurs.
  virtual bool Repeats(int64_t /*rows*/) const { return false; }
  // Enqueues the head for the last pass's wanted rows [first, first + n), n ≤ LogitRows. The
  // logits f32 [n, vocab], the same on every rank, live until the next call.
  virtual kernels::Tensor Logits(int64_t first, int64_t n) = 0;
};

// What a model is made from; the references outlive it.
struct ModelParts {
  const ModelConfig& config;
  const Shard& shard;
  const ModelWeights& weights;
  kernels::DType activations = kernels::DType::kF32;  // f32, bf16 or f16
  int max_rows = 0;                                   // of one pass
  kernels::Backend& backend;
  kernels::Communicator& communicator;
  const KvCache& cache;
};

// Bytes that a model will ask the backend for.
int64_t ScratchBytes(const ModelConfig& config, const Shard& shard, kernels::DType activations,
                     int max_rows, const kernels::Backend& backend);

// The factory of the architecture, from the table in registry.cc. Unimplemented names one that is
// not in it; ResourceExhausted where the backend has not enough memory.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelParts& parts);

}  // namespace continuo::model
