// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/fp8.h"

// Ops of Backend on n elements each by itself. T is float, uint16_t (bf16) or Half. What launchers
// return is the launch's error.
namespace continuo::kernels::cuda {

// Backend::SiluMul and GeluMul; out may be gate or up.
template <typename T>
cudaError_t SiluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream);
template <typename T>
cudaError_t GeluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream);

// The same of rows [rows, cols] of bf16, and out's rows in e4m3.
cudaError_t SiluMulInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                         const uint16_t* up, int64_t rows, int64_t cols, cudaStream_t stream);
cudaError_t GeluMulInFp8(uint16_t* out, const Fp8Rows& fp8, const uint16_t* gate,
                         const uint16_t* up, int64_t rows, int64_t cols, cudaStream_t stream);

// Backend::SoftCap.
cudaError_t SoftCap(float* x, float cap, int64_t n, cudaStream_t stream);

}  // namespace continuo::kernels::cuda
