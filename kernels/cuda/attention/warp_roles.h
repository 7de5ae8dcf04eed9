// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/launch.h"

// Barriers and register hand-offs for kernels whose warps do different work. For compute capability
// 9.0, like wgmma.h; code for other devices has empty functions in their place. Only .cu files
// include this header.
namespace continuo::kernels::cuda {

#ifdef __CUDACC__

// A PhaseBarrier lies in shared memory (PTX ISA, mbarrier). Its phases are numbered from 0, and one
// ends when `arrivals` threads have arrived. One thread initialises it before a SyncBlock.
using PhaseBarrier = uint64_t;

__device__ inline void InitBarrier([[maybe_unused]] PhaseBarrier* barrier,
                                   [[maybe_unused]] int arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
               "r"(arrivals)
               : "memory");
#endif
}
// What the thread did before is visible to those that await the phase. Any thread may call it
// alone.
__device__ inline void Arrive([[maybe_unused]] PhaseBarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
               : "memory");
#endif
}
// Returns when a phase with this parity, number % 2, has ended. It must be the current one or the
// one before; at first phase -1 counts as ended. Any thread may call it alone.
__device__ inline void AwaitPhase([[maybe_unused]] PhaseBarrier* barrier,
                                  [[maybe_unused]] int parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred p;\nAWAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra ENDED;\nbra AWAIT;\nENDED:\n}" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
      "r"(parity)
      : "memory");
#endif
}

// Barriers with names from 1 to 15 (PTX ISA, bar). SyncThreads returns when kThreads threads have
// called it or JoinThreads with that name; JoinThreads returns at once.
template <int kThreads>
__device__ inline void SyncThreads(int name) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ inline void JoinThreads(int name) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "n"(kThreads) : "memory");
}

// Changes the number of registers that each thread of a warpgroup may use (PTX ISA, setmaxnreg).
// GiveRegisters lowers it; TakeRegisters raises it, and waits until others have given as many.
template <int kRegisters>
__device__ inline void GiveRegisters() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ inline void TakeRegisters() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

#else

using PhaseBarrier = uint64_t;
void InitBarrier(PhaseBarrier* barrier, int arrivals);
void Arrive(PhaseBarrier* barrier);
void AwaitPhase(PhaseBarrier* barrier, int parity);
void SyncThreads(int name, int threads);
void JoinThreads(int name, int threads);
template <int kThreads>
void SyncThreads(int name) {
  SyncThreads(name, kThreads);
}
template <int kThreads>
void JoinThreads(int name) {
  JoinThreads(name, kThreads);
}
template <int kRegisters>
void GiveRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

#endif

}  // namespace continuo::kernels::cuda
