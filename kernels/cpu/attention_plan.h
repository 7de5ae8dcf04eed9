// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/isa/kernel_table.h"

namespace continuo::kernels::cpu {

// Query rows of one sequence that attend to one key-value head together, over some spans.
struct AttentionItem {
  int seq, kv_head, first_head, num_heads, first_row, num_rows;
  int64_t begin, end;  // positions: multiples of kSpan, the end perhaps beyond what is seen
  // Where the first span's results are kept, in floats (SpanResultLayout), until those of all parts
  // of the rows are there; -1: spans are merged at once.
  int64_t results;

  int num_queries() const { return num_rows * num_heads; }
};

// What the rows of an item see. Query i is row i / num_heads.
class SeenPositions {
 public:
  SeenPositions(const AttentionItem& item, const PagedKv& kv, int window);

  int64_t FirstSpan() const { return FirstSeenBy(first_) / kSpan * kSpan; }
  int64_t end() const { return last_ + 1; }
  // The positions of a span that any row sees, counted from it.
  int Begin(int64_t span) const { return Within(FirstSeenBy(first_) - span); }
  int End(int64_t span) const { return Within(last_ + 1 - span); }
  // Those that one row sees.
  int BeginOf(int row, int64_t span) const { return Within(FirstSeenBy(first_ + row) - span); }
  int EndOf(int row, int64_t span) const { return Within(first_ + row + 1 - span); }

 private:
  static int Within(int64_t position) {
    return static_cast<int>(std::clamp<int64_t>(position, 0, kSpan));
  }
  int64_t FirstSeenBy(int64_t position) const {
    return window_ == 0 ? 0 : std::max<int64_t>(0, position - window_ + 1);
  }

  int64_t first_, last_;  // positions of the rows
  int64_t window_;
};

// What one span gives by itself, where several threads share the spans of the same rows: it is kept
// until all are there, then merged in ascending order, so that who computed it changes no bit.
// Maximum and sum of each query, with room for a vector more, and its values.
struct SpanResultLayout {
  int64_t num_queries, stride;

  int64_t sums() const { return (num_queries + kRoom + 15) / 16 * 16; }
  int64_t values() const { return 2 * sums(); }
  int64_t size() const { return values() + num_queries * stride; }

  static constexpr int64_t kRoom = 16;  // the widest vector
};

// What the threads of one PagedAttention do. Kept from call to call, so that a steady state
// allocates nothing but more room for results as sequences grow, by half each time.
class AttentionPlan {
 public:
  // `stride`: floats between the values of queries.
  void Make(const PagedKv& kv, const AttentionParams& params, int64_t stride, int num_threads);

  // In the order of sequences and their rows: of a sequence, those that take longest come last.
  const std::vector<AttentionItem>& items() const { return items_; }
  // What those are parts of whose results are kept: to be merged from the first span on.
  const std::vector<AttentionItem>& shared() const { return shared_; }
  int64_t result_floats() const { return result_floats_; }

 private:
  void Split(int64_t stride, int num_threads);

  std::vector<AttentionItem> items_, whole_, shared_;
  int64_t result_floats_ = 0;
};

}  // namespace continuo::kernels::cpu
