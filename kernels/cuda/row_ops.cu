// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/row_ops.h"

namespace continuo::cuda {
namespace {

constexpr int64_t kMaxBlocks = 65535;

// A block a row: squares, added in a tree over the block's threads, then a second pass over x,
// which the second-level cache still has; so bound by one read and one write of memory.
template <typename T>
__global__ void RmsNormKernel(T* out, const T* x, const float* gain, int64_t rows, int64_t cols,
                              float eps) {
  __shared__ float sums[kRowThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    sums[thread] = SquaresOfThread(x + row * cols, cols, thread);
    for (int half = kRowThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread < half) sums[thread] += sums[thread + half];
    }
    __syncthreads();
    const float factor = RmsFactor(sums[0], cols, eps);
    ScaleOfThread(out + row * cols, x + row * cols, gain, cols, factor, thread);
    __syncthreads();  // before sums is filled again
  }
}

// A thread an element; bound by two reads and a write of memory.
template <typename T>
__global__ void SiluMulKernel(T* out, const T* gate, const T* up, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x; i < n; i += step) {
    Store(out + i, SiluMulOf(Widen(gate[i]), Widen(up[i])));
  }
}

}  // namespace

template <typename T>
cudaError_t RmsNorm(T* out, const T* x, const float* gain, int64_t rows, int64_t cols, float eps,
                    cudaStream_t stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(std::min(rows, kMaxBlocks));
  RmsNormKernel<<<blocks, kRowThreads, 0, stream>>>(out, x, gain, rows, cols, eps);
  return cudaGetLastError();
}

template <typename T>
cudaError_t SiluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const auto blocks =
      static_cast<unsigned>(std::min((n + kRowThreads - 1) / kRowThreads, kMaxBlocks));
  SiluMulKernel<<<blocks, kRowThreads, 0, stream>>>(out, gate, up, n);
  return cudaGetLastError();
}

template cudaError_t RmsNorm(float*, const float*, const float*, int64_t, int64_t, float,
                             cudaStream_t);
template cudaError_t RmsNorm(uint16_t*, const uint16_t*, const float*, int64_t, int64_t, float,
                             cudaStream_t);
template cudaError_t SiluMul(float*, const float*, const float*, int64_t, cudaStream_t);
template cudaError_t SiluMul(uint16_t*, const uint16_t*, const uint16_t*, int64_t, cudaStream_t);

}  // namespace continuo::cuda
