// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention_ops.h"
#include "kernels/cpu/isa/kernel_table.h"

namespace continuo::kernels::cpu {

// A work item of attention: query rows of one sequence that attend to one KV head together, over
// some KV chunks.
struct AttentionItem {
  int seq, kv_head, first_head, num_heads, first_row, num_rows;
  int64_t begin, end;  // positions: multiples of kKvChunk, the end perhaps beyond what is seen
  // Where the first chunk's partial results are kept, in floats (PartialLayout), until those of all
  // chunks of the rows are there; -1: chunks are merged at once.
  int64_t results;

  int num_queries() const { return num_rows * num_heads; }
};

// The positions that the rows of an item see. Query i is row i / num_heads.
class SeenPositions {
 public:
  SeenPositions(const AttentionItem& item, const PagedKv& kv, const AttentionParams& params);

  int64_t FirstChunk() const { return FirstSeenBy(first_) / kKvChunk * kKvChunk; }
  int64_t end() const { return EndSeenBy(last_); }
  // The positions of a chunk that any row sees, counted from its first.
  int Begin(int64_t chunk) const { return Within(FirstSeenBy(first_) - chunk); }
  int End(int64_t chunk) const { return Within(end() - chunk); }
  // The positions of a chunk that one row sees.
  int BeginOf(int row, int64_t chunk) const { return Within(FirstSeenBy(first_ + row) - chunk); }
  int EndOf(int row, int64_t chunk) const { return Within(EndSeenBy(first_ + row) - chunk); }

 private:
  static int Within(int64_t position) {
    return static_cast<int>(std::clamp<int64_t>(position, 0, kKvChunk));
  }
  // Neither decreases from one position to the next.
  int64_t EndSeenBy(int64_t position) const {
    if (!bidirectional_) return position + 1;
    return window_ == 0 ? length_ : std::min(length_, position + window_);
  }
  int64_t FirstSeenBy(int64_t position) const {
    const int64_t of_window = window_ == 0 ? 0 : std::max<int64_t>(0, position - window_ + 1);
    return chunk_ == 0 ? of_window : std::max(of_window, position - position % chunk_);
  }

  int64_t first_, last_;  // positions of the rows
  int64_t length_;        // of the sequence
  int64_t window_, chunk_;
  bool bidirectional_;
};

// The layout of one chunk's partial results: maximum and sum of each query, with room for a vector
// more, and its values. Where several threads share the chunks of the same rows, results are kept
// until all are there, then merged in ascending order, so that who computed them changes no bit.
struct PartialLayout {
  int64_t num_queries, stride;

  int64_t sums() const { return (num_queries + kRoom + 15) / 16 * 16; }
  int64_t values() const { return 2 * sums(); }
  int64_t size() const { return values() + num_queries * stride; }

  static constexpr int64_t kRoom = 16;  // the widest vector
};

// The work items of one PagedAttention. The plan is kept from call to call, so that a steady state
// allocates nothing but more room for results as sequences grow, by half each time.
class AttentionPlan {
 public:
  // `stride` is the number of floats between the values of queries.
  void Make(const PagedKv& kv, const AttentionParams& params, int64_t stride, int num_threads);

  // In the order of sequences and their rows; of a sequence, the items that take longest come last.
  const std::vector<AttentionItem>& items() const { return items_; }
  // The items that were split: their partial results are to be merged from the first chunk on.
  const std::vector<AttentionItem>& split() const { return split_; }
  int64_t partial_floats() const { return partial_floats_; }

 private:
  void Split(int64_t stride, int num_threads);

  std::vector<AttentionItem> items_, whole_, split_;
  int64_t partial_floats_ = 0;
};

}  // namespace continuo::kernels::cpu
