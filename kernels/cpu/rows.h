// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/tensor.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {

static_assert(static_cast<int>(DType::kF32) == kElementF32);
static_assert(static_cast<int>(DType::kBF16) == kElementBF16);
static_assert(static_cast<int>(DType::kF16) == kElementF16);

// Index of a float type in a KernelTable's arrays.
inline int ElementOf(DType dtype) {
  CONTINUO_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
  return static_cast<int>(dtype);
}

inline bool IsActivation(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

inline char* At(const Tensor& t, int64_t element) {
  return static_cast<char*>(t.data) + element * static_cast<int64_t>(SizeOf(t.dtype));
}

// Where a block keeps a head's keys (which = 0) or values (1): block_size rows of head_dim
// elements, in i8 then as many scales.
inline char* KvRows(const PagedKv& kv, int64_t block, int64_t head, int64_t which) {
  return At(kv.cache, ((block * kv.cache.shape[1] + head) * 2 + which) * (kv.cache.shape[2] / 2));
}

// n elements of t from `element` on as floats: in place where they are, else widened to `buffer`.
inline const float* Read(const KernelTable& k, const Tensor& t, int64_t element, int64_t n,
                         float* buffer) {
  if (t.dtype == DType::kF32) return reinterpret_cast<const float*>(At(t, element));
  k.widen[ElementOf(t.dtype)](buffer, At(t, element), static_cast<size_t>(n));
  return buffer;
}

// Where to compute n floats that belong in t: in place, or `buffer`, to be passed to Finish.
inline float* Begin(const Tensor& t, int64_t element, float* buffer) {
  return t.dtype == DType::kF32 ? reinterpret_cast<float*>(At(t, element)) : buffer;
}
inline void Finish(const KernelTable& k, const Tensor& t, int64_t element, int64_t n,
                   const float* values) {
  if (t.dtype == DType::kF32) return;
  CONTINUO_CHECK(t.dtype == DType::kBF16);
  k.narrow[kElementBF16](At(t, element), values, static_cast<size_t>(n));
}

// What MatMulPieces asks of the pieces of k elements.
inline void CheckPieces(std::span<const int64_t> piece_begin, int64_t k) {
  const size_t num_pieces = piece_begin.size() - 1;
  CONTINUO_CHECK(piece_begin.size() >= 2 && (num_pieces & (num_pieces - 1)) == 0);
  CONTINUO_CHECK(piece_begin.front() == 0 && piece_begin.back() == k);
  CONTINUO_CHECK(std::is_sorted(piece_begin.begin(), piece_begin.end()));
}

}  // namespace continuo::kernels::cpu
