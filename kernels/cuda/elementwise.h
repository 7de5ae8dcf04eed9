// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"

// Ops of Backend on n elements each by itself. T is float, uint16_t (bf16) or Half. What launchers
// return is the launch's error.
namespace continuo::cuda {

// Backend::SiluMul and GeluMul; out may be gate or up.
template <typename T>
cudaError_t SiluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream);
template <typename T>
cudaError_t GeluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream);

// Backend::SoftCap.
cudaError_t SoftCap(float* x, float cap, int64_t n, cudaStream_t stream);

}  // namespace continuo::cuda
