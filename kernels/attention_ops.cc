// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_ops.h"

#include "kernels/check_tensor.h"
#include "services/base/check.h"

namespace continuo::kernels {
namespace {

void CheckRows(const Tensor& k, const Tensor& v, const Tensor& slots) {
  CONTINUO_CHECK(IsActivation(k.dtype) && k.dtype == v.dtype);
  CONTINUO_CHECK(k.rows() == v.rows() && k.cols() == v.cols());
  CONTINUO_CHECK(slots.dtype == DType::kI32 && slots.size() == k.rows());
}

// Checks the cache for keys or values of `columns` elements a row.
void CheckCache(const PagedKv& kv, int64_t columns) {
  const int64_t num_heads = kv.cache.shape[1];
  CONTINUO_CHECK(kv.block_size > 0 && num_heads > 0 && columns % num_heads == 0);
  CONTINUO_CHECK(kv.cache.shape[2] ==
                 2 * kv.block_size * KvRowElements(kv.cache.dtype, columns / num_heads));
}

// Checks the rotation of heads [rows, …].
void CheckRotation(const Tensor& heads, const HeadRotation& rotation) {
  const auto& [q_gain, k_gain, eps, angles, head_dim] = rotation;
  CONTINUO_CHECK(head_dim > 0 && heads.cols() % head_dim == 0);
  CONTINUO_CHECK(angles.dtype == DType::kF32 && angles.rows() == heads.rows());
  CONTINUO_CHECK(angles.cols() <= head_dim && angles.cols() % 2 == 0);
  CONTINUO_CHECK(q_gain.size() == k_gain.size());
  CONTINUO_CHECK(q_gain.size() == 0 || q_gain.size() == head_dim);
}

}  // namespace

void AttentionOps::RopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) {
  CONTINUO_CHECK(angles.dtype == DType::kF32 && positions.dtype == DType::kI32);
  CONTINUO_CHECK(frequencies.dtype == DType::kF32 && angles.cols() == 2 * frequencies.size());
  CONTINUO_CHECK(positions.size() == angles.rows());
  if (angles.size() > 0) DoRopeAngles(angles, positions, frequencies, scale);
}

void AttentionOps::GrowAngles(Tensor out, Tensor angles, Tensor positions,
                              const QueryGrowth& growth) {
  CONTINUO_CHECK(out.dtype == DType::kF32 && angles.dtype == DType::kF32);
  CONTINUO_CHECK(out.size() == angles.size() && positions.dtype == DType::kI32);
  CONTINUO_CHECK(positions.size() == angles.rows());
  CONTINUO_CHECK(growth.period > 0 && growth.offset >= 0);
  if (angles.size() > 0) DoGrowAngles(out, angles, positions, growth);
}

void AttentionOps::Rope(Tensor x, Tensor angles, int head_dim) {
  CONTINUO_CHECK(IsActivation(x.dtype) && angles.dtype == DType::kF32);
  if (x.size() == 0) return;
  CONTINUO_CHECK(head_dim > 0 && x.cols() % head_dim == 0 && angles.cols() <= head_dim);
  CONTINUO_CHECK(angles.cols() % 2 == 0 && angles.rows() == x.rows());
  DoRope(x, angles, head_dim);
}

void AttentionOps::WriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) {
  CheckRows(k, v, slots);
  if (k.size() == 0) return;
  CheckCache(kv, k.cols());
  DoWriteKv(kv, k, v, slots);
}

void AttentionOps::RotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v, Tensor slots,
                                    const HeadRotation& rotation) {
  CheckRows(k, v, slots);
  CONTINUO_CHECK(q.dtype == k.dtype && q.rows() == k.rows());
  CheckRotation(q, rotation);
  CONTINUO_CHECK(k.cols() % rotation.head_dim == 0);
  if (k.size() > 0) {
    CONTINUO_CHECK(k.cols() == kv.cache.shape[1] * rotation.head_dim);
    CheckCache(kv, k.cols());
  }
  if (q.size() > 0 || k.size() > 0) DoRotateAndWriteKv(kv, q, k, v, slots, rotation);
}

void AttentionOps::DoRotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v, Tensor slots,
                                      const HeadRotation& rotation) {
  if (rotation.q_gain.size() > 0) {
    rows_.RmsNorm(q, q, rotation.q_gain, rotation.eps);
    rows_.RmsNorm(k, k, rotation.k_gain, rotation.eps);
  }
  Rope(q, rotation.angles, rotation.head_dim);
  Rope(k, rotation.angles, rotation.head_dim);
  WriteKv(kv, k, v, slots);
}

void AttentionOps::RotateJoinedAndWriteKv(const PagedKv& kv, Tensor q, Tensor qkv, Tensor slots,
                                          const HeadRotation& rotation) {
  CONTINUO_CHECK(TakesJoinedHeads());
  CONTINUO_CHECK(IsActivation(q.dtype) && q.dtype == qkv.dtype && q.rows() == qkv.rows());
  CONTINUO_CHECK(slots.dtype == DType::kI32 && slots.size() == q.rows());
  CheckRotation(q, rotation);
  const int64_t kv_columns = kv.cache.shape[1] * rotation.head_dim;
  CONTINUO_CHECK(qkv.cols() == q.cols() + 2 * kv_columns && q.cols() > 0);
  CheckCache(kv, kv_columns);
  if (q.rows() > 0) DoRotateJoinedAndWriteKv(kv, q, qkv, slots, rotation);
}

void AttentionOps::DoRotateJoinedAndWriteKv(const PagedKv& /*kv*/, Tensor /*q*/, Tensor /*qkv*/,
                                            Tensor /*slots*/, const HeadRotation& /*rotation*/) {
  CONTINUO_CHECK(!TakesJoinedHeads());
}

void AttentionOps::CopyKvBlocks(const PagedKv& kv, Tensor pairs) {
  CONTINUO_CHECK(pairs.dtype == DType::kI32 && (pairs.rows() == 0 || pairs.cols() == 2));
  if (pairs.rows() > 0 && kv.cache.cols() > 0) DoCopyKvBlocks(kv, pairs);
}

void AttentionOps::PagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                                  const AttentionParams& params) {
  CONTINUO_CHECK(IsActivation(q.dtype) && out.dtype == q.dtype);
  CONTINUO_CHECK(q.rows() == out.rows() && q.cols() == out.cols());
  CONTINUO_CHECK(kv.query_begin.dtype == DType::kI32 && kv.kv_len.dtype == DType::kI32 &&
                 kv.block_tables.dtype == DType::kI32);
  CONTINUO_CHECK(kv.query_begin.size() == kv.kv_len.size() + 1);
  CONTINUO_CHECK(kv.num_decodes >= 0 && kv.num_decodes <= kv.kv_len.size());
  CONTINUO_CHECK(kv.num_decodes <= q.rows());
  CONTINUO_CHECK(params.window >= 0 && params.chunk >= 0 && params.softcap >= 0);
  CONTINUO_CHECK(!params.bidirectional || params.chunk == 0);
  CONTINUO_CHECK(params.head_dim > 0 && params.heads_per_kv_head > 0);
  CONTINUO_CHECK(params.sinks.size() == 0 ||
                 (params.sinks.dtype == DType::kF32 && params.sinks.size() == params.num_heads));
  CONTINUO_CHECK(q.cols() == int64_t{params.num_heads} * params.head_dim);
  CONTINUO_CHECK(kv.block_size > 0 && kv.cache.shape[1] == params.num_kv_heads);
  CONTINUO_CHECK(kv.cache.shape[2] ==
                 2 * kv.block_size * KvRowElements(kv.cache.dtype, params.head_dim));
  if (q.size() > 0) DoPagedAttention(out, q, kv, params);
}

}  // namespace continuo::kernels
