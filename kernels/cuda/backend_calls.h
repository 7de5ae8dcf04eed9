// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the files of CudaBackend share.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {

template <typename T>
T* Data(const Tensor& t) {
  return static_cast<T*>(t.data);
}

inline bool IsF32OrBF16(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

// call<T>() with the kernels' type of one of those, and of any activation.
template <typename Call>
auto WithF32OrBF16(DType dtype, Call call) {
  CONTINUO_CHECK(IsF32OrBF16(dtype));
  return dtype == DType::kF32 ? call.template operator()<float>()
                              : call.template operator()<uint16_t>();
}
template <typename Call>
auto WithType(DType dtype, Call call) {
  return dtype == DType::kF16 ? call.template operator()<Half>() : WithF32OrBF16(dtype, call);
}
// The same of what tensor cores take.
template <typename Call>
auto WithNumber(DType dtype, Call call) {
  CONTINUO_CHECK(dtype == DType::kBF16 || dtype == DType::kF16);
  return dtype == DType::kBF16 ? call.template operator()<uint16_t>()
                               : call.template operator()<Half>();
}
// The same of a KV cache of bytes, and of any beside activations of T: f16 meets f16 alone.
template <typename Call>
auto WithBytes(DType dtype, Call call) {
  CONTINUO_CHECK(dtype == DType::kI8 || dtype == DType::kF8);
  return dtype == DType::kI8 ? call.template operator()<int8_t>()
                             : call.template operator()<uint8_t>();
}
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

template <typename Call>
void CudaBackend::Enqueue(const char* what, Call call) {
  if (!failure_.ok()) return;
  known_fp8_ = {};
  Keep(SetDevice(device()));
  BeginPart();
  if (failure_.ok()) Keep(CudaStatus(call(), device(), what));
}

}  // namespace continuo::kernels::cuda
