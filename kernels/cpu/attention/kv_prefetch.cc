// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/kv_prefetch.h"

#include <algorithm>

#include "kernels/cpu/runtime/rows.h"

namespace continuo::kernels::cpu {

void KvPrefetch::Enter(int index) {
  at_index_ = index;
  if (at_index_ >= static_cast<int64_t>(items_->size())) {
    position_ = end_ = 0;
    return;
  }
  const SeenPositions seen(item(), *kv_, *params_);
  position_ = item().begin + seen.Begin(item().begin);
  end_ = std::min(item().end, seen.end());
}

void KvPrefetch::Begin(const std::vector<AttentionItem>& items, int index, int step,
                       const PagedKv& kv, const AttentionParams& params) {
  if (index == index_) return;  // as expected: goes on where it is
  items_ = &items;
  kv_ = &kv;
  params_ = &params;
  row_bytes_ = params.head_dim * static_cast<int64_t>(SizeOf(kv.cache.dtype));
  step_ = step;
  index_ = index;
  Enter(index);
  // The first chunk is read at once.
  position_ = std::min(item().begin + kKvChunk, end_);
}

MemoryRange* KvPrefetch::Next(int n, MemoryRange* out) {
  while (n > 0 && at_index_ < static_cast<int64_t>(items_->size())) {
    if (position_ >= end_) {
      Enter(static_cast<int>(at_index_) + step_);
      continue;
    }
    const int32_t* table =
        static_cast<const int32_t*>(kv_->block_tables.data) + item().seq * kv_->block_tables.cols();
    const int64_t offset = position_ % kv_->block_size;
    const int64_t length = std::min({int64_t{n}, end_ - position_, kv_->block_size - offset});
    for (const int which : {0, 1}) {
      const char* const rows =
          KvRows(*kv_, table[position_ / kv_->block_size], item().kv_head, which);
      *out++ = {rows + offset * row_bytes_, length * row_bytes_};
    }
    position_ += length;
    n -= static_cast<int>(length);
  }
  return out;
}

}  // namespace continuo::kernels::cpu
