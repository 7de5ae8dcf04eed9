// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/paged_attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/runtime/rows.h"
#include "kernels/math/exact_math.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

int64_t StrideOf(const KernelTable& kernels, DType kv_type, int64_t head_dim) {
  // Whole words of keys: twice as many elements where they are bytes.
  const auto unit = static_cast<int64_t>(kernels.pack_block) * (kv_type == DType::kI8 ? 2 : 1);
  return (head_dim + unit - 1) / unit * unit;
}

// The keys and values of a KV chunk.
struct ChunkRows {
  void Locate(const AttentionItem& item, const PagedKv& kv, const SeenPositions& seen,
              int64_t chunk, int64_t head_dim) {
    const int32_t* table =
        static_cast<const int32_t*>(kv.block_tables.data) + item.seq * kv.block_tables.cols();
    const int64_t row_bytes = head_dim * static_cast<int64_t>(SizeOf(kv.cache.dtype));
    const int stop = seen.End(chunk);
    for (int j = seen.Begin(chunk); j < stop;) {
      const int64_t block = table[(chunk + j) / kv.block_size];
      CONTINUO_CHECK(block >= 0 && block < kv.cache.rows());
      const int64_t offset = (chunk + j) % kv.block_size;
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

  const void* keys[kKvChunk];
  const void* values[kKvChunk];
  float key_scales[kKvChunk];
  float value_scales[kKvChunk];
};

// The first element of a query in q and in out.
int64_t ElementOfQuery(const AttentionItem& item, int query, Tensor q, const PagedKv& kv,
                       int64_t head_dim) {
  const int64_t row = static_cast<const int32_t*>(kv.query_begin.data)[item.seq] + item.first_row +
                      query / item.num_heads;
  return row * q.cols() + (item.first_head + query % item.num_heads) * head_dim;
}

// Sets the range of a chunk that each query sees.
void SetRanges(const AttentionItem& item, const SeenPositions& seen, int64_t chunk, int* begin,
               int* end) {
  for (int i = 0; i < item.num_queries(); ++i) {
    begin[i] = seen.BeginOf(i / item.num_heads, chunk);
    end[i] = seen.EndOf(i / item.num_heads, chunk);
  }
}

// Sets maxima, sums and values to those before the first chunk.
void StartMerging(const KvChunkArgs& args) {
  const size_t room = args.num_queries + PartialLayout::kRoom;
  std::fill(args.max, args.max + room, -std::numeric_limits<float>::infinity());
  std::fill(args.sum, args.sum + room, 0.0f);
  std::fill(args.out, args.out + args.num_queries * args.stride, 0.0f);
}

}  // namespace

PagedAttention::PagedAttention(CpuContext& context)
    : context_(context),
      kernels_(context.kernels()),
      prefetch_(static_cast<size_t>(context.num_threads())) {}

void PagedAttention::Run(Tensor out, Tensor q, const PagedKv& kv, const AttentionParams& params) {
  const int32_t* query_begin = static_cast<const int32_t*>(kv.query_begin.data);
  CONTINUO_CHECK(query_begin[0] == 0 && query_begin[kv.kv_len.size()] == q.rows());

  const int num_threads = context_.num_threads();
  const int64_t stride = StrideOf(kernels_, kv.cache.dtype, params.head_dim);
  const Call call = {.out = out, .q = q, .kv = kv, .params = params, .stride = stride};
  plan_.Make(kv, params, stride, num_threads);
  float* const partials = partials_.Get(plan_.partial_floats());
  // Later rows see more: longest first, so that threads end together.
  const std::vector<AttentionItem>& items = plan_.items();
  const int n = static_cast<int>(items.size());
  for (KvPrefetch& prefetch : prefetch_) prefetch.Reset();
  context_.pool().Run(n, [&](int i, int thread) {
    const AttentionItem& item = items[n - 1 - i];
    // Each thread first claims every num_threads-th item, so that one is likely its next.
    prefetch_[thread].Begin(items, i, num_threads, kv, params);
    Attend(call, item, item.results < 0 ? nullptr : partials + item.results, thread);
    prefetch_[thread].End();
  });
  for (const AttentionItem& item : plan_.split()) {
    context_.pool().Run(item.num_queries(), [&](int query, int thread) {
      MergeChunks(call, item, query, partials + item.results, thread);
    });
  }
}

void PagedAttention::Attend(const Call& call, const AttentionItem& item, float* partials,
                            int thread) {
  const PagedKv& kv = call.kv;
  const Tensor& q = call.q;
  const int64_t head_dim = call.params.head_dim, stride = call.stride;
  const int num_queries = item.num_queries();
  const bool by_pairs =
      kernels_.attend_pairs != nullptr && q.dtype == DType::kBF16 && kv.cache.dtype == DType::kBF16;

  float max[kMaxQueries + PartialLayout::kRoom], sum[kMaxQueries + PartialLayout::kRoom];
  int begin[kMaxQueries], end[kMaxQueries];
  KvChunkArgs args;
  args.q_stride = stride * sizeof(float);
  args.num_queries = num_queries;
  args.begin = begin;
  args.end = end;
  args.head_dim = head_dim;
  args.runs = kv.block_size % kKvRun == 0;
  args.stride = stride;
  args.scale = call.params.scale;
  args.softcap = call.params.softcap;
  args.max = max;
  args.sum = sum;
  args.write_partial = partials != nullptr;
  float* const queries =
      context_.Scratch(thread, kKvChunk * (stride + 1) + (kKvChunk + 1) * stride + stride +
                                   num_queries * (3 * stride + kKvChunk));
  args.q = queries;
  args.key_panels = queries + num_queries * stride;
  args.value_panels = args.key_panels + kKvChunk * (stride + 1);
  args.step_panels = args.value_panels + (kKvChunk + 1) * stride;
  args.scores = args.step_panels + stride;
  args.chunk_out = args.scores + num_queries * kKvChunk;
  args.out = args.chunk_out + num_queries * stride;

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
                          : kernels_.attend_chunk[ElementOf(kv.cache.dtype)];
  const SeenPositions seen(item, kv, call.params);
  ChunkRows rows;
  MemoryRange next[2 * kKvChunk];
  args.keys = rows.keys;
  args.values = rows.values;
  args.key_scales = rows.key_scales;
  args.value_scales = rows.value_scales;
  args.next = next;
  for (int64_t chunk = item.begin; chunk < item.end; chunk += kKvChunk) {
    SetRanges(item, seen, chunk, begin, end);
    rows.Locate(item, kv, seen, chunk, head_dim);
    args.next_end = prefetch_[thread].Next(seen.End(chunk) - seen.Begin(chunk), next);
    if (args.write_partial) {
      const PartialLayout layout = {num_queries, stride};
      args.max = partials;
      args.sum = partials + layout.sums();
      args.chunk_out = partials + layout.values();
      partials += layout.size();
    }
    attend(args);
  }
  if (args.write_partial) return;
  for (int i = 0; i < num_queries; ++i) {
    WriteResult(call, item, i, args.out + i * stride, max[i], sum[i], args.chunk_out);
  }
}

void PagedAttention::MergeChunks(const Call& call, const AttentionItem& item, int query,
                                 float* partials, int thread) {
  const PartialLayout layout = {item.num_queries(), call.stride};
  float max[1 + PartialLayout::kRoom], sum[1 + PartialLayout::kRoom];
  int begin, end;
  KvChunkArgs args = {};
  args.num_queries = 1;
  args.begin = &begin;
  args.end = &end;
  args.head_dim = call.params.head_dim;
  args.stride = call.stride;
  args.max = max;
  args.sum = sum;
  args.out = context_.Scratch(thread, call.stride);
  StartMerging(args);
  const SeenPositions seen(item, call.kv, call.params);
  for (int64_t chunk = item.begin; chunk < item.end; chunk += kKvChunk) {
    begin = seen.BeginOf(query / item.num_heads, chunk);
    end = seen.EndOf(query / item.num_heads, chunk);
    args.chunk_out = partials + layout.values() + query * call.stride;
    kernels_.merge_chunk(args, partials + query, partials + layout.sums() + query);
    partials += layout.size();
  }
  WriteResult(call, item, query, args.out, max[0], sum[0], args.chunk_out);
}

void PagedAttention::WriteResult(const Call& call, const AttentionItem& item, int query,
                                 const float* values, float max, float sum, float* buffer) {
  const int64_t head_dim = call.params.head_dim;
  const int64_t element = ElementOfQuery(item, query, call.out, call.kv, head_dim);
  if (const Tensor& sinks = call.params.sinks; sinks.size() > 0) {
    const int head = item.first_head + query % item.num_heads;
    sum += ExactExp(static_cast<const float*>(sinks.data)[head] - max);
  }
  float* row = Begin(call.out, element, buffer);
  kernels_.divide(row, values, sum, head_dim);
  Finish(kernels_, call.out, element, head_dim, row);
}

}  // namespace continuo::kernels::cpu
