// SPDX-License-Identifier: Apache-2.0
// PagedAttention: each part of the work is some rows of one sequence and the query heads that share
// one key-value head, so that a key or value is read once for all of them, over all or some of the
// spans of kAttentionSpan absolute positions. What the spans give is merged in ascending order by
// the kernel's one formula, so neither the KV block size, nor chunks, nor threads change a bit.

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/attention_check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {

namespace {

int64_t StrideOf(const KernelTable& kernels, DType kv_type, int64_t head_dim) {
  // Whole words of keys: twice as many elements where they are bytes.
  const auto unit = static_cast<int64_t>(kernels.pack_block) * (kv_type == DType::kI8 ? 2 : 1);
  return (head_dim + unit - 1) / unit * unit;
}

// The keys and values of a span.
struct SpanRows {
  void Locate(const AttentionItem& item, const PagedKv& kv, const SeenPositions& seen, int64_t span,
              int64_t head_dim) {
    const int32_t* table =
        static_cast<const int32_t*>(kv.block_tables.data) + item.seq * kv.block_tables.cols();
    const int64_t row_bytes = head_dim * static_cast<int64_t>(SizeOf(kv.cache.dtype));
    const int stop = seen.End(span);
    for (int j = seen.Begin(span); j < stop;) {
      const int64_t block = table[(span + j) / kv.block_size];
      CONTINUO_CHECK(block >= 0 && block < kv.cache.rows());
      const int64_t offset = (span + j) % kv.block_size;
      const int64_t n = std::min<int64_t>(stop - j, kv.block_size - offset);
      for (const int which : {0, 1}) {
        const char* const rows = KvRows(kv, block, item.kv_head, which);
        const char* row = rows + offset * row_bytes;
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
};

// The first element of a query in q and in out.
int64_t ElementOfQuery(const AttentionItem& item, int query, Tensor q, const PagedKv& kv,
                       int64_t head_dim) {
  const int64_t row = static_cast<const int32_t*>(kv.query_begin.data)[item.seq] + item.first_row +
                      query / item.num_heads;
  return row * q.cols() + (item.first_head + query % item.num_heads) * head_dim;
}

// What each query sees of a span.
void SetRanges(const AttentionItem& item, const SeenPositions& seen, int64_t span, int* begin,
               int* end) {
  for (int i = 0; i < item.num_queries(); ++i) {
    begin[i] = seen.BeginOf(i / item.num_heads, span);
    end[i] = seen.EndOf(i / item.num_heads, span);
  }
}

// Maxima, sums and values before the first span.
void StartMerging(const SpanArgs& args) {
  const size_t room = args.num_queries + SpanResultLayout::kRoom;
  std::fill(args.max, args.max + room, -std::numeric_limits<float>::infinity());
  std::fill(args.sum, args.sum + room, 0.0f);
  std::fill(args.out, args.out + args.num_queries * args.stride, 0.0f);
}

}  // namespace

void CpuBackend::PagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                                const AttentionParams& params) {
  CheckAttention(out, q, kv, params);
  CONTINUO_CHECK(IsActivation(out.dtype) && IsActivation(q.dtype));
  if (q.size() == 0) return;
  const int32_t* query_begin = static_cast<const int32_t*>(kv.query_begin.data);
  CONTINUO_CHECK(query_begin[0] == 0 && query_begin[kv.kv_len.size()] == q.rows());

  const int64_t stride = StrideOf(kernels_, kv.cache.dtype, params.head_dim);
  attention_plan_.Make(kv, params, stride, pool_.num_threads());
  float* const results = span_results_.Get(attention_plan_.result_floats());
  // Later rows see more: longest first, so that threads end together.
  const std::vector<AttentionItem>& items = attention_plan_.items();
  const int n = static_cast<int>(items.size());
  // Pieces are handed out in turn, so the one after the others' is likely this thread's next.
  for (ReadAhead& ahead : read_ahead_) ahead.Reset();
  pool_.Run(n, [&](int i, int thread) {
    const AttentionItem& item = items[n - 1 - i];
    read_ahead_[thread].Begin(items, i, pool_.num_threads(), kv, params);
    Attend(item, out, q, kv, params, item.results < 0 ? nullptr : results + item.results, thread);
    read_ahead_[thread].End();
  });
  for (const AttentionItem& item : attention_plan_.shared()) {
    pool_.Run(item.num_queries(), [&](int query, int thread) {
      MergeSpans(item, query, out, kv, params, results + item.results, thread);
    });
  }
}

void CpuBackend::Attend(const AttentionItem& item, Tensor out, Tensor q, const PagedKv& kv,
                        const AttentionParams& params, float* span_results, int thread) {
  const int64_t head_dim = params.head_dim;
  const int64_t stride = StrideOf(kernels_, kv.cache.dtype, head_dim);
  const int num_queries = item.num_queries();
  const bool by_pairs =
      kernels_.attend_pairs != nullptr && q.dtype == DType::kBF16 && kv.cache.dtype == DType::kBF16;

  float max[kMaxQueries + SpanResultLayout::kRoom], sum[kMaxQueries + SpanResultLayout::kRoom];
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
  args.alone = span_results != nullptr;
  float* const queries = scratch_[thread].Get(kSpan * (stride + 1) + (kSpan + 1) * stride + stride +
                                              num_queries * (3 * stride + kSpan));
  args.q = queries;
  args.key_panels = queries + num_queries * stride;
  args.value_panels = args.key_panels + kSpan * (stride + 1);
  args.step_panels = args.value_panels + (kSpan + 1) * stride;
  args.scores = args.step_panels + stride;
  args.span_out = args.scores + num_queries * kSpan;
  args.out = args.span_out + num_queries * stride;

  for (int i = 0; i < num_queries; ++i) {
    float* const to = queries + i * stride;
    const int64_t element = ElementOfQuery(item, i, q, kv, head_dim);
    std::fill(to, to + stride, 0.0f);
    if (by_pairs) {
      std::memcpy(to, At(q, element), head_dim * sizeof(uint16_t));
    } else {
      kernels_.widen[ElementOf(q.dtype)](to, At(q, element), head_dim);
    }
  }
  StartMerging(args);

  const auto attend = by_pairs ? kernels_.attend_pairs
                      : kv.cache.dtype == DType::kI8
                          ? kernels_.attend_int8
                          : kernels_.attend_span[ElementOf(kv.cache.dtype)];
  const SeenPositions seen(item, kv, params.window);
  SpanRows rows;
  MemoryPiece ahead[2 * kSpan];
  args.keys = rows.keys;
  args.values = rows.values;
  args.key_scales = rows.key_scales;
  args.value_scales = rows.value_scales;
  args.next = ahead;
  for (int64_t span = item.begin; span < item.end; span += kSpan) {
    SetRanges(item, seen, span, begin, end);
    rows.Locate(item, kv, seen, span, head_dim);
    args.next_end = read_ahead_[thread].Next(seen.End(span) - seen.Begin(span), ahead);
    if (args.alone) {
      const SpanResultLayout layout = {num_queries, stride};
      args.max = span_results;
      args.sum = span_results + layout.sums();
      args.span_out = span_results + layout.values();
      span_results += layout.size();
    }
    attend(args);
  }
  if (args.alone) return;
  for (int i = 0; i < num_queries; ++i) {
    Conclude(item, i, args.out + i * stride, sum[i], args.span_out, out, kv, params);
  }
}

void CpuBackend::MergeSpans(const AttentionItem& item, int query, Tensor out, const PagedKv& kv,
                            const AttentionParams& params, float* span_results, int thread) {
  const int64_t stride = StrideOf(kernels_, kv.cache.dtype, params.head_dim);
  const SpanResultLayout layout = {item.num_queries(), stride};
  float max[1 + SpanResultLayout::kRoom], sum[1 + SpanResultLayout::kRoom];
  int begin, end;
  SpanArgs args = {};
  args.num_queries = 1;
  args.begin = &begin;
  args.end = &end;
  args.head_dim = params.head_dim;
  args.stride = stride;
  args.max = max;
  args.sum = sum;
  args.out = scratch_[thread].Get(stride);
  StartMerging(args);
  const SeenPositions seen(item, kv, params.window);
  for (int64_t span = item.begin; span < item.end; span += kSpan) {
    begin = seen.BeginOf(query / item.num_heads, span);
    end = seen.EndOf(query / item.num_heads, span);
    args.span_out = span_results + layout.values() + query * stride;
    kernels_.merge_span(args, span_results + query, span_results + layout.sums() + query);
    span_results += layout.size();
  }
  Conclude(item, query, args.out, sum[0], args.span_out, out, kv, params);
}

void CpuBackend::Conclude(const AttentionItem& item, int query, const float* values, float sum,
                          float* buffer, Tensor out, const PagedKv& kv,
                          const AttentionParams& params) {
  const int64_t element = ElementOfQuery(item, query, out, kv, params.head_dim);
  float* row = Begin(out, element, buffer);
  kernels_.divide(row, values, sum, params.head_dim);
  Finish(kernels_, out, element, params.head_dim, row);
}

}  // namespace continuo::kernels::cpu
