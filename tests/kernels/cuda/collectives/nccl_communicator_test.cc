// SPDX-License-Identifier: Apache-2.0
// Results of NcclCommunicator. nccl_failures_test has its failures.
#include "kernels/cuda/collectives/nccl_communicator.h"

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/runtime/graph_cache.h"
#include "tests/kernels/cuda/collectives/nccl_harness.h"

namespace continuo::kernels::cuda {
namespace {

using testing::CudaShim;
using ::testing::IsEmpty;

void ExpectClean(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

// Returns numbers whose sums are rounded.
std::vector<Array<float>> Parts(int size, int64_t n) {
  std::mt19937 random(7);
  std::vector<Array<float>> parts;
  for (int r = 0; r < size; ++r) {
    parts.emplace_back(1, n);
    for (float& value : parts.back().values) {
      value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
    }
  }
  return parts;
}

std::vector<absl::Status> SumAll(NcclHarness& harness, std::vector<Array<float>>& x) {
  return harness.Run([&x](NcclCommunicator& c, Stream&) {
    c.AllReduceSum(x[c.rank()]);
    return absl::OkStatus();
  });
}

TEST(NcclCommunicatorTest, TreeOrderAddsNeighboursFirst) {
  for (const int size : {1, 2, 4, 8}) {
    // 4096 bytes of scratch hold one and several rounds.
    for (const int64_t n : {0, 1, 128, 129, 5000}) {
      std::vector<Array<float>> x = Parts(size, n), sums = x;
      for (int num = size / 2; num > 0; num /= 2) {
        for (int r = 0; r < num; ++r) {
          for (int64_t i = 0; i < n; ++i) {
            sums[r].values[i] = sums[2 * r].values[i] + sums[2 * r + 1].values[i];
          }
        }
      }
      CudaShim::Reset(NcclHarness::Devices(size));
      NcclHarness harness(size, {.tree_order = true});
      ExpectClean(SumAll(harness, x));
      for (int r = 0; r < size; ++r) EXPECT_EQ(x[r].values, sums[0].values) << size << ' ' << n;
    }
  }
}

TEST(NcclCommunicatorTest, NcclsOrderGivesTheSum) {
  for (const int size : {1, 2, 4, 8}) {
    std::vector<Array<float>> x = Parts(size, 1000);
    std::vector<double> sums(1000);
    for (const Array<float>& part : x) {
      for (int i = 0; i < 1000; ++i) sums[i] += part.values[i];
    }
    CudaShim::Reset(NcclHarness::Devices(size));
    NcclHarness harness(size);
    ExpectClean(SumAll(harness, x));
    for (const Array<float>& part : x) {
      // Up to 7 additions, each rounded by half an ulp of less than 8.
      for (int i = 0; i < 1000; ++i) EXPECT_NEAR(part.values[i], sums[i], 7 * 0x1p-22) << i;
    }
  }
}

template <typename T>
void GatherUnequalParts() {
  const std::vector<int64_t> begin = {0, 3, 3, 4, 9};
  for (const int64_t rows : {0, 1, 5, 300}) {  // 300 rows take several rounds
    CudaShim::Reset(NcclHarness::Devices(4));
    NcclHarness harness(4);
    ExpectClean(harness.Run([&](NcclCommunicator& c, Stream& stream) {
      const int64_t cols = begin[c.rank() + 1] - begin[c.rank()];
      Array<T> part(rows, cols), out(rows, 9), expected(rows, 9);
      for (int64_t i = 0; i < rows * cols; ++i) {
        part.values[i] = static_cast<T>(1 + i / cols * 9 + begin[c.rank()] + i % cols);
      }
      for (int64_t i = 0; i < rows * 9; ++i) expected.values[i] = static_cast<T>(1 + i);
      c.AllGather(out, part, begin);
      const absl::Status status = stream.Synchronize();
      EXPECT_EQ(out.values, expected.values);
      return status;
    }));
  }
}

TEST(NcclCommunicatorTest, GathersColumnsOfUnequalParts) {
  GatherUnequalParts<float>();
  GatherUnequalParts<uint16_t>();
}

TEST(NcclCommunicatorTest, ManyCollectivesInARowWhereNcclTakesItsTime) {
  CudaShim::Reset(NcclHarness::Devices(4, /*in_progress_polls=*/2));
  NcclHarness harness(4);
  ExpectClean(harness.Run([](NcclCommunicator& c, Stream& stream) {
    Array<float> x(1, 3);
    for (int round = 1; round <= 30; ++round) {
      x.values.assign(3, static_cast<float>(round + c.rank()));
      c.AllReduceSum(x);
      RETURN_IF_ERROR(stream.Synchronize());
      EXPECT_EQ(x.values, std::vector<float>(3, 4.0f * round + 6));
    }
    return absl::OkStatus();
  }));
}

// Work between two collectives may wait for devices: no rank waits for another rank's meanwhile,
// and none goes on before all have enqueued theirs.
TEST(NcclCommunicatorTest, NoCollectiveWaitsForARankThatDoesSomethingElse) {
  constexpr int kRanks = 4;
  CudaShim::Reset(NcclHarness::Devices(kRanks, /*in_progress_polls=*/50));
  NcclHarness harness(kRanks);
  std::atomic<int> num_others{0};
  ExpectClean(harness.Run([&](NcclCommunicator& c, Stream& stream) {
    Array<float> x(1, 3);
    for (int round = 1; round <= 20; ++round) {
      // The first collective was Connect's.
      for (int poll = 0; poll < 20 * (c.rank() + round) % 100; ++poll) {
        for (int device = 0; device < kRanks; ++device) {
          num_others += CudaShim::NumCollectives(device) != round ? 1 : 0;
        }
        std::this_thread::yield();
      }
      c.AllReduceSum(x);
    }
    return stream.Synchronize();  // x is on this stack
  }));
  EXPECT_EQ(num_others, 0);
}

TEST(NcclCommunicatorTest, MemoryIsGivenAndTakenBetweenCollectives) {
  CudaShim::Reset(NcclHarness::Devices(2));
  NcclHarness harness(2);
  ExpectClean(harness.Run([&](NcclCommunicator& c, Stream& stream) {
    Array<float> x(1, 3);
    for (int round = 0; round < 20; ++round) {
      c.AllReduceSum(x);
      if (c.rank() == round % 2) RETURN_IF_ERROR(DeviceBuffer::Make(stream.device(), 64).status());
    }
    return stream.Synchronize();  // x is on this stack
  }));
}

// The watching thread polls the stream meanwhile and leaves it alone.
TEST(NcclCommunicatorTest, CollectivesOfAGraphAreDoneWheneverItIs) {
  for (const bool tree_order : {false, true}) {
    CudaShim::Reset(NcclHarness::Devices(2));
    NcclHarness harness(2, {.tree_order = tree_order});
    ExpectClean(harness.Run([](NcclCommunicator& c, Stream& stream) {
      Array<float> x(1, 2000), part(3, 1), whole(3, 2);
      const std::vector<int64_t> key = {7}, begin = {0, 1, 2};
      GraphCache graphs(stream.device());
      const auto work = [&] {
        c.AllReduceSum(x);
        AwaitPolls(c, stream);
        c.AllGather(whole, part, begin);
        return c.status();
      };
      for (int time = 1; time <= 5; ++time) {
        x.values.assign(x.values.size(), static_cast<float>(time + c.rank()));
        part.values.assign(3, static_cast<float>(10 * time + c.rank()));
        RETURN_IF_ERROR(graphs.Run(key, work, stream));
        RETURN_IF_ERROR(stream.Synchronize());
        EXPECT_EQ(x.values, std::vector<float>(2000, 2.0f * time + 1));
        for (int i = 0; i < 6; ++i) EXPECT_EQ(whole.values[i], 10 * time + i % 2);
      }
      EXPECT_EQ(CudaShim::NumCalls(stream.device(), "cudaGraphLaunch"), 3);
      return absl::OkStatus();
    }));
  }
}

// A stream that advances is not hung, however long its steps take together.
TEST(NcclCommunicatorTest, LongWorkThatAdvancesIsNotHung) {
  CudaShim::Reset(NcclHarness::Devices(2));
  NcclHarness harness(2);
  ExpectClean(harness.Run([&harness](NcclCommunicator& c, Stream& stream) {
    Array<float> x(1, 3);
    for (int round = 0; round < 20; ++round) {
      c.AllReduceSum(x);
      RETURN_IF_ERROR(stream.Synchronize());
      if (c.rank() == 0) harness.clock.Advance(absl::Seconds(50));  // of a limit of 60 s
    }
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace continuo::kernels::cuda
