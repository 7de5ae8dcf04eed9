// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/description/config.h"

namespace continuo::model {

// The bytes behind the engine's state slots: one rank's states of all layers that have one. The
// number of a slot names the same place in every layer.
class StateCache {
 public:
  // ResourceExhausted where the device has not enough memory. `device` outlives the result. With
  // num_slots 0, or a model without states, it is empty.
  static absl::StatusOr<std::unique_ptr<StateCache>> Make(kernels::Device& device,
                                                          const ModelConfig& config,
                                                          const Shard& shard,
                                                          kernels::DType activations,
                                                          int num_slots);
  ~StateCache();
  StateCache(const StateCache&) = delete;
  StateCache& operator=(const StateCache&) = delete;

  // Returns the bytes of so many slots in all layers.
  static int64_t Bytes(const ModelConfig& config, const Shard& shard, kernels::DType activations,
                       int num_slots);

  // Returns the states of a layer that has one, `layer` of all layers, as CausalConv takes them:
  // [slots, width - 1, this rank's channels].
  kernels::Tensor Conv(int layer) const;

  int num_slots() const { return num_slots_; }

 private:
  StateCache(kernels::Device& device, const ModelConfig& config, const Shard& shard,
             kernels::DType activations, int num_slots);

  kernels::Device& device_;
  const ModelConfig& config_;
  const int num_slots_;
  kernels::Tensor layer_;  // of the first layer with a state
  int64_t layer_bytes_ = 0;
  uint8_t* memory_ = nullptr;  // layer by layer
};

}  // namespace continuo::model
