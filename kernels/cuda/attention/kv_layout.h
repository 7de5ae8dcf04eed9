// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/host_device.h"

namespace continuo::kernels::cuda {

// A layer of the KV cache as kernels see it (PagedKv::cache of kernels/attention_ops.h). For each
// block and head there are block_size rows of head_dim keys, then as many of values. Element is
// float, uint16_t (bf16), Half, int8_t or uint8_t (e4m3). Rows of bytes are followed by their f32
// scales.
template <typename Element>
struct KvLayout {
  static constexpr bool kHasScales = sizeof(Element) == 1;

  Element* cache = nullptr;
  int64_t num_blocks = 0;
  int num_heads = 0, block_size = 0, head_dim = 0;

  // Elements of a head's keys, or values, in a block, scales included.
  CONTINUO_HOST_DEVICE int64_t HalfBlock() const {
    const int64_t scales = kHasScales ? static_cast<int64_t>(sizeof(float)) : 0;
    return block_size * (head_dim + scales);
  }
  // Returns the keys (which = 0) or values (1) of a head in a block.
  CONTINUO_HOST_DEVICE Element* Rows(int64_t block, int64_t head, int which) const {
    return cache + ((block * num_heads + head) * 2 + which) * HalfBlock();
  }
  CONTINUO_HOST_DEVICE Element* Row(int64_t slot, int64_t head, int which) const {
    return Rows(slot / block_size, head, which) + slot % block_size * head_dim;
  }
  // Returns the address of that row's scale.
  CONTINUO_HOST_DEVICE Element* Scale(int64_t slot, int64_t head, int which) const {
    return Rows(slot / block_size, head, which) + static_cast<int64_t>(block_size) * head_dim +
           slot % block_size * static_cast<int64_t>(sizeof(float));
  }
};

}  // namespace continuo::kernels::cuda

// Calls macro(T, Element) for the types of activations and of the KV cache that the attention
// kernels are instantiated for; the first list holds those that tensor cores multiply.
#define CONTINUO_TENSOR_CORE_TYPES(macro) \
  macro(uint16_t, uint16_t);              \
  macro(uint16_t, int8_t);                \
  macro(uint16_t, uint8_t);               \
  macro(Half, Half);                      \
  macro(Half, int8_t);                    \
  macro(Half, uint8_t)
#define CONTINUO_KV_TYPES(macro) \
  macro(float, float);           \
  macro(float, uint16_t);        \
  macro(float, int8_t);          \
  macro(float, uint8_t);         \
  macro(uint16_t, float);        \
  CONTINUO_TENSOR_CORE_TYPES(macro)
