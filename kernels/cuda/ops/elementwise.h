// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/runtime/kernel_stream.h"

// Ops on n elements, each by itself. T is float, uint16_t (bf16) or Half. Launchers return the
// launch's error.
namespace continuo::kernels::cuda {

// RowOps::GateMul with each function; out may be gate or up, and up may be null.
template <typename T>
cudaError_t SiluMul(T* out, const T* gate, const T* up, int64_t n, KernelStream stream);
template <typename T>
cudaError_t GeluMul(T* out, const T* gate, const T* up, int64_t n, KernelStream stream);
template <typename T>
cudaError_t ClampedSwiglu(T* out, const T* gate, const T* up, int64_t n, KernelStream stream);
template <typename T>
cudaError_t ReluSquaredMul(T* out, const T* gate, const T* up, int64_t n, KernelStream stream);
template <typename T>
cudaError_t Multiply(T* out, const T* gate, const T* up, int64_t n, KernelStream stream);
template <typename T>
cudaError_t SigmoidMul(T* out, const T* gate, const T* up, int64_t n, KernelStream stream);

// The functions of MLPs for rows [rows, cols] of bf16. out's rows are also rounded to e4m3.
cudaError_t SiluMulInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                         const uint16_t* up, int64_t rows, int64_t cols, KernelStream stream);
cudaError_t GeluMulInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                         const uint16_t* up, int64_t rows, int64_t cols, KernelStream stream);

cudaError_t ClampedSwigluInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                               const uint16_t* up, int64_t rows, int64_t cols, KernelStream stream);

// RowOps::Scale.
cudaError_t Scale(float* x, float factor, int64_t n, KernelStream stream);

// RowOps::ScaleBy.
template <typename T>
cudaError_t ScaleBy(T* x, const float* factor, int64_t n, KernelStream stream);

// RowOps::SoftCap.
cudaError_t SoftCap(float* x, float cap, int64_t n, KernelStream stream);

}  // namespace continuo::kernels::cuda
