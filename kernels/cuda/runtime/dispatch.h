// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/runtime/host_device.h"
#include "kernels/tensor.h"
#include "services/base/check.h"

// Turns the types of tensors into the types of kernels (host_device.h). Each function calls
// call<T>() and returns its result; a type that it does not take ends the process.
namespace continuo::kernels::cuda {

template <typename T>
T* Data(const Tensor& t) {
  return static_cast<T*>(t.data);
}

inline bool IsF32OrBF16(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

template <typename Call>
auto WithF32OrBF16(DType dtype, Call call) {
  CONTINUO_CHECK(IsF32OrBF16(dtype));
  return dtype == DType::kF32 ? call.template operator()<float>()
                              : call.template operator()<uint16_t>();
}

// Takes the types of activations: f32, bf16 and f16.
template <typename Call>
auto WithType(DType dtype, Call call) {
  return dtype == DType::kF16 ? call.template operator()<Half>() : WithF32OrBF16(dtype, call);
}

// Takes the types that tensor cores multiply: bf16 and f16.
template <typename Call>
auto WithNumber(DType dtype, Call call) {
  CONTINUO_CHECK(dtype == DType::kBF16 || dtype == DType::kF16);
  return dtype == DType::kBF16 ? call.template operator()<uint16_t>()
                               : call.template operator()<Half>();
}

// Takes the types of an 8-bit KV cache: int8 and e4m3.
template <typename Call>
auto WithBytes(DType dtype, Call call) {
  CONTINUO_CHECK(dtype == DType::kI8 || dtype == DType::kF8);
  return dtype == DType::kI8 ? call.template operator()<int8_t>()
                             : call.template operator()<uint8_t>();
}

// Takes the types of a KV cache beside activations of T: 8 bits with any, f16 with f16 alone, and
// f32 or bf16 with f32 or bf16.
template <typename T, typename Call>
auto WithElement(DType dtype, Call call) {
  if (SizeOf(dtype) == 1) return WithBytes(dtype, call);
  if constexpr (std::is_same_v<T, Half>) {
    CONTINUO_CHECK(dtype == DType::kF16);
    return call.template operator()<Half>();
  } else {
    return WithF32OrBF16(dtype, call);
  }
}

}  // namespace continuo::kernels::cuda
