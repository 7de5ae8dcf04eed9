// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"
#include "services/base/check.h"

namespace continuo::kernels {

// Ends the process unless the arguments of Backend::PagedAttention fit together, as far as shapes
// and types tell.
inline void CheckAttention(const Tensor& out, const Tensor& q, const PagedKv& kv,
                           const AttentionParams& params) {
  CONTINUO_CHECK(q.rows() == out.rows() && q.cols() == out.cols());
  CONTINUO_CHECK(kv.query_begin.dtype == DType::kI32);
  CONTINUO_CHECK(kv.query_begin.size() == kv.kv_len.size() + 1);
  CONTINUO_CHECK(kv.num_single >= 0 && kv.num_single <= kv.kv_len.size());
  CONTINUO_CHECK(kv.num_single <= q.rows());
  CONTINUO_CHECK(kv.kv_len.dtype == DType::kI32 && kv.block_tables.dtype == DType::kI32);
  CONTINUO_CHECK(params.window >= 0 && params.softcap >= 0 && params.head_dim > 0 &&
                 params.heads_per_kv_head > 0);
  CONTINUO_CHECK(q.cols() == int64_t{params.num_heads} * params.head_dim);
  CONTINUO_CHECK(kv.block_size > 0 && kv.cache.shape[1] == params.num_kv_heads);
  CONTINUO_CHECK(kv.cache.shape[2] ==
                 2 * kv.block_size * KvRowElements(kv.cache.dtype, params.head_dim));
}

}  // namespace continuo::kernels
