// SPDX-License-Identifier: Apache-2.0
// Backend::TakeBusySeconds.
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::kernels::cuda {
namespace {

using testing::CudaShim;
using ::testing::IsEmpty;

class BusyTimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CudaShim::Reset({});
    const auto devices = FindDevices(std::array{0});
    ASSERT_TRUE(devices.ok()) << devices.status();
    auto backend = CudaBackend::Make({.device = devices->front()});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    auto data = backend_->Allocate(kBytes);
    ASSERT_TRUE(data.ok()) << data.status();
    array_ = {*data, DType::kF32, {1, kBytes / 4, 1}};
    ASSERT_TRUE(backend_->Synchronize().ok());
  }
  void TearDown() override {
    backend_.reset();
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }
  // A part of work, to its mark.
  int64_t Enqueue() {
    backend_->CopyIn(array_, host_.data());
    return backend_->Mark();
  }
  int NumCalls(std::string_view name) {
    int n = 0;
    for (const auto& call : CudaShim::Calls()) n += call.function == name;
    return n;
  }

  static constexpr int64_t kBytes = 4096;
  const std::vector<float> host_ = std::vector<float>(kBytes / 4);
  std::unique_ptr<CudaBackend> backend_;
  Tensor array_;
};

TEST_F(BusyTimeTest, NothingIsMeasuredUnlessItIsAskedFor) {
  ASSERT_TRUE(backend_->WaitFor(Enqueue()).ok());
  EXPECT_EQ(NumCalls("cudaEventElapsedTime"), 0);
  EXPECT_EQ(backend_->TakeBusySeconds(), 0);
  EXPECT_EQ(backend_->TakeBusySeconds(), 0);
}

TEST_F(BusyTimeTest, TimeBetweenPartsDoesNotCount) {
  (void)backend_->TakeBusySeconds();
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(backend_->WaitFor(Enqueue()).ok());
    CudaShim::Advance(1000);
  }
  EXPECT_NEAR(backend_->TakeBusySeconds(), 9e-3, 1e-9);
}

// Points of the last four parts are there, and where they began.
TEST_F(BusyTimeTest, FourPartsMayBeUnderWay) {
  (void)backend_->TakeBusySeconds();
  std::vector<int64_t> marks;
  for (int i = 0; i < 4; ++i) marks.push_back(Enqueue());
  backend_->CopyIn(array_, host_.data());  // the next part has begun
  for (const int64_t mark : marks) ASSERT_TRUE(backend_->WaitFor(mark).ok());
  EXPECT_NEAR(backend_->TakeBusySeconds(), 4e-3, 1e-9);
}

TEST_F(BusyTimeTest, WhatLiesBetweenMarksCountsOnce) {
  (void)backend_->TakeBusySeconds();
  // More than the points that can be waited for, two under way at a time.
  int64_t first = Enqueue();
  for (int i = 0; i < 9; ++i) {
    const int64_t second = Enqueue();
    ASSERT_TRUE(backend_->WaitFor(first).ok());
    first = second;
  }
  ASSERT_TRUE(backend_->WaitFor(first).ok());
  EXPECT_EQ(NumCalls("cudaEventElapsedTime"), 10);
  EXPECT_NEAR(backend_->TakeBusySeconds(), 10e-3, 1e-9);
  EXPECT_EQ(backend_->TakeBusySeconds(), 0);
}

TEST_F(BusyTimeTest, WhatIsRepeatedCountsFromItsBeginning) {
  (void)backend_->TakeBusySeconds();
  for (int i = 1; i <= 3; ++i) {  // enqueued, captured, and as a graph
    ASSERT_TRUE(backend_
                    ->Repeat(std::array<int64_t, 1>{1},
                             [&] {
                               backend_->SiluMul(array_, array_, array_);
                               return absl::OkStatus();
                             })
                    .ok());
    ASSERT_TRUE(backend_->WaitFor(backend_->Mark()).ok());
    EXPECT_EQ(NumCalls("cudaEventElapsedTime"), i);
  }
}

TEST_F(BusyTimeTest, MarksWithNothingBetweenThemDoNotCount) {
  (void)backend_->TakeBusySeconds();
  ASSERT_TRUE(backend_->WaitFor(Enqueue()).ok());
  ASSERT_TRUE(backend_->WaitFor(backend_->Mark()).ok());
  EXPECT_EQ(NumCalls("cudaEventElapsedTime"), 1);
}

}  // namespace
}  // namespace continuo::kernels::cuda
