// SPDX-License-Identifier: Apache-2.0
// What NcclCommunicator computes. nccl_failures_test is about what goes wrong.
#include "kernels/cuda/nccl_communicator.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/thread_communicator.h"
#include "tests/kernels/cuda/nccl_harness.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::cuda {
namespace {

using testing::CudaShim;
using ::testing::Each;
using testing::HostTensor;
using ::testing::IsEmpty;
using testing::Matrix;
using testing::Random;

void ExpectClean(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

std::vector<HostTensor> RandomParts(int size, int64_t n, uint64_t seed) {
  Random random(seed);
  std::vector<HostTensor> parts;
  for (int r = 0; r < size; ++r) parts.push_back(HostTensor::Of(DType::kF32, 1, n, random, 0.1f));
  return parts;
}

// The shim's memory is the host's, so a tensor of either will do.
std::vector<absl::Status> SumAll(NcclHarness& harness, std::vector<HostTensor>& x) {
  return harness.Run([&x](NcclCommunicator& c, Stream&) {
    c.AllReduceSum(x[c.rank()]);
    return absl::OkStatus();
  });
}

TEST(NcclCommunicatorTest, TreeOrderGivesTheBitsOfTheCommunicatorOfThreads) {
  for (const int size : {1, 2, 4, 8}) {
    // 4096 bytes of scratch: one and several turns.
    for (const int64_t n : {0, 1, 128, 129, 5000}) {
      std::vector<HostTensor> x = RandomParts(size, n, 7);
      std::vector<HostTensor> expected = RandomParts(size, n, 7);
      const auto ranks = MakeThreadCommunicators(size);
      std::vector<std::thread> threads;
      for (const auto& rank : ranks) {
        threads.emplace_back([&] { rank->AllReduceSum(expected[rank->rank()]); });
      }
      for (std::thread& t : threads) t.join();

      CudaShim::Reset(NcclHarness::Devices(size));
      NcclHarness harness(size, {.tree_order = true});
      ExpectClean(SumAll(harness, x));
      for (int r = 0; r < size; ++r)
        EXPECT_EQ(x[r].matrix(), expected[r].matrix()) << size << ' ' << n;
    }
  }
}

TEST(NcclCommunicatorTest, NcclsOrderGivesTheSum) {
  for (const int size : {1, 2, 4, 8}) {
    std::vector<HostTensor> x = RandomParts(size, 1000, 8);
    Matrix sums(1000);
    for (const HostTensor& part : x) {
      const Matrix m = part.matrix();
      for (int i = 0; i < 1000; ++i) sums[i] += m[i];
    }
    CudaShim::Reset(NcclHarness::Devices(size));
    NcclHarness harness(size);
    ExpectClean(SumAll(harness, x));
    for (const HostTensor& part : x) {
      // 7 additions, each of half an ulp of less than 2.
      for (int i = 0; i < 1000; ++i) EXPECT_NEAR(part.matrix()[i], sums[i], 7 * 0x1p-24) << i;
    }
  }
}

TEST(NcclCommunicatorTest, GathersColumnsOfUnequalParts) {
  const std::vector<int64_t> begin = {0, 3, 3, 4, 9};
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int64_t rows : {0, 1, 5, 300}) {  // 300: several turns
      CudaShim::Reset(NcclHarness::Devices(4));
      NcclHarness harness(4);
      ExpectClean(harness.Run([&](NcclCommunicator& c, Stream& stream) {
        const int64_t cols = begin[c.rank() + 1] - begin[c.rank()];
        HostTensor part(type, rows, cols), out = HostTensor::Poisoned(type, rows, 9);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < cols; ++i) {
            part.Set(row * cols + i, static_cast<float>((row * 9 + begin[c.rank()] + i) % 256));
          }
        }
        c.AllGather(out, part, begin);
        const absl::Status status = stream.Synchronize();
        for (int64_t i = 0; i < rows * 9; ++i) EXPECT_EQ(out.matrix()[i], i % 256);
        return status;
      }));
    }
  }
}

TEST(NcclCommunicatorTest, ManyCollectivesInARowWhereNcclTakesItsTime) {
  CudaShim::Reset(NcclHarness::Devices(4, /*in_progress_polls=*/2));
  NcclHarness harness(4);
  ExpectClean(harness.Run([](NcclCommunicator& c, Stream& stream) {
    HostTensor x(DType::kF32, 1, 3);
    for (int round = 1; round <= 30; ++round) {
      for (int i = 0; i < 3; ++i) x.Set(i, static_cast<float>(round + c.rank()));
      c.AllReduceSum(x);
      RETURN_IF_ERROR(stream.Synchronize());
      EXPECT_EQ(x.matrix(), Matrix(3, 4.0 * round + 6));
    }
    return absl::OkStatus();
  }));
}

// A stream that advances, however long its steps take together, is not hung.
TEST(NcclCommunicatorTest, LongWorkThatAdvancesIsNotHung) {
  CudaShim::Reset(NcclHarness::Devices(2));
  NcclHarness harness(2);
  ExpectClean(harness.Run([&harness](NcclCommunicator& c, Stream& stream) {
    HostTensor x(DType::kF32, 1, 3);
    for (int round = 0; round < 20; ++round) {
      c.AllReduceSum(x);
      RETURN_IF_ERROR(stream.Synchronize());
      if (c.rank() == 0) harness.clock.Advance(absl::Seconds(50));  // of 60
    }
    return absl::OkStatus();
  }));
}

TEST(HangLimitTest, IsThatOfTheRule) {
  EXPECT_EQ(HangLimit(absl::ZeroDuration()), absl::Seconds(2));
  EXPECT_EQ(HangLimit(absl::Milliseconds(200)), absl::Seconds(2));
  EXPECT_EQ(HangLimit(absl::Milliseconds(300)), absl::Seconds(3));
}

}  // namespace
}  // namespace continuo::cuda
