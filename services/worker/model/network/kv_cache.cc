// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/kv_cache.h"

#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::model {

std::vector<KvCache::Shape> KvCache::Shapes(const ModelConfig& config, const Shard& shard,
                                            kernels::DType dtype) {
  std::vector<Shape> layers;
  const int num_layers = config.num_layers + (config.reads_mtp ? 1 : 0);
  for (int i = 0; i < num_layers; ++i) {
    if (i < config.num_layers && (!config.has_mixer(i) || !config.has_own_kv(i))) continue;
    if (config.has_state(i)) continue;
    const Range& heads = shard.kv_heads_of(config.has_other_heads(i));
    layers.push_back({static_cast<int>(heads.size()), config.head_dim_of(i), dtype});
  }
  return layers;
}

int64_t KvCache::BlockBytes(std::span<const Shape> layers, int block_size) {
  int64_t bytes = 0;
  for (const Shape& shape : layers) {
    bytes += int64_t{2} * shape.num_heads * block_size *
             kernels::KvRowElements(shape.dtype, shape.head_dim) *
             static_cast<int64_t>(kernels::SizeOf(shape.dtype));
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Make(kernels::Device& device,
                                                       std::vector<Shape> layers, int num_blocks,
                                                       int block_size) {
  std::unique_ptr<KvCache> cache(new KvCache(device));
  cache->num_spare_ = device.SharesHostMemory() ? 0 : 1;
  cache->block_size_ = block_size;
  cache->layers_ = std::move(layers);
  for (size_t i = 0; i <= cache->layers_.size(); ++i) {
    cache->bytes_before_.push_back(BlockBytes(std::span(cache->layers_).first(i), block_size));
  }
  RETURN_IF_ERROR(cache->Resize(num_blocks));
  return cache;
}

absl::Status KvCache::Resize(int num_blocks) {
  if (memory_ != nullptr) device_.Free(std::exchange(memory_, nullptr));
  num_blocks_ = num_blocks;
  ASSIGN_OR_RETURN(void* const memory, device_.Allocate(static_cast<size_t>(bytes())));
  memory_ = static_cast<uint8_t*>(memory);
  return absl::OkStatus();
}

KvCache::~KvCache() {
  if (memory_ != nullptr) device_.Free(memory_);
}

kernels::PagedKv KvCache::Layer(int layer, kernels::PagedKv kv) const {
  CONTINUO_CHECK(layer >= 0 && layer < static_cast<int>(layers_.size()));
  const auto at = static_cast<size_t>(layer);
  const Shape& shape = layers_[at];
  const int64_t num_blocks = num_blocks_ + num_spare_;
  const int64_t row = kernels::KvRowElements(shape.dtype, shape.head_dim);
  kv.cache = {memory_ + num_blocks * bytes_before_[at],
              shape.dtype,
              {num_blocks, shape.num_heads, 2 * block_size_ * row}};
  kv.block_size = block_size_;
  return kv;
}

void KvCache::CopyBlocks(kernels::Tensor pairs) {
  for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
    device_.ops().attention.CopyKvBlocks(Layer(layer, kernels::PagedKv{}), pairs);
  }
}

}  // namespace continuo::model
