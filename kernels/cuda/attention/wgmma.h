// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/runtime/launch.h"

// Warpgroup products (wgmma) on tensor cores of compute capability 9.0. A warpgroup is four warps,
// the first of which has a number that is a multiple of four. The products read shared memory
// themselves and run while the warps do something else (PTX ISA, asynchronous warpgroup level
// matrix instructions). All 128 threads call together. Code for other devices has none of it, so
// kernels that use it need kHasWgmma.
namespace continuo::kernels::cuda {

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

// The layout of a matrix of 16-bit elements for wgmma, from an address that is a multiple of 1,024.
// Rows of 64 elements, 128 bytes, follow one another; wider rows are cut into such parts, each a
// matrix of its own. The 16-byte chunk p of row r is stored at chunk SwizzleIn128(r, p): the
// 128-byte swizzle.
CONTINUO_HOST_DEVICE constexpr int SwizzleIn128(int row, int chunk) { return chunk ^ (row & 7); }

// Returns a matrix descriptor (PTX ISA). Bits 0 to 13 are the address, 16 to 29 the bytes to the
// next part of its rows where rows are columns of the product, and 32 to 45 the bytes to the next
// eight rows, all without their last four bits. Bits 62 and 63 are the swizzle, 1 for 128 bytes.
CONTINUO_HOST_DEVICE constexpr uint64_t DescribeMatrix(uint32_t address, uint32_t part_bytes) {
  constexpr uint64_t kEightRows = 1024;
  return (address & 0x3ffff) >> 4 | uint64_t{part_bytes >> 4} << 16 | (kEightRows >> 4) << 32 |
         uint64_t{1} << 62;
}
// Returns the matrix that begins this many bytes later: 32 are 16 elements of a row, 2,048 are 16
// rows.
CONTINUO_HOST_DEVICE constexpr uint64_t Behind(uint64_t matrix, int bytes) {
  return matrix + static_cast<uint64_t>(bytes >> 4);
}

#ifdef __CUDACC__

// Traps where a kernel was started without wgmma in its code.
__device__ inline void RequireWgmma() {
  if (!kHasWgmma) __trap();
}

// Returns an address of shared memory as descriptors have it.
__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Makes this thread's writes to shared memory, including copies that it has awaited, visible to
// products that begin after the next barrier.
__device__ inline void ShowToProducts() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define CONTINUO_FOUR(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define CONTINUO_32(d)                                                                \
  CONTINUO_FOUR(d, 0), CONTINUO_FOUR(d, 1), CONTINUO_FOUR(d, 2), CONTINUO_FOUR(d, 3), \
      CONTINUO_FOUR(d, 4), CONTINUO_FOUR(d, 5), CONTINUO_FOUR(d, 6), CONTINUO_FOUR(d, 7)
#define CONTINUO_64(d)                                                                        \
  CONTINUO_32(d), CONTINUO_FOUR(d, 8), CONTINUO_FOUR(d, 9), CONTINUO_FOUR(d, 10),             \
      CONTINUO_FOUR(d, 11), CONTINUO_FOUR(d, 12), CONTINUO_FOUR(d, 13), CONTINUO_FOUR(d, 14), \
      CONTINUO_FOUR(d, 15)
#define CONTINUO_NAMES_32                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CONTINUO_NAMES_64                                                                   \
  CONTINUO_NAMES_32                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Call before the first of some products: their registers have been written.
__device__ inline void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group of products.
__device__ inline void EndProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Returns when all but the last kGroups groups are computed. One of them adds to `d`.
template <int kGroups>
__device__ inline void AwaitProducts(float (&d)[8][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;" : CONTINUO_32(d) : "n"(kGroups) : "memory");
}
template <int kGroups>
__device__ inline void AwaitProducts(float (&d)[16][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;" : CONTINUO_64(d) : "n"(kGroups) : "memory");
}
// Call after AwaitProducts: products may have read `a` until here.
__device__ inline void HasBeenRead(uint32_t (&a)[4]) {
  asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}

// Starts d = a · bᵀ, or d += a · bᵀ where it `adds`. a [64, 16] and b [128, 16] are matrices of
// Number, uint16_t (bf16) or Half, in shared memory; d [64, 128] is f32. Warp w of the group has
// rows 16 w and on of d, and of those a lane has in d[i] what it has of the i-th d of MultiplyAdd.
template <typename Number>
__device__ inline void StartScores(float (&d)[16][4], uint64_t a, uint64_t b, bool adds) {
#define CONTINUO_PRODUCT(type)                                                            \
  asm volatile(                                                                           \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                        \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" CONTINUO_NAMES_64 \
      "}, %64, %65, p, 1, 1, 0, 0;\n}"                                                    \
      : CONTINUO_64(d)                                                                    \
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)))
  if constexpr (std::is_same_v<Number, Half>) {
    CONTINUO_PRODUCT("f16");
  } else {
    CONTINUO_PRODUCT("bf16");
  }
#undef CONTINUO_PRODUCT
}

// Starts d += a · b. a [64, 16] is in registers, the 16 rows of each warp as in MultiplyAdd; b [16,
// 64] or [16, 128] is a matrix in shared memory; d [64, as many] is as above.
template <typename Number>
__device__ inline void StartValues(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
#define CONTINUO_PRODUCT(type)                                                           \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                       \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" CONTINUO_NAMES_32 \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                     \
      : CONTINUO_32(d)                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))
  if constexpr (std::is_same_v<Number, Half>) {
    CONTINUO_PRODUCT("f16");
  } else {
    CONTINUO_PRODUCT("bf16");
  }
#undef CONTINUO_PRODUCT
}
template <typename Number>
__device__ inline void StartValues(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
#define CONTINUO_PRODUCT(type)                                                            \
  asm volatile(                                                                           \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                        \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" CONTINUO_NAMES_64 \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"                                      \
      : CONTINUO_64(d)                                                                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))
  if constexpr (std::is_same_v<Number, Half>) {
    CONTINUO_PRODUCT("f16");
  } else {
    CONTINUO_PRODUCT("bf16");
  }
#undef CONTINUO_PRODUCT
}

#undef CONTINUO_FOUR
#undef CONTINUO_32
#undef CONTINUO_64
#undef CONTINUO_NAMES_32
#undef CONTINUO_NAMES_64

#else

// These are compiled but never run on other devices.
__device__ inline void BeginProducts() {}
__device__ inline void EndProducts() {}
template <int kGroups, int n>
__device__ inline void AwaitProducts(float (&)[n][4]) {}
__device__ inline void HasBeenRead(uint32_t (&)[4]) {}
template <typename Number>
__device__ inline void StartScores(float (&)[16][4], uint64_t, uint64_t, bool) {}
template <typename Number, int n>
__device__ inline void StartValues(float (&)[n][4], const uint32_t (&)[4], uint64_t) {}

#endif

#else

inline void RequireWgmma() {}
uint32_t SharedAddress(const void* shared);
void ShowToProducts();
void BeginProducts();
void EndProducts();
void AwaitProducts(int groups);
template <int kGroups, int n>
void AwaitProducts(float (&)[n][4]) {
  AwaitProducts(kGroups);
}
inline void HasBeenRead(uint32_t (&)[4]) {}
// n8 is the number of columns of d in eights.
template <typename Number>
void StartScores(float (*d)[4], uint64_t a, uint64_t b, bool adds);
template <typename Number>
void StartValues(float (*d)[4], int n8, const uint32_t (&a)[4], uint64_t b);
template <typename Number, int n>
void StartValues(float (&d)[n][4], const uint32_t (&a)[4], uint64_t b) {
  StartValues<Number>(&d[0], n, a, b);
}

#endif

}  // namespace continuo::kernels::cuda
