// SPDX-License-Identifier: Apache-2.0
// Barriers for some threads of a block.
#include <array>
#include <cstdint>

#include "kernels/cuda/attention/warp_roles.h"
#include "tests/kernels/cuda/shim/block_scheduler.h"

namespace continuo::kernels::cuda {
namespace {

// A PhaseBarrier has the arrivals that its phase still needs in bits 0 to 15, those of a phase in
// bits 16 to 31, a mark in bits 32 to 62, and the parity of the phase in bit 63. Shared memory that
// was never initialised has no mark.
constexpr uint64_t kMark = uint64_t{0x2ba221e5} << 32, kMarkBits = uint64_t{0x7fffffff} << 32;
constexpr uint64_t kParity = uint64_t{1} << 63;

void CheckBarrier(const PhaseBarrier* barrier) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 != 0) Broken("a barrier that is not aligned");
  if ((*barrier & kMarkBits) != kMark) Broken("a barrier that is not initialised");
}

// A barrier with a name: how many threads have come, of how many.
struct NamedBarrier {
  int come = 0, wanted = 0;
};
std::array<NamedBarrier, 16>& Named() {
  thread_local std::array<NamedBarrier, 16> barriers;
  return barriers;
}

// Returns whether this is the last thread that has to come.
bool Come(NamedBarrier& barrier, int threads) {
  if (barrier.come == 0) barrier.wanted = threads;
  if (barrier.wanted != threads) Broken("threads want different numbers at a barrier");
  if (++barrier.come < threads) return false;
  barrier.come = 0;
  ReleaseThoseThatAwait(&barrier);
  return true;
}

NamedBarrier& WithName(int name) {
  if (name < 1 || name > 15) Broken("no barrier has this name");
  return Named()[static_cast<size_t>(name)];
}

}  // namespace

void InitBarrier(PhaseBarrier* barrier, int arrivals) {
  const auto n = static_cast<uint64_t>(arrivals);
  *barrier = kMark | n << 16 | n;
}

void Arrive(PhaseBarrier* barrier) {
  CheckBarrier(barrier);
  if ((--*barrier & 0xffff) != 0) return;
  *barrier = (*barrier ^ kParity) | (*barrier >> 16 & 0xffff);
  ReleaseThoseThatAwait(barrier);
}

void AwaitPhase(PhaseBarrier* barrier, int parity) {
  CheckBarrier(barrier);
  while ((*barrier & kParity) == (parity != 0 ? kParity : 0)) AwaitRelease(barrier);
}

void SyncThreads(int name, int threads) {
  NamedBarrier& barrier = WithName(name);
  if (!Come(barrier, threads)) AwaitRelease(&barrier);
}
void JoinThreads(int name, int threads) { Come(WithName(name), threads); }

void BeginBarriers() { Named().fill({}); }
void EndBarriers() {
  for (const NamedBarrier& barrier : Named()) {
    if (barrier.come != 0) Broken("a block ends while a barrier waits for threads");
  }
}

}  // namespace continuo::kernels::cuda
