// SPDX-License-Identifier: Apache-2.0
// Tests of kernels without a device rely on the barriers, shared memory and fragments of the shim's
// grids.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/stream.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::kernels::cuda {
namespace {

using testing::CudaShim;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kThreads = 64;

// Passes each thread's number to its neighbour through shared memory.
void Rotate(int* out, bool with_barrier) {
  WaitForPreviousKernel();
  int* const shared = reinterpret_cast<int*>(SharedMemory());
  const int t = static_cast<int>(threadIdx.x);
  shared[t] = t;
  if (with_barrier) SyncBlock();
  out[blockIdx.x * kThreads + t] = shared[(t + 1) % kThreads];
  SyncBlock();
}

TEST(GridRunnerTest, AMissingBarrierShows) {
  CudaShim::Reset({});
  Stream stream = *Stream::Make(0);
  for (const bool with_barrier : {true, false}) {
    std::vector<int> out(4 * kThreads);
    ASSERT_EQ(Launch("Rotate", Rotate, dim3(4), kThreads, kThreads * sizeof(int), stream.kernels(),
                     out.data(), with_barrier),
              cudaSuccess);
    ASSERT_TRUE(stream.Synchronize().ok());
    int wrong = 0;
    for (int i = 0; i < 4 * kThreads; ++i) wrong += out[i] != (i + 1) % kThreads;
    EXPECT_EQ(wrong == 0, with_barrier) << wrong;
  }
}

// Computes d [16, 8] = a [16, 16] · bᵀ [8, 16], all row-major, with b transposed or not in memory.
template <typename Number>
void Product(float* d, const Number* a, const Number* b, bool transposed) {
  WaitForPreviousKernel();
  auto* const shared = reinterpret_cast<Number*>(SharedMemory());  // a, then b
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 48; i += kWarp) {
    StartCopy16(shared + i * 8, i < 32 ? a + i * 8 : b + (i - 32) * 8, true);
  }
  EndCopies();
  AwaitCopies<0>();
  SyncBlock();
  uint32_t x[4], y[4];
  LoadMatrices(x, shared + (lane % 16) * 16 + lane / 16 * 8);
  const Number* const w = shared + 256;
  if (transposed) {  // [16, 8]: rows 0 … 7, then 8 … 15; the upper lanes' addresses are not used
    LoadMatricesTransposed(y, w + lane % 16 * 8);
  } else {  // [8, 16]: columns 0 … 7, then 8 … 15
    LoadMatrices(y, w + lane % 8 * 16 + lane / 8 % 2 * 8);
  }
  float sums[4] = {};
  MultiplyAdd<Number>(sums, x, y[0], y[1]);
  for (int i = 0; i < 4; ++i) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

template <typename Number>
void CheckFragments() {
  Stream stream = *Stream::Make(0);
  alignas(16) Number a[256], b[128];
  for (int i = 0; i < 256; ++i) Store(&a[i], static_cast<float>(i * 37 % 29 - 14));
  for (int i = 0; i < 128; ++i) Store(&b[i], static_cast<float>(i * 53 % 31 - 15));
  for (const bool transposed : {false, true}) {
    float d[128];
    ASSERT_EQ(Launch("Product", Product<Number>, dim3(1), kWarp, 768, stream.kernels(), d, a, b,
                     transposed),
              cudaSuccess);
    ASSERT_TRUE(stream.Synchronize().ok());
    for (int r = 0; r < 16; ++r) {
      for (int c = 0; c < 8; ++c) {
        float sum = 0;
        for (int k = 0; k < 16; ++k) {
          sum += Widen(a[r * 16 + k]) * Widen(transposed ? b[k * 8 + c] : b[c * 16 + k]);
        }
        EXPECT_EQ(d[r * 8 + c], sum) << r << ' ' << c;
      }
    }
  }
}

TEST(GridRunnerTest, FragmentsMultiply) {
  CudaShim::Reset({});
  CheckFragments<uint16_t>();
  CheckFragments<Half>();
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

void Leave() {
  WaitForPreviousKernel();
  if (threadIdx.x == 3) return;
  SyncBlock();
}
void WriteBehind() {
  WaitForPreviousKernel();
  SharedMemory()[64] = 0;
}
void Forget() {
  WaitForPreviousKernel();
  StartCopy16(SharedMemory(), nullptr, false);
}
void NotWait() {
  if (threadIdx.x != 3) WaitForPreviousKernel();
}

TEST(GridRunnerDeathTest, WhatADeviceWouldNotSurviveEndsTheTest) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [](void (*kernel)()) {
    CudaShim::Reset({});
    Stream stream = *Stream::Make(0);
    (void)Launch("kernel", kernel, dim3(1), kWarp, 64, stream.kernels());
    (void)stream.Synchronize();
  };
  EXPECT_DEATH(run(Leave), "wait for others that do not come");
  EXPECT_DEATH(run(WriteBehind), "behind shared memory");
  EXPECT_DEATH(run(Forget), "ends before its copies");
  EXPECT_DEATH(run(NotWait), "ends without WaitForPreviousKernel");
}

TEST(GridRunnerTest, AGridThatNoDeviceTakesIsRefused) {
  CudaShim::Reset({});
  Stream stream = *Stream::Make(0);
  EXPECT_NE(Launch("kernel", Leave, dim3(0), kWarp, 0, stream.kernels()), cudaSuccess);
  EXPECT_NE(Launch("kernel", Leave, dim3(1), 2048, 0, stream.kernels()), cudaSuccess);
  EXPECT_NE(Launch("kernel", Leave, dim3(1), kWarp, 228 << 10, stream.kernels()), cudaSuccess);
  EXPECT_EQ(CudaShim::Violations().size(), 3u);
  EXPECT_THAT(CudaShim::Violations()[0], HasSubstr("no device takes"));
}

}  // namespace
}  // namespace continuo::kernels::cuda
