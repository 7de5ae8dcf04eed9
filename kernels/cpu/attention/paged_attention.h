// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_ops.h"
#include "kernels/cpu/attention/attention_plan.h"
#include "kernels/cpu/attention/kv_prefetch.h"
#include "kernels/cpu/runtime/cpu_context.h"
#include "kernels/host/scratch.h"

namespace continuo::kernels::cpu {

// PagedAttention of the CPU. A work item is some rows of one sequence and the query heads that
// share one KV head, so that a key or value is read once for all of them, over all or some of the
// KV chunks of kKvChunk absolute positions. Chunks are merged in ascending order by the kernel's
// one formula, so neither the KV block size, nor chunks of the prompt, nor threads change a bit.
class PagedAttention {
 public:
  // `context` outlives this.
  explicit PagedAttention(CpuContext& context);

  // Does what AttentionOps::PagedAttention does; shapes have been checked.
  void Run(Tensor out, Tensor q, const PagedKv& kv, const AttentionParams& params);

 private:
  // The arguments of one call.
  struct Call {
    Tensor out, q;
    const PagedKv& kv;
    const AttentionParams& params;
    int64_t stride;  // floats between the values of queries
  };

  // `partials` is where the item's results are kept for MergeChunks; null: out is written.
  void Attend(const Call& call, const AttentionItem& item, float* partials, int thread);
  void MergeChunks(const Call& call, const AttentionItem& item, int query, float* partials,
                   int thread);
  // Writes a query's result: `values`, merged, divided by `sum` and what the head's sink adds to
  // it. `max` is what both are relative to. `buffer` has room for one.
  void WriteResult(const Call& call, const AttentionItem& item, int query, const float* values,
                   float max, float sum, float* buffer);

  CpuContext& context_;
  const KernelTable& kernels_;
  AttentionPlan plan_;                // of the current call
  std::vector<KvPrefetch> prefetch_;  // one per thread
  host::Scratch partials_;            // of the plan's split items
};

}  // namespace continuo::kernels::cpu
