// SPDX-License-Identifier: Apache-2.0
// Device::TakeBusySeconds.
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
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
    auto device = CudaDevice::Make({.device = devices->front()});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto data = device_->Allocate(kBytes);
    ASSERT_TRUE(data.ok()) << data.status();
    array_ = {*data, DType::kF32, {1, kBytes / 4, 1}};
    ASSERT_TRUE(device_->Synchronize().ok());
  }
  void TearDown() override {
    device_.reset();
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    EXPECT_THAT(CudaShim::Violations(), IsEmpty());
  }
  // Enqueues some work and returns the event behind it.
  int64_t Enqueue() {
    device_->CopyIn(array_, host_.data());
    return device_->RecordEvent();
  }
  int NumCalls(std::string_view name) {
    int n = 0;
    for (const auto& call : CudaShim::Calls()) n += call.function == name;
    return n;
  }

  static constexpr int64_t kBytes = 4096;
  const std::vector<float> host_ = std::vector<float>(kBytes / 4);
  std::unique_ptr<CudaDevice> device_;
  Tensor array_;
};

TEST_F(BusyTimeTest, NothingIsMeasuredUnlessItIsAskedFor) {
  ASSERT_TRUE(device_->WaitForEvent(Enqueue()).ok());
  EXPECT_EQ(NumCalls("cudaEventElapsedTime"), 0);
  EXPECT_EQ(device_->TakeBusySeconds(), 0);
  EXPECT_EQ(device_->TakeBusySeconds(), 0);
}

TEST_F(BusyTimeTest, TimeBetweenPartsDoesNotCount) {
  (void)device_->TakeBusySeconds();
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(device_->WaitForEvent(Enqueue()).ok());
    CudaShim::Advance(1000);
  }
  EXPECT_NEAR(device_->TakeBusySeconds(), 9e-3, 1e-9);
}

// The last four events, and the begins of their work, are kept.
TEST_F(BusyTimeTest, FourPartsMayBeUnderWay) {
  (void)device_->TakeBusySeconds();
  std::vector<int64_t> marks;
  for (int i = 0; i < 4; ++i) marks.push_back(Enqueue());
  device_->CopyIn(array_, host_.data());  // the next work has begun
  for (const int64_t mark : marks) ASSERT_TRUE(device_->WaitForEvent(mark).ok());
  EXPECT_NEAR(device_->TakeBusySeconds(), 4e-3, 1e-9);
}

TEST_F(BusyTimeTest, WhatLiesBetweenMarksCountsOnce) {
  (void)device_->TakeBusySeconds();
  // There are more events than can be waited for, two in flight at a time.
  int64_t first = Enqueue();
  for (int i = 0; i < 9; ++i) {
    const int64_t second = Enqueue();
    ASSERT_TRUE(device_->WaitForEvent(first).ok());
    first = second;
  }
  ASSERT_TRUE(device_->WaitForEvent(first).ok());
  EXPECT_EQ(NumCalls("cudaEventElapsedTime"), 10);
  EXPECT_NEAR(device_->TakeBusySeconds(), 10e-3, 1e-9);
  EXPECT_EQ(device_->TakeBusySeconds(), 0);
}

TEST_F(BusyTimeTest, WhatIsRepeatedCountsFromItsBeginning) {
  (void)device_->TakeBusySeconds();
  for (int i = 1; i <= 3; ++i) {  // eager, captured, and replayed
    ASSERT_TRUE(device_
                    ->RunGraph(std::array<int64_t, 1>{1},
                               [&] {
                                 device_->ops().rows.GateMul(kernels::GateFunction::kSilu, array_,
                                                             array_, array_);
                                 return absl::OkStatus();
                               })
                    .ok());
    ASSERT_TRUE(device_->WaitForEvent(device_->RecordEvent()).ok());
    EXPECT_EQ(NumCalls("cudaEventElapsedTime"), i);
  }
}

TEST_F(BusyTimeTest, MarksWithNothingBetweenThemDoNotCount) {
  (void)device_->TakeBusySeconds();
  ASSERT_TRUE(device_->WaitForEvent(Enqueue()).ok());
  ASSERT_TRUE(device_->WaitForEvent(device_->RecordEvent()).ok());
  EXPECT_EQ(NumCalls("cudaEventElapsedTime"), 1);
}

}  // namespace
}  // namespace continuo::kernels::cuda
