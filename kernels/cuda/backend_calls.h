// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the files of CudaBackend share.

#include <cstdint>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/tensor_rows.h"
#include "services/base/check.h"

namespace continuo::cuda {

template <typename T>
T* Data(const Tensor& t) {
  return static_cast<T*>(t.data);
}

inline bool IsActivation(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

// call<T>() with the kernels' type of an activation.
template <typename Call>
auto WithType(DType dtype, Call call) {
  CONTINUO_CHECK(IsActivation(dtype));
  return dtype == DType::kF32 ? call.template operator()<float>()
                              : call.template operator()<uint16_t>();
}
// The same, of a KV cache of bytes, and of any.
template <typename Call>
auto WithBytes(DType dtype, Call call) {
  CONTINUO_CHECK(dtype == DType::kI8 || dtype == DType::kF8);
  return dtype == DType::kI8 ? call.template operator()<int8_t>()
                             : call.template operator()<uint8_t>();
}
template <typename Call>
auto WithElement(DType dtype, Call call) {
  return SizeOf(dtype) == 1 ? WithBytes(dtype, call) : WithType(dtype, call);
}

template <typename Call>
void CudaBackend::Enqueue(const char* what, Call call) {
  if (!failure_.ok()) return;
  Keep(SetDevice(device()));
  if (failure_.ok()) Keep(CudaStatus(call(), device(), what));
}

}  // namespace continuo::cuda
