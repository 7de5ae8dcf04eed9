// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/host_device.h"

namespace continuo::kernels::cuda {

// A chunk is N neighbouring elements that a thread loads or stores at once: 16 bytes where rows are
// 16-byte aligned, otherwise one element.
template <typename T, int N>
struct alignas(N * sizeof(T)) Chunk {
  T at[N];
};

template <typename T>
inline constexpr int kChunk = static_cast<int>(16 / sizeof(T));

inline bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

template <int N, typename T>
CONTINUO_HOST_DEVICE inline Chunk<T, N> LoadChunk(const T* from) {
  return *reinterpret_cast<const Chunk<T, N>*>(from);
}
template <int N, typename T>
CONTINUO_HOST_DEVICE inline void StoreChunk(T* to, const Chunk<T, N>& chunk) {
  *reinterpret_cast<Chunk<T, N>*>(to) = chunk;
}

}  // namespace continuo::kernels::cuda
