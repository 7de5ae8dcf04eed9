// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/kv_cache.h"

#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::model {

int64_t KvCache::BlockBytes(int num_layers, int block_size, const Shape& shape) {
  return int64_t{2} * num_layers * shape.num_heads * block_size *
         kernels::KvRowElements(shape.dtype, shape.head_dim) *
         static_cast<int64_t>(kernels::SizeOf(shape.dtype));
}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Make(kernels::Device& device, int num_layers,
                                                       int num_blocks, int block_size,
                                                       Shape shape) {
  std::unique_ptr<KvCache> cache(new KvCache(device));
  cache->num_layers_ = num_layers;
  cache->num_spare_ = device.SharesHostMemory() ? 0 : 1;
  cache->block_size_ = block_size;
  cache->shape_ = shape;
  cache->block_bytes_ = BlockBytes(num_layers, block_size, shape);
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
  CONTINUO_CHECK(layer >= 0 && layer < num_layers_);
  const int64_t num_blocks = num_blocks_ + num_spare_;
  const int64_t layer_bytes = num_blocks * (block_bytes_ / num_layers_);
  const int64_t row = kernels::KvRowElements(shape_.dtype, shape_.head_dim);
  kv.cache = {memory_ + layer * layer_bytes,
              shape_.dtype,
              {num_blocks, shape_.num_heads, 2 * block_size_ * row}};
  kv.block_size = block_size_;
  return kv;
}

void KvCache::CopyBlocks(kernels::Tensor pairs) {
  for (int layer = 0; layer < num_layers_; ++layer) {
    device_.ops().attention.CopyKvBlocks(Layer(layer, kernels::PagedKv{}), pairs);
  }
}

}  // namespace continuo::model
