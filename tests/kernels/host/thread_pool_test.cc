// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace continuo::kernels::cpu {
namespace {

TEST(ThreadPoolTest, EveryItemRunsOnceAndItsWorkIsSeenAfterwards) {
  for (const int threads : {1, 2, 3, 8}) {
    host::ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int round = 0; round < 300; ++round) {
      const int n = round % 50;
      std::vector<int> runs(n, 0);  // plain: a race would be one of the pool's
      pool.Run(n, [&](int item, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++runs[item];
      });
      EXPECT_EQ(runs, std::vector<int>(n, 1));
    }
  }
}

TEST(ThreadPoolTest, ItemsGoToThreadsThatAreFree) {
  // Item 0 ends only after all others ran: the other thread must claim them.
  host::ThreadPool pool(2);
  std::atomic<int> done{0};
  pool.Run(20, [&](int item, int) {
    if (item == 0) {
      while (done.load() != 19) std::this_thread::yield();
    } else {
      ++done;
    }
  });
  EXPECT_EQ(done.load(), 19);
}

// This holds mostly: a thread that was still looking for the last loop's items may begin with
// another's.
TEST(ThreadPoolTest, AThreadTakesItsOwnTurnsBeforeThoseOfOthers) {
  constexpr int kThreads = 3, kItems = 11, kRounds = 40;
  host::ThreadPool pool(kThreads);
  int num_in_turn = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::vector<int>> taken(kThreads);
    std::atomic<int> begun{0}, done{0};
    pool.Run(kItems, [&](int item, int thread) {
      // No thread goes on before all have begun, and the caller waits until the others are done.
      if (taken[thread].empty()) {
        ++begun;
        while (begun.load() != kThreads) std::this_thread::yield();
      }
      taken[thread].push_back(item);
      while (thread == 0 && done.load() != kItems - 1) std::this_thread::yield();
      ++done;
    });
    EXPECT_EQ(taken[0].size(), 1u);
    bool in_turn = true;
    for (int thread = 0; thread < kThreads; ++thread) {
      // Once a thread claims another's items, its own are gone.
      const auto is_own = [&](int item) { return item % kThreads == thread; };
      in_turn &= taken[thread].front() == thread &&
                 std::is_partitioned(taken[thread].begin(), taken[thread].end(), is_own);
    }
    num_in_turn += in_turn ? 1 : 0;
  }
  EXPECT_GT(num_in_turn, kRounds / 2);
}

TEST(ThreadPoolTest, ThreadsWorkAgainAfterTheySlept) {
  host::ThreadPool pool(4);
  for (int round = 0; round < 3; ++round) {
    // One thread runs long enough for the others to fall asleep.
    pool.Run(1, [](int, int) {
      for (int i = 0; i < 20000; ++i) std::this_thread::yield();
    });
    // The loop ends only if a second thread wakes up.
    std::atomic<int> inside{0};
    pool.Run(2, [&](int, int) {
      ++inside;
      while (inside.load() < 2) std::this_thread::yield();
    });
  }
}

TEST(ThreadPoolTest, PoolsOfManyRanksDoNotDisturbEachOther) {
  std::vector<std::thread> ranks;
  std::atomic<int64_t> total{0};
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&total] {
      host::ThreadPool pool(2);
      for (int round = 0; round < 200; ++round) {
        pool.Run(7, [&](int item, int) { total += item; });
      }
    });
  }
  for (std::thread& t : ranks) t.join();
  EXPECT_EQ(total.load(), 4 * 200 * 21);
}

#if defined(__x86_64__)
TEST(ThreadPoolTest, EveryThreadRoundsToNearestAndKeepsSubnormals) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0xffc0 | 0x1f80);  // round to zero, flush to zero, subnormals are zero
  host::ThreadPool pool(2);
  std::atomic<int> inside{0};
  pool.Run(2, [&](int, int) {
    EXPECT_EQ(_mm_getcsr() & ~0x3fu, 0x1f80u);
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(_mm_getcsr() & 0xffc0u, 0xffc0u) << "the caller's state is restored";
  _mm_setcsr(before);
}
#endif

}  // namespace
}  // namespace continuo::kernels::cpu
