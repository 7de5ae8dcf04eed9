// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention_ops.h"
#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/runtime/cuda_context.h"

namespace continuo::kernels::cuda {

struct CudaAttentionOptions {
  // If set, a row's bits do not depend on the other rows.
  bool deterministic = false;
  // Prefill attention uses wgmma where the device has it (compute capability 9.0) and
  // `deterministic` is off.
  bool wgmma_prefill = true;
};

// AttentionOps of one CUDA device. Keys and values have 8 bits, or they are f16 where activations
// are, and f32 or bf16 where activations are one of these.
class CudaAttention : public AttentionOps {
 public:
  // context and rows outlive the object.
  CudaAttention(CudaContext& context, RowOps& rows, const CudaAttentionOptions& options)
      : AttentionOps(rows), context_(context), options_(options) {}

  bool SupportsKvType(DType type, DType activations) const override;
  bool TakesJoinedHeads() const override { return true; }

 private:
  // Rows of heads, those of q q_stride elements apart, those of k and v kv_stride.
  struct Heads {
    Tensor rotated_q;  // dense; may be q
    void *q, *k, *v;
    int64_t q_stride, kv_stride;
  };
  void DoRopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) override;
  void DoGrowAngles(Tensor out, Tensor angles, Tensor positions,
                    const QueryGrowth& growth) override;
  void DoRope(Tensor x, Tensor angles, int head_dim) override;
  void DoWriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) override;
  void DoRotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v, Tensor slots,
                          const HeadRotation& rotation) override;
  void DoRotateJoinedAndWriteKv(const PagedKv& kv, Tensor q, Tensor qkv, Tensor slots,
                                const HeadRotation& rotation) override;
  void DoCopyKvBlocks(const PagedKv& kv, Tensor pairs) override;
  void DoPagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                        const AttentionParams& params) override;

  // Changes and writes heads that FitsAWarp.
  void RotateHeads(const PagedKv& kv, const Heads& heads, Tensor slots,
                   const HeadRotation& rotation);
  // Compute attention of the step's sequences on tensor cores, the first one of sequences of one
  // row each.
  void AttendToDecodes(Tensor out, Tensor q, const PagedKv& kv, const AttentionStep& step);
  void AttendByTiles(Tensor out, Tensor q, const PagedKv& kv, const AttentionStep& step);

  CudaContext& context_;
  const CudaAttentionOptions options_;
};

}  // namespace continuo::kernels::cuda
