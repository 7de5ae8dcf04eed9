// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/description/config.h"

namespace continuo::model {

// The bytes behind the engine's state slots: one rank's states of all layers that have one. A slot
// names the same place in every layer. Slots hold anything at first: a sequence begins with zeros
// where its StepPlan::state_from is -1.
class StateCache {
 public:
  // The arrays of a layer, as StateOps takes them. A tensor that the kind of layer does not have
  // is empty.
  struct Layer {
    // In the activations' type [slots, width - 1, channels of this rank]: of queries, keys and
    // values. A short convolution has the first alone.
    kernels::Tensor q_rows, k_rows, v_rows;
    kernels::Tensor matrix;  // f32 [slots, heads of this rank, key_dim * value_dim]
  };

  // ResourceExhausted where the device has not enough memory. `device` outlives the result. A model
  // without such layers has no bytes.
  static absl::StatusOr<std::unique_ptr<StateCache>> Make(kernels::Device& device,
                                                          const ModelConfig& config,
                                                          const Shard& shard,
                                                          kernels::DType activations,
                                                          int num_slots);
  ~StateCache();
  StateCache(const StateCache&) = delete;
  StateCache& operator=(const StateCache&) = delete;

  // Returns the bytes of one slot in all layers, the alignment of arrays aside.
  static int64_t SlotBytes(const ModelConfig& config, const Shard& shard,
                           kernels::DType activations);
  // Returns the bytes that Make takes.
  static int64_t Bytes(const ModelConfig& config, const Shard& shard, kernels::DType activations,
                       int num_slots);

  // `index` counts the layers with state alone.
  Layer LayerAt(int index) const;
  int num_slots() const { return num_slots_; }
  int64_t bytes() const { return num_layers_ * layer_bytes_; }

 private:
  explicit StateCache(kernels::Device& device) : device_(device) {}

  kernels::Device& device_;
  uint8_t* memory_ = nullptr;  // layer by layer
  int num_layers_ = 0, num_slots_ = 0;
  Layer first_;  // the shapes of each layer's arrays
  int64_t layer_bytes_ = 0;
};

}  // namespace continuo::model
