// SPDX-License-Identifier: Apache-2.0
// NcclCommunicator over the real NCCL, with as many ranks (1, 2, 4 or 8) as there are devices, and
// the kernel of its tree.
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/tree_sum.h"
#include "services/base/status_macros.h"

namespace continuo::cuda {
namespace {

int NumDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Runs `work` on a copy of `host` in the device's memory and copies that back.
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
  Stream stream = *Stream::Make(0);
  for (const int parts : {1, 2, 4, 8}) {
    for (const int64_t n : {1, 255, 100'003, 3'000'000}) {
      std::vector<float> x(static_cast<size_t>(parts * n)), expected(static_cast<size_t>(n));
      for (size_t i = 0; i < x.size(); ++i) x[i] = ValueOf(0, static_cast<int64_t>(i));
      for (int64_t i = 0; i < n; ++i) expected[i] = AddTree(x.data() + i, n, parts);
      ASSERT_TRUE(OnDevice(x, stream, [&](float* data) {
                    EXPECT_EQ(AddTrees(data, data, parts, n, stream.get()), cudaSuccess);
                  }).ok());
      EXPECT_EQ(std::memcmp(x.data(), expected.data(), expected.size() * sizeof(float)), 0)
          << parts << ' ' << n;
    }
  }
}

TEST(NcclTest, SumsInTreeOrderGathersAndEnds) {
  const int devices = NumDevices();
  if (devices == 0) GTEST_SKIP() << "skipped: no device";
  const int size = devices >= 8 ? 8 : devices >= 4 ? 4 : devices >= 2 ? 2 : 1;
  RecordProperty("ranks", size);
  constexpr int64_t kN = 20'000, kRows = 30;
  std::vector<int64_t> begin = {0};
  for (int r = 0; r < size; ++r) begin.push_back(begin.back() + 1 + r % 3 * 50);

  const SystemClock clock;
  const auto group =
      NcclGroup::Make(size, {.tree_order = true,
                             .scratch_bytes = size_t{64} << 10,  // several turns
                             .on_stuck = [](const absl::Status& status) { FAIL() << status; },
                             .clock = &clock});
  ASSERT_TRUE(group.ok()) << group.status();
  std::vector<absl::Status> statuses(size);
  std::vector<std::vector<float>> sums(size), gathered(size);
  const auto run = [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(Stream stream, Stream::Make(rank));
    ASSIGN_OR_RETURN(const std::unique_ptr<NcclCommunicator> c,
                     NcclCommunicator::Make(*group, rank, rank, stream.get()));
    c->SetHangLimit(HangLimit(absl::ZeroDuration()));
    for (int64_t i = 0; i < kN; ++i) sums[rank].push_back(ValueOf(rank, i));
    RETURN_IF_ERROR(OnDevice(sums[rank], stream, [&](float* data) {
      c->AllReduceSum({.data = data, .dtype = DType::kF32, .shape = {1, kN, 1}});
    }));
    // The rank's part, and after it the whole.
    const int64_t cols = begin[rank + 1] - begin[rank], part = kRows * cols;
    gathered[rank].resize(static_cast<size_t>(part + kRows * begin.back()));
    for (int64_t i = 0; i < part; ++i) {
      gathered[rank][i] = ValueOf(0, i / cols * begin.back() + begin[rank] + i % cols);
    }
    RETURN_IF_ERROR(OnDevice(gathered[rank], stream, [&](float* data) {
      c->AllGather({.data = data + part, .dtype = DType::kF32, .shape = {kRows, begin.back(), 1}},
                   {.data = data, .dtype = DType::kF32, .shape = {kRows, cols, 1}}, begin);
    }));
    gathered[rank].erase(gathered[rank].begin(), gathered[rank].begin() + part);
    return c->status();
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([&, r] { statuses[r] = run(r); });
  for (std::thread& t : threads) t.join();

  for (int r = 0; r < size; ++r) {
    ASSERT_TRUE(statuses[r].ok()) << statuses[r];
    for (int64_t i = 0; i < kN; ++i) {
      std::vector<float> parts;
      for (int rank = 0; rank < size; ++rank) parts.push_back(ValueOf(rank, i));
      ASSERT_EQ(sums[r][i], AddTree(parts.data(), 1, size)) << i;
    }
    for (int64_t i = 0; i < kRows * begin.back(); ++i)
      ASSERT_EQ(gathered[r][i], ValueOf(0, i)) << i;
  }
}

}  // namespace
}  // namespace continuo::cuda
