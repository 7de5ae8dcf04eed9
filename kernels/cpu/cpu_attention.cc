// SPDX-License-Identifier: Apache-2.0
// PagedAttention: each part of the work is some rows of one sequence and the query heads that share
// one key-value head, so that a key or value is read once for all of them. A part walks the spans
// of kAttentionSpan absolute positions in ascending order; what a span gives is merged by the
// kernel's one formula, so neither the KV block size, nor chunks, nor threads change a bit.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "kernels/attention_check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/rows.h"
#include "services/base/check.h"

namespace continuo::cpu {

void CpuBackend::PagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                                const AttentionParams& params) {
  const int64_t num_seqs = kv.kv_len.size();
  CheckAttention(out, q, kv, params);
  CONTINUO_CHECK(IsActivation(out.dtype) && IsActivation(q.dtype));
  if (q.size() == 0) return;

  const int32_t* query_begin = static_cast<const int32_t*>(kv.query_begin.data);
  const int32_t* kv_len = static_cast<const int32_t*>(kv.kv_len.data);
  CONTINUO_CHECK(query_begin[0] == 0 && query_begin[num_seqs] == q.rows());
  items_.clear();
  for (int seq = 0; seq < num_seqs; ++seq) {
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
        items_.push_back({seq, kv_head, head, num_heads, row, std::min(step, rows - row)});
      }
    }
  }

  // Later rows see more: longest first, so that threads end together.
  const int n = static_cast<int>(items_.size());
  // Pieces are handed out in turn, so the one after the others' is likely this thread's next.
  const int ahead = pool_.num_threads();
  pool_.Run(n, [&](int i, int thread) {
    Attend(items_[n - 1 - i], i + ahead < n ? &items_[n - 1 - i - ahead] : nullptr, out, q, kv,
           params, thread);
  });
}

// What the rows of an item see.
struct CpuBackend::SeenPositions {
  SeenPositions(const AttentionItem& item, const PagedKv& kv, int window) : window(window) {
    const int32_t* query_begin = static_cast<const int32_t*>(kv.query_begin.data);
    const int32_t rows = query_begin[item.seq + 1] - query_begin[item.seq];
    first = static_cast<const int32_t*>(kv.kv_len.data)[item.seq] - rows + item.first_row;
    last = first + item.num_rows - 1;
  }
  int64_t FirstSeenBy(int64_t position) const {
    return window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
  }
  int64_t FirstSpan() const { return FirstSeenBy(first) / kSpan * kSpan; }
  // The positions of a span that any row sees, counted from it.
  int Begin(int64_t span) const {
    return static_cast<int>(std::clamp<int64_t>(FirstSeenBy(first) - span, 0, kSpan));
  }
  int End(int64_t span) const {
    return static_cast<int>(std::clamp<int64_t>(last + 1 - span, 0, kSpan));
  }

  int64_t first, last;  // positions of the rows
  int64_t window;
};

// The keys and values of a span.
struct CpuBackend::SpanRows {
  void Locate(const AttentionItem& item, const PagedKv& kv, const SeenPositions& seen, int64_t span,
              int64_t head_dim) {
    const int32_t* table =
        static_cast<const int32_t*>(kv.block_tables.data) + item.seq * kv.block_tables.cols();
    const int64_t row_bytes = head_dim * static_cast<int64_t>(SizeOf(kv.cache.dtype));
    const int stop = seen.End(span);
    pieces_end = pieces;
    for (int j = seen.Begin(span); j < stop;) {
      const int64_t block = table[(span + j) / kv.block_size];
      CONTINUO_CHECK(block >= 0 && block < kv.cache.rows());
      const int64_t offset = (span + j) % kv.block_size;
      const int64_t n = std::min<int64_t>(stop - j, kv.block_size - offset);
      for (const int which : {0, 1}) {
        const char* const rows = KvRows(kv, block, item.kv_head, which);
        const char* row = rows + offset * row_bytes;
        *pieces_end++ = {row, n * row_bytes};
        const void** to = (which == 0 ? keys : values) + j;
        for (int64_t i = 0; i < n; ++i, row += row_bytes) to[i] = row;
        if (kv.cache.dtype == DType::kI8) {
          std::memcpy((which == 0 ? key_scales : value_scales) + j,
                      rows + kv.block_size * head_dim + offset * sizeof(float), n * sizeof(float));
        }
      }
      j += static_cast<int>(n);
    }
  }

  const void* keys[kSpan];
  const void* values[kSpan];
  float key_scales[kSpan];
  float value_scales[kSpan];
  MemoryPiece pieces[2 * kSpan];  // two for each block
  MemoryPiece* pieces_end;
};

void CpuBackend::Attend(const AttentionItem& item, const AttentionItem* next_item, Tensor out,
                        Tensor q, const PagedKv& kv, const AttentionParams& params, int thread) {
  const int64_t head_dim = params.head_dim;
  // Whole words of keys: twice as many elements where they are bytes.
  const int64_t unit =
      static_cast<int64_t>(kernels_.pack_block) * (kv.cache.dtype == DType::kI8 ? 2 : 1);
  const int64_t stride = (head_dim + unit - 1) / unit * unit;
  const int num_queries = item.num_rows * item.num_heads;
  const bool by_pairs =
      kernels_.attend_pairs != nullptr && q.dtype == DType::kBF16 && kv.cache.dtype == DType::kBF16;

  constexpr int kVector = 16;  // the widest
  float max[kMaxQueries + kVector], sum[kMaxQueries + kVector];
  int begin[kMaxQueries], end[kMaxQueries];
  SpanArgs args;
  args.q_stride = stride * sizeof(float);
  args.num_queries = num_queries;
  args.begin = begin;
  args.end = end;
  args.head_dim = head_dim;
  args.runs = kv.block_size % kSpanRun == 0;
  args.stride = stride;
  args.scale = params.scale;
  args.softcap = params.softcap;
  args.max = max;
  args.sum = sum;
  float* const queries = scratch_[thread].Get(kSpan * (stride + 1) + (kSpan + 1) * stride + stride +
                                              num_queries * (3 * stride + kSpan));
  args.q = queries;
  args.key_panels = queries + num_queries * stride;
  args.value_panels = args.key_panels + kSpan * (stride + 1);
  args.step_panels = args.value_panels + (kSpan + 1) * stride;
  args.scores = args.step_panels + stride;
  args.span_out = args.scores + num_queries * kSpan;
  args.out = args.span_out + num_queries * stride;

  const int64_t first_row =
      static_cast<const int32_t*>(kv.query_begin.data)[item.seq] + item.first_row;
  const auto element_of = [&](int query) {
    return (first_row + query / item.num_heads) * q.cols() +
           (item.first_head + query % item.num_heads) * head_dim;
  };
  for (int i = 0; i < num_queries; ++i) {
    float* const to = queries + i * stride;
    std::fill(to, to + stride, 0.0f);
    if (by_pairs) {
      std::memcpy(to, At(q, element_of(i)), head_dim * sizeof(uint16_t));
    } else {
      kernels_.widen[ElementOf(q.dtype)](to, At(q, element_of(i)), head_dim);
    }
  }
  std::fill(args.out, args.out + num_queries * stride, 0.0f);
  std::fill(std::begin(max), std::end(max), -std::numeric_limits<float>::infinity());
  std::fill(std::begin(sum), std::end(sum), 0.0f);

  const auto attend = by_pairs ? kernels_.attend_pairs
                      : kv.cache.dtype == DType::kI8
                          ? kernels_.attend_int8
                          : kernels_.attend_span[ElementOf(kv.cache.dtype)];
  const SeenPositions seen(item, kv, params.window);
  SpanRows rows[2];  // of this span and of what is read next
  rows[0].Locate(item, kv, seen, seen.FirstSpan(), head_dim);
  for (int64_t span = seen.FirstSpan(), which = 0; span <= seen.last; span += kSpan, which ^= 1) {
    for (int i = 0; i < num_queries; ++i) {
      const int64_t position = seen.first + i / item.num_heads;
      begin[i] = static_cast<int>(std::clamp<int64_t>(seen.FirstSeenBy(position) - span, 0, kSpan));
      end[i] = static_cast<int>(std::clamp<int64_t>(position + 1 - span, 0, kSpan));
    }
    SpanRows& next = rows[which ^ 1];
    if (span + kSpan <= seen.last || next_item == nullptr) {
      next.Locate(item, kv, seen, span + kSpan, head_dim);
    } else {
      const SeenPositions next_seen(*next_item, kv, params.window);
      next.Locate(*next_item, kv, next_seen, next_seen.FirstSpan(), head_dim);
    }
    args.keys = rows[which].keys;
    args.values = rows[which].values;
    args.key_scales = rows[which].key_scales;
    args.value_scales = rows[which].value_scales;
    args.next = next.pieces;
    args.next_end = next.pieces_end;
    attend(args);
  }

  for (int i = 0; i < num_queries; ++i) {
    float* row = Begin(out, element_of(i), args.span_out);
    kernels_.divide(row, args.out + i * stride, sum[i], head_dim);
    Finish(kernels_, out, element_of(i), head_dim, row);
  }
}

}  // namespace continuo::cpu
