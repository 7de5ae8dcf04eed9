// SPDX-License-Identifier: Apache-2.0
// NcclCommunicator over the real NCCL, with as many ranks (1, 2, 4 or 8) as there are devices, and
// the kernel of its tree sum.
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/collectives/nccl_communicator.h"
#include "kernels/cuda/collectives/tree_sum.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_info.h"
#include "kernels/cuda/runtime/graph_cache.h"
#include "kernels/cuda/runtime/stream.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// Prepares the process as a worker of several devices does.
class Prepared : public ::testing::Environment {
  void SetUp() override { PrepareLibraries(std::array{0, 1}); }
};
[[maybe_unused]] const auto* const kPrepared = ::testing::AddGlobalTestEnvironment(new Prepared);

int NumDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Runs `work` on a copy of `host` in device memory and copies it back.
template <typename Work>
absl::Status OnDevice(std::vector<float>& host, Stream& stream, Work work) {
  const size_t bytes = host.size() * sizeof(float);
  ASSIGN_OR_RETURN(const DeviceBuffer buffer, DeviceBuffer::Make(stream.device(), bytes));
  RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(buffer.data(), host.data(), bytes, cudaMemcpyHostToDevice, stream.get()),
      stream.device(), "cudaMemcpyAsync"));
  work(static_cast<float*>(buffer.data()));
  RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(host.data(), buffer.data(), bytes, cudaMemcpyDeviceToHost, stream.get()),
      stream.device(), "cudaMemcpyAsync"));
  return stream.Synchronize();
}

float ValueOf(int rank, int64_t i) {
  return static_cast<float>((rank * 7919 + i * 104729) % 65521 - 32760) * 0x1.003p-10f;
}

TEST(TreeSumTest, AddsAsTheHostDoes) {
  if (NumDevices() == 0) GTEST_SKIP() << "skipped: no device";
  Stream stream = *Stream::Make(0, /*pdl=*/true);
  for (const int parts : {1, 2, 4, 8}) {
    for (const int64_t n : {1, 255, 100'003, 3'000'000}) {
      std::vector<float> x(static_cast<size_t>(parts * n)), expected(static_cast<size_t>(n));
      for (size_t i = 0; i < x.size(); ++i) x[i] = ValueOf(0, static_cast<int64_t>(i));
      for (int64_t i = 0; i < n; ++i) expected[i] = AddTree(x.data() + i, n, parts);
      ASSERT_TRUE(OnDevice(x, stream, [&](float* data) {
                    EXPECT_EQ(AddTrees(data, data, parts, n, stream.kernels()), cudaSuccess);
                  }).ok());
      EXPECT_EQ(std::memcmp(x.data(), expected.data(), expected.size() * sizeof(float)), 0)
          << parts << ' ' << n;
    }
  }
}

// Returns the machine's number of devices, cut to a power of two up to 8.
int NumRanks(int devices) { return devices >= 8 ? 8 : devices >= 4 ? 4 : devices >= 2 ? 2 : 1; }

// Returns the status of each rank, a thread with a stream.
template <typename Body>
std::vector<absl::Status> OnRanks(int size, NcclOptions options, Body body) {
  const SystemClock clock;
  options.clock = &clock;
  options.on_stuck = [](const absl::Status& status) { FAIL() << status; };
  const auto group = NcclGroup::Make(size, std::move(options));
  if (!group.ok()) return {group.status()};
  std::vector<absl::Status> statuses(static_cast<size_t>(size));
  const auto run = [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(Stream stream, Stream::Make(rank, /*pdl=*/true));
    ASSIGN_OR_RETURN(const std::unique_ptr<NcclCommunicator> c,
                     NcclCommunicator::Make(*group, rank, rank, stream));
    RETURN_IF_ERROR(body(*c, stream));
    return c->status();
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] { statuses[static_cast<size_t>(r)] = run(r); });
  }
  for (std::thread& t : threads) t.join();
  return statuses;
}

TEST(NcclTest, SumsInTreeOrderGathersAndEnds) {
  if (NumDevices() == 0) GTEST_SKIP() << "skipped: no device";
  const int size = NumRanks(NumDevices());
  RecordProperty("ranks", size);
  constexpr int64_t kN = 20'000, kRows = 30;
  std::vector<int64_t> begin = {0};
  for (int r = 0; r < size; ++r) begin.push_back(begin.back() + 1 + r % 3 * 50);

  std::vector<std::vector<float>> sums(size), gathered(size);
  const auto run = [&](NcclCommunicator& c, Stream& stream) -> absl::Status {
    const int rank = c.rank();
    for (int64_t i = 0; i < kN; ++i) sums[rank].push_back(ValueOf(rank, i));
    RETURN_IF_ERROR(OnDevice(sums[rank], stream, [&](float* data) {
      c.AllReduceSum({.data = data, .dtype = DType::kF32, .shape = {1, kN, 1}});
    }));
    // The rank's part is followed by the whole.
    const int64_t cols = begin[rank + 1] - begin[rank], part = kRows * cols;
    gathered[rank].resize(static_cast<size_t>(part + kRows * begin.back()));
    for (int64_t i = 0; i < part; ++i) {
      gathered[rank][i] = ValueOf(0, i / cols * begin.back() + begin[rank] + i % cols);
    }
    RETURN_IF_ERROR(OnDevice(gathered[rank], stream, [&](float* data) {
      c.AllGather({.data = data + part, .dtype = DType::kF32, .shape = {kRows, begin.back(), 1}},
                  {.data = data, .dtype = DType::kF32, .shape = {kRows, cols, 1}}, begin);
    }));
    gathered[rank].erase(gathered[rank].begin(), gathered[rank].begin() + part);
    return absl::OkStatus();
  };
  // This takes several rounds.
  for (const absl::Status& status :
       OnRanks(size, {.tree_order = true, .scratch_bytes = size_t{64} << 10}, run)) {
    ASSERT_TRUE(status.ok()) << status;
  }
  for (int r = 0; r < size; ++r) {
    for (int64_t i = 0; i < kN; ++i) {
      std::vector<float> parts;
      for (int rank = 0; rank < size; ++rank) parts.push_back(ValueOf(rank, i));
      ASSERT_EQ(sums[r][i], AddTree(parts.data(), 1, size)) << i;
    }
    for (int64_t i = 0; i < kRows * begin.back(); ++i)
      ASSERT_EQ(gathered[r][i], ValueOf(0, i)) << i;
  }
}

// Sums of small integers are exact, and each repetition makes them `size` times as large.
TEST(NcclTest, CollectivesOfAGraphAreDoneWheneverItIs) {
  if (NumDevices() == 0) GTEST_SKIP() << "skipped: no device";
  const int size = NumRanks(NumDevices());
  RecordProperty("ranks", size);
  constexpr int64_t kN = 20'000;
  constexpr int kTimes = 4;
  for (const bool tree_order : {false, true}) {
    std::vector<std::vector<float>> x(size);
    const auto run = [&](NcclCommunicator& c, Stream& stream) -> absl::Status {
      std::vector<float>& mine = x[c.rank()];
      for (int64_t i = 0; i < kN; ++i) mine.push_back(static_cast<float>(i % 13 + c.rank()));
      GraphCache graphs(stream.device());
      absl::Status status;
      status.Update(OnDevice(mine, stream, [&](float* data) {
        const std::vector<int64_t> key = {1};
        for (int time = 0; time < kTimes; ++time) {
          status.Update(graphs.Run(
              key,
              [&] {
                c.AllReduceSum({.data = data, .dtype = DType::kF32, .shape = {1, kN, 1}});
                return c.status();
              },
              stream));
        }
      }));
      return status;
    };
    for (const absl::Status& status : OnRanks(size, {.tree_order = tree_order}, run)) {
      ASSERT_TRUE(status.ok()) << status;
    }
    const auto scale = static_cast<float>(std::pow(size, kTimes - 1));
    for (int r = 0; r < size; ++r) {
      for (int64_t i = 0; i < kN; ++i) {
        const auto sum = static_cast<float>(size * (i % 13) + size * (size - 1) / 2);
        ASSERT_EQ(x[r][i], scale * sum) << i;
      }
    }
  }
}

}  // namespace
}  // namespace continuo::kernels::cuda
