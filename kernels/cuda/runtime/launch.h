// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/kernel_stream.h"

// The part of CUDA that .cu files need beyond CUDA's own headers, in two versions. nvcc compiles
// the files for devices. The host's compiler compiles the same files for tests, where a grid runs
// thread by thread (tests/kernels/cuda/shim/grid_runner.cc) and plain code defines what the threads
// of a block or a warp do together. Shared memory, barriers and fragments in tests are therefore
// those of the device.
namespace continuo::kernels::cuda {

inline constexpr int kWarp = 32;

// Unless a comment says otherwise, all 32 threads of a warp call a function below together.
#ifdef __CUDACC__

// Attribute of a kernel: its blocks have this many threads.
#define CONTINUO_BLOCK_OF(threads) __launch_bounds__(threads)
// Attribute of a kernel: in addition, this many blocks fit a multiprocessor's registers.
#define CONTINUO_BLOCKS_OF(threads, blocks) __launch_bounds__(threads, blocks)
// Attribute of a kernel's const parameter: a structure with arrays, read where the launch put it.
#define CONTINUO_READ_IN_PLACE __grid_constant__
// Unrolls the loop that follows, whose array has to stay in registers.
#define CONTINUO_UNROLL _Pragma("unroll")
// Unrolls n iterations of the loop that follows, so that n loads are in flight.
#define CONTINUO_PRAGMA(text) _Pragma(#text)
#define CONTINUO_UNROLL_BY(n) CONTINUO_PRAGMA(unroll n)

extern __shared__ __align__(16) unsigned char continuo_shared_memory[];
// Returns the block's shared memory, as many bytes as Launch was given, 16-byte aligned.
__device__ inline unsigned char* SharedMemory() { return continuo_shared_memory; }

// Every kernel calls this before it touches device memory. With programmatic dependent launch the
// grid may have started while the previous one was ending. Returns when that one has completed and
// its writes are visible, and lets the next grid start (CUDA C++ Programming Guide, programmatic
// dependent launch; PTX ISA, griddepcontrol). Since every grid waits for the one before, it waits
// for all before.
__device__ inline void WaitForPreviousKernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Prefetches the cache line around an address into the L2 cache. No kernel may write that memory.
// This is the only access allowed before WaitForPreviousKernel. It does nothing on devices without
// programmatic dependent launch.
__device__ inline void Prefetch([[maybe_unused]] const void* from) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
#endif
}

// Returns `value` in a way that the compiler takes for another value: what follows from it is
// computed there instead of being kept in registers from an earlier use. Any thread may call it
// alone.
__device__ inline int ComputedAnew(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

__device__ inline void SyncBlock() { __syncthreads(); }
__device__ inline void SyncWarp() { __syncwarp(); }
// Returns the value of the lane whose number differs in the bits of `mask`.
__device__ inline float ShuffleXor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

// Returns 2^x to within 2^-22 of it, and 0 for subnormal results (PTX ISA, ex2.approx.ftz). Any
// thread may call it alone.
__device__ inline float Exp2(float x) {
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns 1 / x to within an ulp, and 0 for infinities and subnormal results (PTX ISA,
// rcp.approx.ftz). Any thread may call it alone.
__device__ inline float Reciprocal(float x) {
  float y = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Rounds two numbers to Number and packs them, the first in the low half (PTX ISA, cvt). Any thread
// may call it alone.
template <typename Number>
__device__ inline uint32_t RoundPair(float low, float high) {
  uint32_t pair = 0;
  if constexpr (std::is_same_v<Number, Half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}
// Returns whether `is_so` holds for any lane.
__device__ inline bool AnyLane(bool is_so) { return __any_sync(0xffffffffu, is_so) != 0; }

// Adds to shared or device memory and returns the old value. Any thread may call it alone.
__device__ inline uint32_t AtomicAdd(uint32_t* to, uint32_t value) { return atomicAdd(to, value); }
__device__ inline uint64_t AtomicAdd(uint64_t* to, uint64_t value) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  return atomicAdd(reinterpret_cast<unsigned long long*>(to), value);
}

// Loads four 8 × 8 matrices of 16-bit elements from shared memory. Lane l gives the address of row
// l % 8 of matrix l / 8 (16 bytes, aligned) and receives in out[i] elements 2 (l % 4) and + 1 of
// row l / 4 of matrix i (PTX ISA, ldmatrix).
__device__ inline void LoadMatrices(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
// Does the same and transposes the matrices: out[i] is elements (2 (l % 4), l / 4) and (2 (l % 4) +
// 1, l / 4), row and column.
__device__ inline void LoadMatricesTransposed(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// Transposes an 8 × 8 matrix of 16-bit elements in registers. Lane l gives elements 2 (l % 4) and +
// 1 of row l / 4, the first in the low half, and receives the same of the transposed matrix (PTX
// ISA, movmatrix).
__device__ inline uint32_t TransposeMatrix(uint32_t pair) {
  uint32_t transposed = 0;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

// Computes d += a · b on tensor cores: a [16, 16] and b [16, 8] of Number, which is uint16_t (bf16)
// or Half, and d [16, 8] f32. Lane l has these elements, where r = l / 4, c = 2 (l % 4), and a pair
// is two neighbouring elements with the first in the low half:
//   a: (r, c), (r + 8, c), (r, c + 8), (r + 8, c + 8), each with column + 1
//   b: (c, r), (c + 8, r), each with row + 1
//   d: (r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1)
// (PTX ISA, mma.m16n8k16).
template <typename Number>
__device__ inline void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
  if constexpr (std::is_same_v<Number, Half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Returns a · b + c of two Numbers that are packed with the first in the low half. Each result is
// rounded once, and subnormals are kept (PTX ISA, fma.rn.bf16x2 and fma.rn.f16x2). Any thread may
// call it alone.
template <typename Number>
__device__ inline uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d = 0;
  if constexpr (std::is_same_v<Number, Half>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}
// Returns the bytes of a word that the selector's hexadecimal digits name, the last digit's byte
// lowest. Digit 4 is a zero byte.
template <uint32_t kSelector>
__device__ inline uint32_t PickBytes(uint32_t word) {
  return __byte_perm(word, 0, kSelector);
}
// Does the same with two words: digits from 4 on name the bytes of the second one.
template <uint32_t kSelector>
__device__ inline uint32_t PickBytes(uint32_t word, uint32_t second) {
  return __byte_perm(word, second, kSelector);
}
// Makes this thread's writes to device memory visible to threads that later see, behind a fence of
// their own, what it writes after this.
__device__ inline void FenceMemory() { __threadfence(); }

// Starts an asynchronous copy of 16 bytes to shared memory; both sides are aligned. Where it is not
// `wanted`, zeros are written and `from` is not read. No thread may touch the bytes between the
// barrier before and AwaitCopies, since the compiler may move loads and stores across.
__device__ inline void StartCopy16(void* shared, const void* from, bool wanted) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
               "l"(__cvta_generic_to_global(from)), "r"(bytes));
}
// Does the same with 4 bytes.
__device__ inline void StartCopy4(void* shared, const void* from, bool wanted) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = wanted ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address),
               "l"(__cvta_generic_to_global(from)), "r"(bytes));
}
// Ends a group of this thread's asynchronous copies.
__device__ inline void EndCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Returns when all but this thread's last kGroups groups have arrived. Other threads see them after
// SyncBlock.
template <int kGroups>
__device__ inline void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

#else

#define CONTINUO_BLOCK_OF(threads)
#define CONTINUO_BLOCKS_OF(threads, blocks)
#define CONTINUO_READ_IN_PLACE
#define CONTINUO_UNROLL
#define CONTINUO_UNROLL_BY(n)
extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;
unsigned char* SharedMemory();
void WaitForPreviousKernel();
void Prefetch(const void* from);
inline int ComputedAnew(int value) { return value; }
void SyncBlock();
void SyncWarp();
float ShuffleXor(float value, int mask);
// No atomic is needed here: the fibers of a grid run on one thread.
inline uint32_t AtomicAdd(uint32_t* to, uint32_t value) { return (*to += value) - value; }
inline uint64_t AtomicAdd(uint64_t* to, uint64_t value) { return (*to += value) - value; }
void LoadMatrices(uint32_t (&out)[4], const void* row);
void LoadMatricesTransposed(uint32_t (&out)[4], const void* row);
template <typename Number>
void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <typename Number>
uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c);
template <uint32_t kSelector>
uint32_t PickBytes(uint32_t word) {
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t digit = kSelector >> 4 * i & 15;
    if (digit < 4) result |= (word >> 8 * digit & 255) << 8 * i;
  }
  return result;
}
template <uint32_t kSelector>
uint32_t PickBytes(uint32_t word, uint32_t second) {
  const uint64_t bytes = word | uint64_t{second} << 32;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t digit = kSelector >> 4 * i & 15;
    result |= static_cast<uint32_t>(bytes >> 8 * digit & 255) << 8 * i;
  }
  return result;
}
uint32_t TransposeMatrix(uint32_t pair);
inline void FenceMemory() {}
void StartCopy16(void* shared, const void* from, bool wanted);
void StartCopy4(void* shared, const void* from, bool wanted);
inline float Exp2(float x) { return std::exp2f(x); }
inline float Reciprocal(float x) { return 1 / x; }
template <typename Number>
uint32_t RoundPair(float low, float high) {
  Number pair[2];
  Store(&pair[0], low);
  Store(&pair[1], high);
  uint32_t bits = 0;
  std::memcpy(&bits, pair, sizeof(bits));
  return bits;
}
bool AnyLane(bool is_so);
void EndCopies();
void AwaitCopies(int groups);
template <int kGroups>
void AwaitCopies() {
  AwaitCopies(kGroups);
}
cudaError_t RunGrid(const char* name, dim3 grid, int threads, size_t shared_bytes,
                    cudaStream_t stream, std::function<void()> thread);

#endif

// Widens two e4m3 numbers to f16, which is exact. They are in bits 0 to 15, and the first result is
// in the low half (PTX ISA, cvt.rn.f16x2.e4m3x2). NaN becomes some number or NaN; nothing writes it
// to a cache. Any thread may call it alone.
__device__ inline uint32_t WidenE4M3(uint32_t two) {
#if __CUDA_ARCH__ >= 890
  uint32_t pair = 0;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(two)));
  return pair;
#else
  // The bits of exponent and fraction are those of an f16 number that is less by 2^-8, subnormal
  // ones included.
  const uint32_t apart = PickBytes<0x1404>(two);
  return MultiplyAddPairs<Half>((apart >> 1 & 0x3f803f80) | (apart & 0x80008000), 0x5c005c00,
                                0x80008000);
#endif
}

// Launches kernel(args…) with `threads` threads in each block of the grid and `shared_bytes` of
// SharedMemory(). Tests see `name`. Returns the launch's error.
template <typename... Parameters, typename... Args>
cudaError_t Launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads,
                   size_t shared_bytes, KernelStream stream, Args... args) {
  constexpr size_t kUnasked = 48 << 10;  // shared memory above this needs an attribute
  if (shared_bytes > kUnasked) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
#ifdef __CUDACC__
  (void)name;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = (shared_bytes + 15) / 16 * 16;  // loads may be of 16 bytes
  config.stream = stream.stream;
  config.attrs = &attribute;
  config.numAttrs = stream.pdl ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...);
#else
  return RunGrid(name, grid, threads, shared_bytes, stream.stream,
                 [=] { kernel(static_cast<Parameters>(args)...); });
#endif
}

// Returns the number of blocks of `threads` threads for n elements. A thread takes one or several
// of them in a grid-stride loop.
inline unsigned BlocksFor(int64_t n, int threads) {
  constexpr int64_t kMaxBlocks = 16384;  // enough to fill any device several times
  const int64_t blocks = (n + threads - 1) / threads;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

}  // namespace continuo::kernels::cuda
