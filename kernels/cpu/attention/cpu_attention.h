// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention_ops.h"
#include "kernels/cpu/attention/paged_attention.h"
#include "kernels/cpu/runtime/cpu_context.h"

namespace continuo::kernels::cpu {

// AttentionOps of the CPU: rotary embedding and the KV cache here, attention in PagedAttention.
class CpuAttention : public AttentionOps {
 public:
  // context and rows outlive this.
  CpuAttention(CpuContext& context, RowOps& rows)
      : AttentionOps(rows), context_(context), kernels_(context.kernels()), attention_(context) {}

  bool SupportsKvType(DType type, DType activations) const override;

 private:
  void DoRopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) override;
  void DoGrowAngles(Tensor out, Tensor angles, Tensor positions,
                    const QueryGrowth& growth) override;
  void DoRope(Tensor x, Tensor angles, int head_dim) override;
  void DoWriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) override;
  void DoCopyKvBlocks(const PagedKv& kv, Tensor pairs) override;
  void DoPagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                        const AttentionParams& params) override;

  CpuContext& context_;
  const KernelTable& kernels_;
  cpu::PagedAttention attention_;
};

}  // namespace continuo::kernels::cpu
