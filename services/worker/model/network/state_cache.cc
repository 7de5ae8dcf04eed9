// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/state_cache.h"

#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::model {
namespace {

constexpr int64_t kArrayAlignment = 64;  // bytes

// The arrays of a layer without memory.
StateCache::Layer ShapesOf(const ModelConfig& config, const Shard& shard,
                           kernels::DType activations, int64_t num_slots) {
  const StateConfig& s = config.states;
  StateCache::Layer layer;
  if (s.kind == StateKind::kNone) return layer;
  const int64_t heads = shard.state_heads.size();
  const auto rows = [&](int64_t channels) {
    return kernels::Tensor{nullptr, activations, {num_slots, s.conv_width - 1, channels}};
  };
  if (s.kind == StateKind::kConv) {
    layer.q_rows = rows(heads * s.value_dim);
    return layer;
  }
  layer.q_rows = layer.k_rows = rows(shard.state_key_heads.size() * s.key_dim);
  layer.v_rows = rows(heads * s.value_dim);
  layer.matrix = {
      nullptr, kernels::DType::kF32, {num_slots, heads, int64_t{s.key_dim} * s.value_dim}};
  return layer;
}

int64_t Aligned(const kernels::Tensor& array) {
  const auto bytes = static_cast<int64_t>(array.bytes());
  return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

std::array<kernels::Tensor*, 4> ArraysOf(StateCache::Layer& layer) {
  return {&layer.q_rows, &layer.k_rows, &layer.v_rows, &layer.matrix};
}

}  // namespace

int64_t StateCache::SlotBytes(const ModelConfig& config, const Shard& shard,
                              kernels::DType activations) {
  Layer layer = ShapesOf(config, shard, activations, 1);
  int64_t bytes = 0;
  for (const kernels::Tensor* array : ArraysOf(layer)) {
    bytes += static_cast<int64_t>(array->bytes());
  }
  return config.num_state_layers() * bytes;
}

int64_t StateCache::Bytes(const ModelConfig& config, const Shard& shard, kernels::DType activations,
                          int num_slots) {
  Layer layer = ShapesOf(config, shard, activations, num_slots);
  int64_t bytes = 0;
  for (const kernels::Tensor* array : ArraysOf(layer)) bytes += Aligned(*array);
  return config.num_state_layers() * bytes;
}

absl::StatusOr<std::unique_ptr<StateCache>> StateCache::Make(kernels::Device& device,
                                                             const ModelConfig& config,
                                                             const Shard& shard,
                                                             kernels::DType activations,
                                                             int num_slots) {
  std::unique_ptr<StateCache> cache(new StateCache(device));
  cache->num_layers_ = config.num_state_layers();
  cache->num_slots_ = num_slots;
  if (cache->num_layers_ == 0) return cache;
  cache->first_ = ShapesOf(config, shard, activations, num_slots);
  for (const kernels::Tensor* array : ArraysOf(cache->first_)) {
    cache->layer_bytes_ += Aligned(*array);
  }
  ASSIGN_OR_RETURN(void* const memory, device.Allocate(static_cast<size_t>(cache->bytes())));
  cache->memory_ = static_cast<uint8_t*>(memory);
  return cache;
}

StateCache::~StateCache() {
  if (memory_ != nullptr) device_.Free(memory_);
}

StateCache::Layer StateCache::LayerAt(int index) const {
  CONTINUO_CHECK(index >= 0 && index < num_layers_);
  Layer layer = first_;
  uint8_t* at = memory_ + index * layer_bytes_;
  for (kernels::Tensor* array : ArraysOf(layer)) {
    array->data = at;
    at += Aligned(*array);
  }
  return layer;
}

}  // namespace continuo::model
