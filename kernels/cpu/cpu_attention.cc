// SPDX-License-Identifier: Apache-2.0
// PagedAttention: each part of the work is some rows of one sequence and the query heads that share
// one key-value head, so that a key or value is read once for all of them. A part walks the spans
// of kAttentionSpan absolute positions in ascending order; what a span gives is merged by the
// kernel's one formula, so neither the KV block size, nor chunks, nor threads change a bit.

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/rows.h"
#include "services/base/check.h"

namespace continuo::cpu {

void CpuBackend::PagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                                const AttentionParams& params) {
  const int64_t num_seqs = kv.kv_len.size();
  CONTINUO_CHECK(IsActivation(out.dtype) && IsActivation(q.dtype) && q.rows() == out.rows());
  CONTINUO_CHECK(kv.query_begin.dtype == DType::kI32 && kv.query_begin.size() == num_seqs + 1);
  CONTINUO_CHECK(kv.kv_len.dtype == DType::kI32 && kv.block_tables.dtype == DType::kI32);
  CONTINUO_CHECK(kv.values.shape == kv.keys.shape && kv.values.dtype == kv.keys.dtype);
  CONTINUO_CHECK(params.window >= 0 && params.softcap >= 0 && params.head_dim > 0 &&
                 params.heads_per_kv_head > 0);
  CONTINUO_CHECK(q.cols() == int64_t{params.num_heads} * params.head_dim);
  CONTINUO_CHECK(kv.keys.shape[2] == int64_t{params.num_kv_heads} * params.head_dim);
  if (q.size() == 0) return;

  const int32_t* query_begin = static_cast<const int32_t*>(kv.query_begin.data);
  const int32_t* kv_len = static_cast<const int32_t*>(kv.kv_len.data);
  CONTINUO_CHECK(query_begin[0] == 0 && query_begin[num_seqs] == q.rows());
  items_.clear();
  for (int seq = 0; seq < num_seqs; ++seq) {
    const int rows = query_begin[seq + 1] - query_begin[seq];
    CONTINUO_CHECK(rows >= 0 && kv_len[seq] >= rows);
    CONTINUO_CHECK(kv_len[seq] <= kv.block_tables.cols() * kv.keys.shape[1]);
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
  pool_.Run(n, [&](int i, int thread) { Attend(items_[n - 1 - i], out, q, kv, params, thread); });
}

void CpuBackend::Attend(const AttentionItem& item, Tensor out, Tensor q, const PagedKv& kv,
                        const AttentionParams& params, int thread) {
  const int64_t head_dim = params.head_dim;
  const int64_t block_size = kv.keys.shape[1];
  const int64_t unit = static_cast<int64_t>(kernels_.pack_block);
  const int64_t stride = (head_dim + unit - 1) / unit * unit;
  const int num_queries = item.num_rows * item.num_heads;
  const int element = ElementOf(kv.keys.dtype);

  float* packed = scratch_[thread].Get(stride + num_queries * (3 * stride + kSpan));
  float* buffer = packed + num_queries * stride;
  float* scores = buffer + stride;
  float* span_out = scores + num_queries * kSpan;
  float* sums = span_out + num_queries * stride;
  float max[kMaxQueries], sum[kMaxQueries];
  int begin[kMaxQueries], end[kMaxQueries];
  // Where the keys and values of this span and the next lie.
  const void* keys[2][kSpan];
  const void* values[2][kSpan];

  const int32_t* query_begin = static_cast<const int32_t*>(kv.query_begin.data);
  const int64_t first_row = query_begin[item.seq] + item.first_row;
  const auto element_of = [&](int query) {
    return (first_row + query / item.num_heads) * q.cols() +
           (item.first_head + query % item.num_heads) * head_dim;
  };
  for (int i = 0; i < num_queries; ++i) {
    const float* in = Read(kernels_, q, element_of(i), head_dim, buffer);
    kernels_.pack[element](packed + i * stride, in, head_dim);
    sum[i] = 0;
  }

  SpanArgs args;
  args.q = packed;
  args.q_stride = stride;
  args.num_queries = num_queries;
  args.begin = begin;
  args.end = end;
  args.head_dim = head_dim;
  args.scale = params.scale;
  args.softcap = params.softcap;
  args.scores = scores;
  args.span_out = span_out;
  args.max = max;
  args.sum = sum;
  args.out = sums;
  args.out_stride = stride;

  const int32_t rows = query_begin[item.seq + 1] - query_begin[item.seq];
  const int64_t first_position =
      static_cast<const int32_t*>(kv.kv_len.data)[item.seq] - rows + item.first_row;
  const int64_t last_position = first_position + item.num_rows - 1;
  const auto first_seen = [&](int64_t position) {
    return params.window == 0 ? 0 : std::max<int64_t>(0, position - params.window + 1);
  };
  const int32_t* table =
      static_cast<const int32_t*>(kv.block_tables.data) + item.seq * kv.block_tables.cols();

  // The positions of a span that any of the queries sees.
  const auto seen_begin = [&](int64_t span) {
    return static_cast<int>(std::clamp<int64_t>(first_seen(first_position) - span, 0, kSpan));
  };
  const auto seen_end = [&](int64_t span) {
    return static_cast<int>(std::clamp<int64_t>(last_position + 1 - span, 0, kSpan));
  };
  const int64_t position_stride = params.num_kv_heads * head_dim;
  const auto locate = [&](int64_t span, const void** key, const void** value) {
    const int stop = seen_end(span);
    for (int j = seen_begin(span); j < stop;) {
      const int64_t block = table[(span + j) / block_size];
      CONTINUO_CHECK(block >= 0 && block < kv.keys.rows());
      const int64_t offset = (span + j) % block_size;
      int64_t at = ((block * block_size + offset) * params.num_kv_heads + item.kv_head) * head_dim;
      const int64_t in_block = std::min<int64_t>(stop - j, block_size - offset);
      for (int64_t i = 0; i < in_block; ++i, ++j, at += position_stride) {
        key[j] = At(kv.keys, at);
        value[j] = At(kv.values, at);
      }
    }
  };

  const int64_t first_span = first_seen(first_position) / kSpan * kSpan;
  locate(first_span, keys[0], values[0]);
  for (int64_t span = first_span, which = 0; span <= last_position; span += kSpan, which ^= 1) {
    for (int i = 0; i < num_queries; ++i) {
      const int64_t position = first_position + i / item.num_heads;
      begin[i] = static_cast<int>(std::clamp<int64_t>(first_seen(position) - span, 0, kSpan));
      end[i] = static_cast<int>(std::clamp<int64_t>(position + 1 - span, 0, kSpan));
    }
    locate(span + kSpan, keys[which ^ 1], values[which ^ 1]);
    args.keys = keys[which];
    args.values = values[which];
    args.next_keys = keys[which ^ 1];
    args.num_next = seen_end(span + kSpan);
    kernels_.attend_span[element](args);
  }

  for (int i = 0; i < num_queries; ++i) {
    float* row = Begin(out, element_of(i), buffer);
    kernels_.divide(row, sums + i * stride, sum[i], head_dim);
    Finish(kernels_, out, element_of(i), head_dim, row);
  }
}

}  // namespace continuo::cpu
