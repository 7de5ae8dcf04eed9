// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/thread_communicator.h"

#include <functional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {
namespace {

void OnRanks(int size, const std::function<void(kernels::Communicator&)>& body) {
  const auto ranks = kernels::host::MakeThreadCommunicators(size);
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&body, &rank] { body(*rank); });
  for (std::thread& t : threads) t.join();
}

TEST(ThreadCommunicatorTest, SumsAreAddedInABalancedTree) {
  for (const int size : {1, 2, 4, 8}) {
    for (const int64_t n : {0, 1, 5, 1000, 5000}) {
      std::vector<HostTensor> x;
      Random random(31);
      for (int r = 0; r < size; ++r)
        x.push_back(HostTensor::Of(kernels::DType::kF32, 1, n, random, 0.1f));
      std::vector<std::vector<float>> sums;
      for (const HostTensor& t : x) {
        const Matrix m = t.matrix();
        sums.emplace_back(m.begin(), m.end());
      }
      while (sums.size() > 1) {
        for (size_t r = 0; r < sums.size() / 2; ++r) {
          for (int64_t i = 0; i < n; ++i) sums[r][i] = sums[2 * r][i] + sums[2 * r + 1][i];
        }
        sums.resize(sums.size() / 2);
      }
      OnRanks(size, [&](kernels::Communicator& c) {
        EXPECT_EQ(c.size(), size);
        c.AllReduceSum(x[c.rank()]);
      });
      for (const HostTensor& t : x) {
        EXPECT_EQ(t.matrix(), Matrix(sums[0].begin(), sums[0].end()));
      }
    }
  }
}

TEST(ThreadCommunicatorTest, ManyCollectivesInARow) {
  OnRanks(4, [](kernels::Communicator& c) {
    HostTensor x(kernels::DType::kF32, 1, 3);
    for (int round = 1; round <= 500; ++round) {
      for (int i = 0; i < 3; ++i) x.Set(i, static_cast<float>(round + c.rank()));
      c.AllReduceSum(x);
      EXPECT_EQ(x.matrix(), Matrix(3, 4.0 * round + 6));
    }
    EXPECT_TRUE(c.status().ok());
  });
}

TEST(ThreadCommunicatorTest, GathersColumnsOfUnequalParts) {
  const std::vector<int64_t> begin = {0, 3, 3, 4, 9};
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    OnRanks(4, [&](kernels::Communicator& c) {
      const int64_t cols = begin[c.rank() + 1] - begin[c.rank()];
      HostTensor part(type, 5, cols), out = HostTensor::Poisoned(type, 5, 9);
      for (int64_t row = 0; row < 5; ++row) {
        for (int64_t i = 0; i < cols; ++i) {
          part.Set(row * cols + i, static_cast<float>(row * 9 + begin[c.rank()] + i));
        }
      }
      c.AllGather(out, part, begin);
      for (int i = 0; i < 45; ++i) EXPECT_EQ(out.matrix()[i], i);
    });
  }
}

TEST(ThreadCommunicatorTest, AbortFreesThoseWhoWaitNowAndLater) {
  for (int round = 0; round < 20; ++round) {
    OnRanks(4, [&](kernels::Communicator& c) {
      HostTensor x(kernels::DType::kF32, 1, 2000);
      if (c.rank() == 3) {
        for (int i = 0; i < round; ++i) c.AllReduceSum(x);
        c.Abort();
      } else {
        for (int i = 0; i < 100; ++i) c.AllReduceSum(x);
      }
      EXPECT_EQ(c.status().code(), absl::StatusCode::kAborted);
      const HostTensor out(kernels::DType::kF32, 1, 8);
      c.AllGather(out, HostTensor(kernels::DType::kF32, 1, 2), std::vector<int64_t>{0, 2, 4, 6, 8});
    });
  }
}

TEST(ThreadCommunicatorTest, AbortFromOutsideFreesASleeper) {
  const auto ranks = kernels::host::MakeThreadCommunicators(2);
  std::thread waiting([&] {
    HostTensor x(kernels::DType::kF32, 1, 4);
    ranks[0]->AllReduceSum(x);
  });
  for (int i = 0; i < 5000; ++i) std::this_thread::yield();
  ranks[1]->Abort();
  waiting.join();
  EXPECT_FALSE(ranks[0]->status().ok());
}

}  // namespace
}  // namespace continuo::testing
