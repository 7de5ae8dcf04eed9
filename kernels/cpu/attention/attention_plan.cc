// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_plan.h"

#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

// The least number of chunks in a part of an item: fewer are not worth keeping its results.
constexpr int64_t kMinChunks = 8;
// Items of more queries are not split: they are many already, and their results would be large.
constexpr int kMostSplitQueries = 16;
// The results take at most 16 MiB.
constexpr int64_t kMostPartialFloats = int64_t{4} << 20;

int64_t ChunksOf(const AttentionItem& item) { return (item.end - item.begin) / kKvChunk; }

// Decoding waits for memory, which all queries of an item read together; prefill computes.
int64_t CostOf(const AttentionItem& item) { return ChunksOf(item) * (8 + item.num_queries()); }

}  // namespace

SeenPositions::SeenPositions(const AttentionItem& item, const PagedKv& kv,
                             const AttentionParams& params)
    : window_(params.window), chunk_(params.chunk), bidirectional_(params.bidirectional) {
  const int32_t* query_begin = static_cast<const int32_t*>(kv.query_begin.data);
  const int32_t rows = query_begin[item.seq + 1] - query_begin[item.seq];
  length_ = static_cast<const int32_t*>(kv.kv_len.data)[item.seq];
  first_ = length_ - rows + item.first_row;
  last_ = first_ + item.num_rows - 1;
}

void AttentionPlan::Make(const PagedKv& kv, const AttentionParams& params, int64_t stride,
                         int num_threads) {
  const int32_t* query_begin = static_cast<const int32_t*>(kv.query_begin.data);
  const int32_t* kv_len = static_cast<const int32_t*>(kv.kv_len.data);
  items_.clear();
  for (int seq = 0; seq < kv.kv_len.size(); ++seq) {
    const int rows = query_begin[seq + 1] - query_begin[seq];
    CONTINUO_CHECK(rows >= 0 && kv_len[seq] >= rows);
    CONTINUO_CHECK(kv_len[seq] <= kv.block_tables.cols() * kv.block_size);
    int num_heads;
    for (int head = 0; head < params.num_heads; head += num_heads) {
      const int group = (params.first_head + head) / params.heads_per_kv_head;
      const int kv_head = group - params.first_kv_head;
      CONTINUO_CHECK(kv_head >= 0 && kv_head < params.num_kv_heads);
      const int group_end = (group + 1) * params.heads_per_kv_head - params.first_head;
      num_heads = std::min({group_end - head, params.num_heads - head, kMaxQueries});
      const int step = kMaxQueries / num_heads;
      for (int row = 0; row < rows; row += step) {
        AttentionItem item = {.seq = seq,
                              .kv_head = kv_head,
                              .first_head = head,
                              .num_heads = num_heads,
                              .first_row = row,
                              .num_rows = std::min(step, rows - row),
                              .results = -1};
        const SeenPositions seen(item, kv, params);
        item.begin = seen.FirstChunk();
        item.end = (seen.end() + kKvChunk - 1) / kKvChunk * kKvChunk;
        items_.push_back(item);
      }
    }
  }
  Split(stride, num_threads);
}

void AttentionPlan::Split(int64_t stride, int num_threads) {
  split_.clear();
  partial_floats_ = 0;
  if (num_threads == 1) return;
  int64_t cost = 0;
  for (const AttentionItem& item : items_) cost += CostOf(item);
  // A part that takes less than half of a thread's time does not keep the others waiting for long.
  const int64_t most = cost / (2 * num_threads);
  const auto parts_of = [&](const AttentionItem& item) {
    if (item.num_queries() > kMostSplitQueries || CostOf(item) <= most) return int64_t{1};
    return std::min(ChunksOf(item) / kMinChunks, CostOf(item) / std::max<int64_t>(most, 1) + 1);
  };
  if (std::none_of(items_.begin(), items_.end(),
                   [&](const AttentionItem& item) { return parts_of(item) > 1; })) {
    return;
  }
  whole_.swap(items_);
  items_.clear();
  for (const AttentionItem& item : whole_) {
    const int64_t parts = parts_of(item), chunks = ChunksOf(item);
    const int64_t chunk_floats = PartialLayout{item.num_queries(), stride}.size();
    if (parts <= 1 || chunks * chunk_floats > kMostPartialFloats - partial_floats_) {
      items_.push_back(item);
      continue;
    }
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t first = chunks * i / parts;
      AttentionItem part = item;
      part.begin = item.begin + first * kKvChunk;
      part.end = item.begin + chunks * (i + 1) / parts * kKvChunk;
      part.results = partial_floats_ + first * chunk_floats;
      items_.push_back(part);
    }
    split_.push_back(item);
    split_.back().results = partial_floats_;
    partial_floats_ += chunks * chunk_floats;
  }
}

}  // namespace continuo::kernels::cpu
