// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_ops.h"
#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/row_ops.h"
#include "kernels/tensor.h"
#include "services/base/check.h"

// Tensors in host memory as the ops of the CPU read and write them.
namespace continuo::kernels::cpu {

static_assert(static_cast<int>(DType::kF32) == kElementF32);
static_assert(static_cast<int>(DType::kBF16) == kElementBF16);
static_assert(static_cast<int>(DType::kF16) == kElementF16);

// Returns the index of a float type in a KernelTable's arrays.
inline int ElementOf(DType dtype) {
  CONTINUO_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
  return static_cast<int>(dtype);
}

// Ends the process unless the CPU computes with activations of the type.
inline void CheckComputes(DType activations) {
  CONTINUO_CHECK(activations == DType::kF32 || activations == DType::kBF16);
}

// Returns the address of an element.
inline char* At(const Tensor& t, int64_t element) {
  return static_cast<char*>(t.data) + element * static_cast<int64_t>(SizeOf(t.dtype));
}

// Returns where a block keeps a head's keys (which = 0) or values (1): block_size rows of head_dim
// elements, in i8 then as many scales.
inline char* KvRows(const PagedKv& kv, int64_t block, int64_t head, int64_t which) {
  return At(kv.cache, ((block * kv.cache.shape[1] + head) * 2 + which) * (kv.cache.shape[2] / 2));
}

// Returns n elements of t from `element` on as floats: in place where t is f32, else widened to
// `buffer`.
inline const float* Read(const KernelTable& k, const Tensor& t, int64_t element, int64_t n,
                         float* buffer) {
  if (t.dtype == DType::kF32) return reinterpret_cast<const float*>(At(t, element));
  k.widen[ElementOf(t.dtype)](buffer, At(t, element), static_cast<size_t>(n));
  return buffer;
}

// Returns where to compute n floats that belong in t: in place where t is f32, else `buffer`.
// Finish then gets the same pointer, and rounds to t's type: f32 or bf16, which are the activations
// of the CPU.
inline float* Begin(const Tensor& t, int64_t element, float* buffer) {
  return t.dtype == DType::kF32 ? reinterpret_cast<float*>(At(t, element)) : buffer;
}
inline void Finish(const KernelTable& k, const Tensor& t, int64_t element, int64_t n,
                   const float* values) {
  if (t.dtype == DType::kF32) return;
  CONTINUO_CHECK(t.dtype == DType::kBF16);
  k.narrow[kElementBF16](At(t, element), values, static_cast<size_t>(n));
}

// Returns the loop of a gate: n floats of each; out may be gate.
using GateLoop = void (*)(float* out, const float* gate, const float* up, size_t n);

inline GateLoop GateLoopOf(const KernelTable& k, GateFunction function) {
  switch (function) {
    case GateFunction::kSilu:
      return k.silu_mul;
    case GateFunction::kGelu:
      return k.gelu_mul;
    case GateFunction::kClampedSwiglu:
      return k.clamped_swiglu;
    case GateFunction::kReluSquared:
      return k.relu_squared_mul;
    case GateFunction::kGeluErf:
      return k.gelu_erf_mul;
    case GateFunction::kProduct:
      return k.multiply;
    case GateFunction::kSigmoid:
      return k.sigmoid_mul;
  }
  CONTINUO_CHECK(!"a gate without a loop");
}

}  // namespace continuo::kernels::cpu
