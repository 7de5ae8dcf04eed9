// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/state_cache.h"

#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::model {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, of the beginning of each layer

kernels::Tensor ConvStates(const ModelConfig& config, const Shard& shard,
                           kernels::DType activations, int num_slots) {
  return {nullptr, activations, {num_slots, config.short_conv.width - 1, shard.channels.size()}};
}

int64_t LayerBytes(const kernels::Tensor& states) {
  return (static_cast<int64_t>(states.bytes()) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

StateCache::StateCache(kernels::Device& device, const ModelConfig& config, const Shard& shard,
                       kernels::DType activations, int num_slots)
    : device_(device), config_(config), num_slots_(num_slots) {
  if (!config.has_states() || num_slots == 0) return;
  layer_ = ConvStates(config, shard, activations, num_slots);
  layer_bytes_ = LayerBytes(layer_);
}

absl::StatusOr<std::unique_ptr<StateCache>> StateCache::Make(kernels::Device& device,
                                                             const ModelConfig& config,
                                                             const Shard& shard,
                                                             kernels::DType activations,
                                                             int num_slots) {
  std::unique_ptr<StateCache> cache(new StateCache(device, config, shard, activations, num_slots));
  const int64_t bytes = Bytes(config, shard, activations, num_slots);
  if (bytes == 0) return cache;
  ASSIGN_OR_RETURN(void* const memory, device.Allocate(static_cast<size_t>(bytes)));
  cache->memory_ = static_cast<uint8_t*>(memory);
  return cache;
}

StateCache::~StateCache() {
  if (memory_ != nullptr) device_.Free(memory_);
}

int64_t StateCache::Bytes(const ModelConfig& config, const Shard& shard, kernels::DType activations,
                          int num_slots) {
  if (!config.has_states() || num_slots == 0) return 0;
  return config.NumStatesBefore(config.num_layers) *
         LayerBytes(ConvStates(config, shard, activations, num_slots));
}

kernels::Tensor StateCache::Conv(int layer) const {
  CONTINUO_CHECK(config_.mixer(layer) == Mixer::kShortConv && num_slots_ > 0);
  kernels::Tensor states = layer_;
  states.data = memory_ + config_.NumStatesBefore(layer) * layer_bytes_;
  return states;
}

}  // namespace continuo::model
