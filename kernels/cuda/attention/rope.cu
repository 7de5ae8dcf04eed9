// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/rope.h"

#include "kernels/cuda/runtime/launch.h"
#include "kernels/math/exact_math.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// A thread computes an angle. Bound by f64 arithmetic, once a step for all layers.
__global__ void RopeAnglesKernel(float* angles, const int32_t* positions, const float* frequencies,
                                 int64_t rows, int64_t num_frequencies, float scale) {
  WaitForPreviousKernel();
  const int64_t n = rows * num_frequencies, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const int64_t row = i / num_frequencies, f = i % num_frequencies;
    const SinCosResult result =
        SinCos(static_cast<double>(positions[row]) * static_cast<double>(frequencies[f]));
    float* const to = angles + row * 2 * num_frequencies;
    to[f] = static_cast<float>(result.cos) * scale;
    to[num_frequencies + f] = static_cast<float>(result.sin) * scale;
  }
}

// A thread scales an angle. Bound by f64 arithmetic, once a step for all layers.
__global__ void GrowAnglesKernel(float* out, const float* angles, const int32_t* positions,
                                 int64_t rows, int64_t cols, QueryGrowth growth) {
  WaitForPreviousKernel();
  const int64_t n = rows * cols, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    out[i] =
        angles[i] * GrowthAt(positions[i / cols] + growth.offset, growth.growth, growth.period);
  }
}

// A thread rotates a pair. Bound by reading and writing the rotated elements.
template <typename T>
__global__ void RopeKernel(T* x, const float* angles, int64_t rows, int64_t num_heads,
                           int64_t head_dim, int64_t num_frequencies) {
  WaitForPreviousKernel();
  const int64_t n = rows * num_heads * num_frequencies;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const int64_t head = i / num_frequencies, f = i % num_frequencies;  // head counts over all rows
    const float* const row = angles + head / num_heads * 2 * num_frequencies;
    const float cos = row[f], sin = row[num_frequencies + f];
    T* const low = x + head * head_dim + f;
    T* const high = low + num_frequencies;
    const float a = Widen(*low), b = Widen(*high);
    Store(low, a * cos - b * sin);
    Store(high, b * cos + a * sin);
  }
}

}  // namespace

cudaError_t RopeAngles(float* angles, const int32_t* positions, const float* frequencies,
                       int64_t rows, int64_t num_frequencies, float scale, KernelStream stream) {
  const int64_t n = rows * num_frequencies;
  if (n == 0) return cudaSuccess;
  return Launch("RopeAngles", RopeAnglesKernel, BlocksFor(n, kThreads), kThreads, 0, stream, angles,
                positions, frequencies, rows, num_frequencies, scale);
}

cudaError_t GrowAngles(float* out, const float* angles, const int32_t* positions, int64_t rows,
                       int64_t cols, const QueryGrowth& growth, KernelStream stream) {
  const int64_t n = rows * cols;
  if (n == 0) return cudaSuccess;
  return Launch("GrowAngles", GrowAnglesKernel, BlocksFor(n, kThreads), kThreads, 0, stream, out,
                angles, positions, rows, cols, growth);
}

template <typename T>
cudaError_t Rope(T* x, const float* angles, int64_t rows, int64_t num_heads, int64_t head_dim,
                 int64_t num_frequencies, KernelStream stream) {
  const int64_t n = rows * num_heads * num_frequencies;
  if (n == 0) return cudaSuccess;
  return Launch("Rope", RopeKernel<T>, BlocksFor(n, kThreads), kThreads, 0, stream, x, angles, rows,
                num_heads, head_dim, num_frequencies);
}

template cudaError_t Rope(float*, const float*, int64_t, int64_t, int64_t, int64_t, KernelStream);
template cudaError_t Rope(uint16_t*, const float*, int64_t, int64_t, int64_t, int64_t,
                          KernelStream);
template cudaError_t Rope(Half*, const float*, int64_t, int64_t, int64_t, int64_t, KernelStream);

}  // namespace continuo::kernels::cuda
