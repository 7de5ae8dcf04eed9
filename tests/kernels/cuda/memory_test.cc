// SPDX-License-Identifier: Apache-2.0
// DeviceBuffer, Stream and Event.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/stream.h"
#include "services/base/status_macros.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::kernels::cuda {
namespace {

using ::testing::AllOf;
using testing::CudaShim;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ShimCall;
using testing::ShimOptions;

TEST(DeviceBufferTest, OutOfMemorySaysHowMuchThereIs) {
  CudaShim::Reset({.devices = {{.total_bytes = 4096, .free_bytes = 1000}}});
  const auto first = DeviceBuffer::Make(0, 600);
  ASSERT_TRUE(first.ok());
  const absl::Status status = DeviceBuffer::Make(0, 401).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cuda:0: cudaMalloc of 401 bytes: out of memory"),
                    HasSubstr("; 400 of the device's 4096 bytes are free"),
                    HasSubstr("cudaErrorMemoryAllocation")));
  EXPECT_TRUE(DeviceBuffer::Make(0, 400).ok());
}

TEST(DeviceBufferTest, OwnershipMoves) {
  CudaShim::Reset({});
  {
    DeviceBuffer a = *DeviceBuffer::Make(0, 64);
    void* data = a.data();
    DeviceBuffer b = std::move(a);
    EXPECT_EQ(b.data(), data);
    EXPECT_EQ(b.bytes(), 64u);
    b = *DeviceBuffer::Make(0, 32);
    EXPECT_EQ(b.bytes(), 32u);
    const DeviceBuffer empty = *DeviceBuffer::Make(0, 0);
    EXPECT_EQ(empty.data(), nullptr);
  }
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

// Copies a number to the device and, on a second stream behind an event, back.
absl::StatusOr<int> RoundTrip(int value) {
  ASSIGN_OR_RETURN(const DeviceBuffer buffer, DeviceBuffer::Make(0, sizeof(int)));
  ASSIGN_OR_RETURN(Stream in, Stream::Make(0));
  ASSIGN_OR_RETURN(Stream out, Stream::Make(0));
  ASSIGN_OR_RETURN(Event arrived, Event::Make(0));
  ASSIGN_OR_RETURN(const bool before, arrived.Done());
  EXPECT_TRUE(before);
  int result = 0;
  RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(buffer.data(), &value, sizeof(int), cudaMemcpyHostToDevice, in.get()), 0,
      "cudaMemcpyAsync"));
  RETURN_IF_ERROR(arrived.Record(in.get()));
  RETURN_IF_ERROR(out.WaitFor(arrived));
  RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(&result, buffer.data(), sizeof(int), cudaMemcpyDeviceToHost, out.get()), 0,
      "cudaMemcpyAsync"));
  const absl::Status status = out.Synchronize();
  (void)in.Synchronize();  // value is on this stack
  RETURN_IF_ERROR(status);
  return result;
}

TEST(StreamTest, WorkIsDoneInOrderAndBehindEvents) {
  CudaShim::Reset({});
  for (int i = 1; i <= 50; ++i) EXPECT_EQ(*RoundTrip(i), i);
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

TEST(StreamTest, AnEventIsDoneOnceItsWorkIs) {
  CudaShim::Reset({});
  Stream stream = *Stream::Make(0);
  Event event = *Event::Make(0);
  CudaShim::HangStreams(0);
  ASSERT_TRUE(event.Record(stream.get()).ok());
  EXPECT_FALSE(*event.Done());
  CudaShim::ReleaseHangs();
  ASSERT_TRUE(stream.Synchronize().ok());
  EXPECT_TRUE(*event.Done());
}

TEST(StreamTest, EveryCallThatFailsIsToldAndNothingStays) {
  CudaShim::Reset({});
  ASSERT_EQ(*RoundTrip(1), 1);
  const std::vector<ShimCall> calls = CudaShim::Calls();
  EXPECT_GE(calls.size(), 15u);
  for (const ShimCall& call : calls) {
    SCOPED_TRACE(ToString(call));
    CudaShim::Reset({});
    CudaShim::Fail(call);
    const absl::StatusOr<int> result = RoundTrip(7);
    EXPECT_TRUE(CudaShim::Failed());
    // The test waits for the first stream itself.
    const bool told = call.function != "cudaFree" && !call.function.ends_with("Destroy") &&
                      !(call.function == "cudaStreamSynchronize" && call.count == 2);
    if (told) {
      EXPECT_THAT(std::string(result.status().message()), HasSubstr("cuda:0: " + call.function));
      EXPECT_EQ(result.status().code(), call.function == "cudaMalloc"
                                            ? absl::StatusCode::kResourceExhausted
                                            : absl::StatusCode::kInternal);
    } else {
      EXPECT_TRUE(result.ok());
    }
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  }
}

}  // namespace
}  // namespace continuo::kernels::cuda
