// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/formats/held_chunk.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

// Rounds a row of bf16 to e4m3 by one block. The block has whole warps and processes the row in
// chunks of N elements: thread t has chunks t, t + threads, and so on. A row that is short enough
// stays in the threads' registers until its largest magnitude is known.
namespace continuo::kernels::cuda {

// Chunks of 8 elements that a thread keeps at most.
inline constexpr int kMostHeldChunks = 8;
// Threads of a block for one row at most.
inline constexpr int kMostRowThreads = 1024;

// Returns whether so many threads keep a row of k elements, including those that it is filled up
// with.
inline bool HoldsRow(int64_t k, int threads) {
  return k % 8 == 0 && Fp8Layout::Padded(k) / 8 <= int64_t{kMostHeldChunks} * threads;
}

// Returns the number of threads for one of so many rows. Many rows keep a device busy, so a thread
// takes several chunks; few rows are bound by latency.
inline int RowThreadsFor(int64_t rows, int64_t k) {
  constexpr int64_t kManyRows = 256;
  const int64_t wanted = Fp8Layout::Padded(k) / 8 / (rows < kManyRows ? 1 : kMostHeldChunks);
  int threads = 128;
  while (threads < kMostRowThreads && threads < wanted) threads *= 2;
  return threads;
}

// 8 numbers of e4m3 in two registers.
struct __attribute__((may_alias, aligned(8))) Fp8Chunk {
  uint32_t fours[2];
};

// Takes the magnitude of a bf16 number into the largest one, both as bits. The bits of NaN and
// infinity are larger than those of other magnitudes.
__device__ inline void Include(uint32_t& largest, uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  largest = largest > magnitude ? largest : magnitude;
}

__device__ inline void Include(uint32_t& largest, const HeldChunk& held) {
  CONTINUO_UNROLL
  for (int j = 0; j < 4; ++j) {
    Include(largest, static_cast<uint16_t>(held.words[j]));
    Include(largest, static_cast<uint16_t>(held.words[j] >> 16));
  }
}

// Number of floats of shared memory that a block needs.
constexpr int ExtentFloats(int threads) { return threads / kWarp; }

// Returns the scale of a row whose threads have these largest magnitudes. `shared` is free again
// when it returns.
__device__ inline Fp8Scale ScaleOfRow(uint32_t largest, float* shared) {
  auto* const of_warps = reinterpret_cast<uint32_t*>(shared);
  const auto reduce = [&largest] {
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const auto other = std::bit_cast<uint32_t>(ShuffleXor(std::bit_cast<float>(largest), mask));
      largest = largest > other ? largest : other;
    }
  };
  reduce();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  if (lane == 0) of_warps[thread / kWarp] = largest;
  SyncBlock();
  largest = lane < static_cast<int>(blockDim.x) / kWarp ? of_warps[lane] : 0;
  reduce();
  SyncBlock();
  const float size = Widen(static_cast<uint16_t>(largest));
  return Fp8ScaleOf(size, size - size);
}

// Returns a chunk in e4m3.
__device__ inline Fp8Chunk InFp8(const HeldChunk& held, float factor) {
  const HeldValues<uint16_t> values(held);
  const auto pair = [&](int i) -> uint32_t {
    return ToE4M3Pair(values.at[i] * factor, values.at[i + 1] * factor);
  };
  return {{pair(0) | pair(2) << 16, pair(4) | pair(6) << 16}};
}

// Rounds the row `from`, k elements of bf16, to row `row` of `to`. Each thread has written its own
// chunks of `from`, or no thread of this grid has. `largest` is that of the thread's chunks.
// `shared` has ExtentFloats and is free again when it returns.
template <int N>
__device__ void StoreRowInFp8(const Fp8Rows& to, int64_t row, const uint16_t* from, int64_t k,
                              uint32_t largest, float* shared) {
  const Fp8Scale scale = ScaleOfRow(largest, shared);
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

// Does the same with a row that the threads keep; the first of them have kHeld chunks each at most.
template <int kHeld>
__device__ void StoreHeldRowInFp8(const Fp8Rows& to, int64_t row, const HeldChunk (&held)[kHeld],
                                  int k, uint32_t largest, float* shared) {
  const Fp8Scale scale = ScaleOfRow(largest, shared);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) to.scales[row] = scale.scale;
  const int padded = static_cast<int>(Fp8Layout::Padded(k));
  const int step = static_cast<int>(blockDim.x) * 8;
  uint8_t* const numbers = to.numbers + row * padded;
  CONTINUO_UNROLL
  for (int j = 0; j < kHeld; ++j) {
    if (j * step >= padded) break;
    const int i = j * step + thread * 8;
    if (i >= padded) continue;
    *reinterpret_cast<Fp8Chunk*>(numbers + i) = i < k ? InFp8(held[j], scale.factor) : Fp8Chunk{};
  }
}

}  // namespace continuo::kernels::cuda
