// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/row_ops.h"
#include "kernels/tensor.h"

namespace continuo::kernels {

// Elements that a KV cache of a type keeps for one position and head. Bytes have a scale, too.
constexpr int64_t KvRowElements(DType dtype, int64_t head_dim) {
  return SizeOf(dtype) == 1 ? head_dim + static_cast<int64_t>(sizeof(float)) : head_dim;
}

// The KV cache of one layer, and where each sequence of a step has its keys and values there. All
// arrays are on the device.
struct PagedKv {
  // [num_blocks, num_kv_heads, 2 * block_size * KvRowElements]: a head's keys of the block's
  // positions, then its values, which are read soon after. The type is f32, bf16, f16, or bytes: i8
  // or f8 (e4m3). Of bytes the keys, and likewise the values, are the rows and then their scales,
  // f32: an element is its byte's number times the scale, which makes the largest of a row ±127
  // (i8) or ±448 (f8).
  Tensor cache;
  int block_size = 0;   // positions
  Tensor block_tables;  // i32 [num_seqs, max_blocks], -1 padded
  Tensor kv_len;        // i32 [num_seqs]: tokens in the cache, this step's included
  Tensor query_begin;   // i32 [num_seqs + 1]: rows of each sequence, back to back
  // The first num_decodes sequences have one row each. Others may have one, too.
  int num_decodes = 0;
};

// The num_decodes of such a query_begin: how many sequences from the first on have one row.
inline int CountDecodes(std::span<const int32_t> query_begin) {
  size_t n = 0;
  while (n + 1 < query_begin.size() && query_begin[n + 1] == query_begin[n] + 1) ++n;
  return static_cast<int>(n);
}

struct AttentionParams {
  int num_heads = 0;     // of q and out: [rows, num_heads * head_dim]
  int num_kv_heads = 0;  // of keys and values
  int head_dim = 0;
  // Query head h of this rank reads KV head (first_head + h) / heads_per_kv_head - first_kv_head;
  // with one rank both firsts are 0.
  int heads_per_kv_head = 1;
  int first_head = 0, first_kv_head = 0;
  float scale = 1.0f;  // of q·k
  // Where it is not 0, a scaled score s becomes softcap · tanh(s / softcap).
  float softcap = 0.0f;
  // A query at position p sees positions in (p - window, p]; 0: all up to p.
  int window = 0;
  // Encoders: a query sees what lies behind it, too, up to its sequence's end: positions in
  // (p - window, p + window), or all of them. Chunks do not go with it. The CPU alone computes it.
  bool bidirectional = false;
  // The context is cut into chunks of so many positions, and a query sees those of its own chunk
  // alone; 0: it is not cut.
  int chunk = 0;
  // f32 [num_heads]: a score that each query has besides those of the keys, and that brings no
  // value: e^sink is added to the sum that weights are divided by. It is neither scaled nor capped.
  // Empty: there is none.
  Tensor sinks = {};
};

// How queries grow with their position (GrowAngles).
struct QueryGrowth {
  double growth = 0;
  int64_t period = 1;
  int64_t offset = 0;
};

// The change of a step's queries and keys before attention: RmsNorm with eps per head (where the
// gains, each of head_dim elements, are not empty), then Rope.
struct HeadRotation {
  Tensor q_gain, k_gain;
  float eps = 0;
  Tensor angles;
  int head_dim = 0;
};

// Rotary embedding, the paged KV cache, and attention over it. Rules of all ops: ops.h.
class AttentionOps {
 public:
  virtual ~AttentionOps() = default;

  // Returns whether the device keeps keys and values of a type beside activations of a type.
  virtual bool SupportsKvType(DType type, DType activations) const = 0;
  // Returns whether queries, keys and values are to be computed by one product with stacked
  // matrices, for RotateJoinedAndWriteKv.
  virtual bool TakesJoinedHeads() const { return false; }

  // angles f32 [rows, 2 * num_frequencies]: the cosines then the sines of
  // positions[r] * frequencies[i] (product and reduction in f64, rounded to f32), times `scale`.
  void RopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale);
  // out[r] = angles[r] * (1 + growth * ln(1 + ⌊(positions[r] + offset) / period⌋)), the factor in
  // f64, rounded to f32: the angles of queries that grow with their position. Both are f32 [rows,
  // cols].
  void GrowAngles(Tensor out, Tensor angles, Tensor positions, const QueryGrowth& growth);
  // Rotates pairs (i, i + n) of the first 2n elements of each head (Hugging Face's half-split
  // layout), n = num_frequencies. x: [rows, num_heads * head_dim], in place.
  void Rope(Tensor x, Tensor angles, int head_dim);
  // keys/values[slot[r]] = k[r], v[r]; a slot is block * block_size + offset.
  void WriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots);
  // Changes q and k as `rotation` says, then WriteKv of k and v, with the bits that the single ops
  // give. q [rows, num_heads * head_dim] changes in place; k holds anything afterwards.
  void RotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v, Tensor slots,
                        const HeadRotation& rotation);
  // RotateAndWriteKv of heads that lie in one matrix, as a product with stacked matrices leaves
  // them: qkv [rows, (num_heads + 2 * num_kv_heads) * head_dim] has a row's queries, then its keys,
  // then its values, and holds anything afterwards. q [rows, num_heads * head_dim] receives the
  // changed queries and does not overlap qkv. The device TakesJoinedHeads.
  void RotateJoinedAndWriteKv(const PagedKv& kv, Tensor q, Tensor qkv, Tensor slots,
                              const HeadRotation& rotation);
  // Copies whole KV blocks of one layer: pairs i32 [n, 2] of (from, to), in order.
  void CopyKvBlocks(const PagedKv& kv, Tensor pairs);
  // Attention of each row over its sequence's cache, causal unless `params` says otherwise. out, q:
  // [rows, num_heads * head_dim].
  void PagedAttention(Tensor out, Tensor q, const PagedKv& kv, const AttentionParams& params);

 protected:
  // `rows` outlives this.
  explicit AttentionOps(RowOps& rows) : rows_(rows) {}

  // The arguments of all Do… have been checked, and what is written is not empty, but one of q and
  // k here may be. The default of the joined op is the single ones; a device that overrides it may
  // call this for what it does not join.
  virtual void DoRotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v, Tensor slots,
                                  const HeadRotation& rotation);
  // A device that TakesJoinedHeads overrides it. Nothing is empty.
  virtual void DoRotateJoinedAndWriteKv(const PagedKv& kv, Tensor q, Tensor qkv, Tensor slots,
                                        const HeadRotation& rotation);

 private:
  virtual void DoRopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) = 0;
  virtual void DoGrowAngles(Tensor out, Tensor angles, Tensor positions,
                            const QueryGrowth& growth) = 0;
  virtual void DoRope(Tensor x, Tensor angles, int head_dim) = 0;
  virtual void DoWriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) = 0;
  virtual void DoCopyKvBlocks(const PagedKv& kv, Tensor pairs) = 0;
  virtual void DoPagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                                const AttentionParams& params) = 0;

  RowOps& rows_;
};

}  // namespace continuo::kernels
