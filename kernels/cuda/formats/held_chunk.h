// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {

// A chunk of 16 bytes in four registers. As an array of eight 16-bit numbers the compiler would
// keep it in eight. Any thread may call the functions below alone.
struct __attribute__((may_alias, aligned(16))) HeldChunk {
  uint32_t words[4];
};

// Both addresses are 16-byte aligned.
template <typename T>
__device__ inline HeldChunk LoadHeld(const T* from) {
  return *reinterpret_cast<const HeldChunk*>(from);
}
template <typename T>
__device__ inline void StoreHeld(T* to, const HeldChunk& held) {
  *reinterpret_cast<HeldChunk*>(to) = held;
}

// The numbers of a chunk of T. A word of two has the first in its low half.
template <typename T>
struct HeldValues {
  static constexpr int kNumber = kChunk<T>;
  float at[kNumber];

  __device__ explicit HeldValues(const float (&values)[kNumber]) {
    CONTINUO_UNROLL
    for (int j = 0; j < kNumber; ++j) at[j] = values[j];
  }
  __device__ explicit HeldValues(const HeldChunk& held) {
    CONTINUO_UNROLL
    for (int j = 0; j < 4; ++j) {
      const uint32_t word = held.words[j];
      if constexpr (sizeof(T) == 4) {
        at[j] = std::bit_cast<float>(word);
      } else {
        at[2 * j] = Widen(std::bit_cast<T>(static_cast<uint16_t>(word)));
        at[2 * j + 1] = Widen(std::bit_cast<T>(static_cast<uint16_t>(word >> 16)));
      }
    }
  }
  __device__ HeldValues operator+(const HeldValues& other) const {
    HeldValues sum = *this;
    CONTINUO_UNROLL
    for (int j = 0; j < kNumber; ++j) sum.at[j] += other.at[j];
    return sum;
  }
  // Returns them rounded to T as Store rounds each.
  __device__ HeldChunk Rounded() const {
    HeldChunk held;
    CONTINUO_UNROLL
    for (int j = 0; j < 4; ++j) {
      if constexpr (sizeof(T) == 4) {
        held.words[j] = std::bit_cast<uint32_t>(at[j]);
      } else {
        held.words[j] = RoundPair<T>(at[2 * j], at[2 * j + 1]);
      }
    }
    return held;
  }
};

}  // namespace continuo::kernels::cuda
