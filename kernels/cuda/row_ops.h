// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/host_device.h"

// Ops of Backend that go over rows. T is float or uint16_t (bf16). Every row's bits depend on that
// row alone. What launchers return is the launch's error.
namespace continuo::cuda {

inline constexpr int kRowThreads = 256;  // that share a row

// The squares that one of kRowThreads adds up: elements thread, thread + kRowThreads, …
template <typename T>
CONTINUO_HOST_DEVICE inline float SquaresOfThread(const T* x, int64_t cols, int thread) {
  float sum = 0;
  for (int64_t i = thread; i < cols; i += kRowThreads) {
    const float value = Widen(x[i]);
    sum = fmaf(value, value, sum);
  }
  return sum;
}

// What a row is multiplied with, given the sum of its squares.
CONTINUO_HOST_DEVICE inline float RmsFactor(float squares, int64_t cols, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(cols) + eps);
}

// The part of a row's output that a thread writes.
template <typename T>
CONTINUO_HOST_DEVICE inline void ScaleOfThread(T* out, const T* x, const float* gain, int64_t cols,
                                               float factor, int thread) {
  for (int64_t i = thread; i < cols; i += kRowThreads) {
    Store(out + i, Widen(x[i]) * factor * gain[i]);
  }
}

// silu(gate) · up
CONTINUO_HOST_DEVICE inline float SiluMulOf(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

// Backend::RmsNorm. x, out [rows, cols], perhaps the same; gain f32 [cols].
template <typename T>
cudaError_t RmsNorm(T* out, const T* x, const float* gain, int64_t rows, int64_t cols, float eps,
                    cudaStream_t stream);

// Backend::SiluMul, of n elements; out may be gate or up.
template <typename T>
cudaError_t SiluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream);

}  // namespace continuo::cuda
