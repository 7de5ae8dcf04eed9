// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/kv_cache.h"

#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo {

int64_t KvCache::BlockBytes(int num_layers, int block_size, int width, DType dtype) {
  return int64_t{2} * num_layers * block_size * width * static_cast<int64_t>(SizeOf(dtype));
}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Make(Backend& backend, int num_layers,
                                                       int num_blocks, int block_size, int width,
                                                       DType dtype) {
  std::unique_ptr<KvCache> cache(new KvCache(backend));
  cache->num_layers_ = num_layers;
  cache->num_blocks_ = num_blocks;
  cache->block_size_ = block_size;
  cache->width_ = width;
  cache->dtype_ = dtype;
  cache->block_bytes_ = BlockBytes(num_layers, block_size, width, dtype);
  ASSIGN_OR_RETURN(void* memory, backend.Allocate(static_cast<size_t>(cache->bytes())));
  cache->memory_ = static_cast<uint8_t*>(memory);
  return cache;
}

KvCache::~KvCache() {
  if (memory_ != nullptr) backend_.Free(memory_);
}

PagedKv KvCache::Layer(int layer, PagedKv kv) const {
  CONTINUO_CHECK(layer >= 0 && layer < num_layers_);
  const int64_t half = num_blocks_ * (block_bytes_ / (2 * num_layers_));  // bytes of all keys
  uint8_t* keys = memory_ + 2 * layer * half;
  kv.keys = {keys, dtype_, {num_blocks_, block_size_, width_}};
  kv.values = {keys + half, dtype_, {num_blocks_, block_size_, width_}};
  return kv;
}

void KvCache::CopyBlocks(Tensor pairs) {
  for (int layer = 0; layer < num_layers_; ++layer) {
    backend_.CopyKvBlocks(Layer(layer, PagedKv{}), pairs);
  }
}

}  // namespace continuo
