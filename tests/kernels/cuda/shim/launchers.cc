// SPDX-License-Identifier: Apache-2.0
// The launchers of kernels/cuda/*.cu on the host: the host-device functions that the kernels call,
// in a loop, in their turn on the shim's stream.
#include "kernels/cuda/row_ops.h"
#include "kernels/cuda/tree_sum.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::cuda {

using testing::CudaShim;

cudaError_t AddTrees(float* out, const float* parts, int num_parts, int64_t n,
                     cudaStream_t stream) {
  return CudaShim::Launch("AddTrees", stream, [=] {
    for (int64_t i = 0; i < n; ++i) out[i] = AddTree(parts + i, n, num_parts);
  });
}

template <typename T>
cudaError_t RmsNorm(T* out, const T* x, const float* gain, int64_t rows, int64_t cols, float eps,
                    cudaStream_t stream) {
  return CudaShim::Launch("RmsNorm", stream, [=] {
    for (int64_t row = 0; row < rows; ++row) {
      float sums[kRowThreads];
      for (int t = 0; t < kRowThreads; ++t) sums[t] = SquaresOfThread(x + row * cols, cols, t);
      for (int half = kRowThreads / 2; half > 0; half /= 2) {
        for (int t = 0; t < half; ++t) sums[t] += sums[t + half];
      }
      const float factor = RmsFactor(sums[0], cols, eps);
      for (int t = 0; t < kRowThreads; ++t) {
        ScaleOfThread(out + row * cols, x + row * cols, gain, cols, factor, t);
      }
    }
  });
}

template <typename T>
cudaError_t SiluMul(T* out, const T* gate, const T* up, int64_t n, cudaStream_t stream) {
  return CudaShim::Launch("SiluMul", stream, [=] {
    for (int64_t i = 0; i < n; ++i) Store(out + i, SiluMulOf(Widen(gate[i]), Widen(up[i])));
  });
}

template cudaError_t RmsNorm(float*, const float*, const float*, int64_t, int64_t, float,
                             cudaStream_t);
template cudaError_t RmsNorm(uint16_t*, const uint16_t*, const float*, int64_t, int64_t, float,
                             cudaStream_t);
template cudaError_t SiluMul(float*, const float*, const float*, int64_t, cudaStream_t);
template cudaError_t SiluMul(uint16_t*, const uint16_t*, const uint16_t*, int64_t, cudaStream_t);

}  // namespace continuo::cuda
