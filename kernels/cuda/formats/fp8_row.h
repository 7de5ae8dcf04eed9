// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

// Rounds a row of bf16 to e4m3 by one block. The block has whole warps and processes the row in
// chunks of N elements: thread t has chunks t, t + threads, and so on.
namespace continuo::kernels::cuda {

// The inputs of Fp8ScaleOf.
struct RowExtent {
  float largest = 0, strange = 0;
};

__device__ inline void Include(RowExtent& extent, float value) {
  extent.largest = fmaxf(extent.largest, fabsf(value));
  extent.strange += value - value;
}

// Number of floats of shared memory that a block needs.
constexpr int ExtentFloats(int threads) { return 2 * (threads / kWarp); }

// Reduces the extents of the block's threads to that of the row. `shared` is free again when it
// returns.
__device__ inline RowExtent ExtentOfBlock(RowExtent own, float* shared) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    own.largest = fmaxf(own.largest, ShuffleXor(own.largest, mask));
    own.strange += ShuffleXor(own.strange, mask);
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  if (thread % kWarp == 0) {
    shared[2 * (thread / kWarp)] = own.largest;
    shared[2 * (thread / kWarp) + 1] = own.strange;
  }
  SyncBlock();
  RowExtent all;
  for (int warp = 0; warp < num_warps; ++warp) {
    all.largest = fmaxf(all.largest, shared[2 * warp]);
    all.strange += shared[2 * warp + 1];
  }
  SyncBlock();
  return all;
}

// Rounds the row `from`, k elements of bf16, to row `row` of `to`. Each thread has written its own
// chunks of `from`, or no thread of this grid has. `own` is the extent of the thread's chunks.
// `shared` has ExtentFloats and is free again when it returns.
template <int N>
__device__ void StoreRowInFp8(const Fp8Rows& to, int64_t row, const uint16_t* from, int64_t k,
                              RowExtent own, float* shared) {
  const RowExtent extent = ExtentOfBlock(own, shared);
  const Fp8Scale scale = Fp8ScaleOf(extent.largest, extent.strange);
  const auto thread = static_cast<int64_t>(threadIdx.x);
  if (thread == 0) to.scales[row] = scale.scale;
  const int64_t padded = Fp8Layout::Padded(k), step = static_cast<int64_t>(blockDim.x) * N;
  for (int64_t i = thread * N; i < padded; i += step) {
    Chunk<uint8_t, N> numbers = {};
    if (i < k) {
      const Chunk<uint16_t, N> chunk = LoadChunk<N>(from + i);
      CONTINUO_UNROLL
      for (int j = 0; j < N; ++j) numbers.at[j] = ToE4M3(Widen(chunk.at[j]) * scale.factor);
    }
    StoreChunk<N>(to.numbers + row * padded + i, numbers);
  }
}

}  // namespace continuo::kernels::cuda
