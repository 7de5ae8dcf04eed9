// SPDX-License-Identifier: Apache-2.0
// The shim's barriers for some threads of a block.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/attention/warp_roles.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/stream.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::kernels::cuda {
namespace {

using testing::CudaShim;
using ::testing::IsEmpty;

constexpr int kRounds = 5;

// Warp 0 writes kRounds numbers, one at a time, to the only stage; the others add them up.
void PassNumbers(int* out, bool awaits_full, bool awaits_empty) {
  WaitForPreviousKernel();
  auto* const full = reinterpret_cast<PhaseBarrier*>(SharedMemory());
  PhaseBarrier* const empty = full + 1;
  auto* const number = reinterpret_cast<int*>(full + 2);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    InitBarrier(full, 1);
    InitBarrier(empty, 2 * kWarp);
  }
  SyncBlock();
  int sum = 0;
  for (int i = 0; i < kRounds; ++i) {
    if (thread / kWarp == 0) {
      if (awaits_empty) AwaitPhase(empty, i % 2 ^ 1);
      if (thread == 0) {
        *number = 1 << i;
        Arrive(full);
      }
    } else {
      if (awaits_full) AwaitPhase(full, i % 2);
      sum += *number;
      Arrive(empty);
    }
  }
  out[thread] = sum;
}

std::vector<int> PassedNumbers(bool awaits_full, bool awaits_empty) {
  CudaShim::Reset({});
  Stream stream = *Stream::Make(0);
  std::vector<int> out(3 * kWarp);
  EXPECT_EQ(Launch("PassNumbers", PassNumbers, dim3(1), 3 * kWarp, 64, stream.kernels(), out.data(),
                   awaits_full, awaits_empty),
            cudaSuccess);
  EXPECT_TRUE(stream.Synchronize().ok());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  return {out.begin() + kWarp, out.end()};
}

TEST(PhaseBarriersTest, NumbersPassFromOneWarpToOthers) {
  EXPECT_EQ(PassedNumbers(true, true), std::vector<int>(2 * kWarp, (1 << kRounds) - 1));
}

// Two warps add to a number in turn.
void TakeTurns(int* out) {
  WaitForPreviousKernel();
  constexpr int kBoth = 2 * kWarp;
  auto* const number = reinterpret_cast<int*>(SharedMemory());
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x == 0) *number = 1;
  if (warp == 1) JoinThreads<kBoth>(1);
  for (int i = 0; i < kRounds; ++i) {
    SyncThreads<kBoth>(1 + warp);
    if (threadIdx.x % kWarp == 0) *number = *number * 3 + warp;
    if (warp == 0 || i < kRounds - 1) JoinThreads<kBoth>(1 + (warp ^ 1));
  }
  if (threadIdx.x == kWarp) *out = *number;
}

TEST(PhaseBarriersTest, WarpsTakeTurns) {
  CudaShim::Reset({});
  Stream stream = *Stream::Make(0);
  int out = 0, expected = 1;
  for (int i = 0; i < 2 * kRounds; ++i) expected = expected * 3 + i % 2;
  ASSERT_EQ(Launch("TakeTurns", TakeTurns, dim3(1), 2 * kWarp, 64, stream.kernels(), &out),
            cudaSuccess);
  ASSERT_TRUE(stream.Synchronize().ok());
  EXPECT_EQ(out, expected);
}

void AwaitNobody() {
  WaitForPreviousKernel();
  auto* const barrier = reinterpret_cast<PhaseBarrier*>(SharedMemory());
  if (threadIdx.x == 0) InitBarrier(barrier, kWarp + 1);
  SyncBlock();
  Arrive(barrier);
  AwaitPhase(barrier, 0);
}
void AwaitGarbage() {
  WaitForPreviousKernel();
  AwaitPhase(reinterpret_cast<PhaseBarrier*>(SharedMemory()), 0);
}
void JoinAlone() {
  WaitForPreviousKernel();
  JoinThreads<2 * kWarp>(1);
}
void WantDifferentNumbers() {
  WaitForPreviousKernel();
  if (threadIdx.x == 0) {
    JoinThreads<2 * kWarp>(1);
  } else {
    JoinThreads<kWarp>(1);
  }
}

TEST(PhaseBarriersDeathTest, WhatADeviceWouldNotSurviveEndsTheTest) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [](void (*kernel)()) {
    CudaShim::Reset({});
    Stream stream = *Stream::Make(0);
    (void)Launch("kernel", kernel, dim3(1), kWarp, 64, stream.kernels());
    (void)stream.Synchronize();
  };
  // Phases end before anybody awaits them.
  EXPECT_DEATH(PassedNumbers(true, false), "wait for others that do not come");
  EXPECT_DEATH(PassedNumbers(false, true), "wait for others that do not come");
  EXPECT_DEATH(run(AwaitNobody), "wait for others that do not come");
  EXPECT_DEATH(run(AwaitGarbage), "not initialised");
  EXPECT_DEATH(run(JoinAlone), "while a barrier waits for threads");
  EXPECT_DEATH(run(WantDifferentNumbers), "different numbers");
}

}  // namespace
}  // namespace continuo::kernels::cuda
