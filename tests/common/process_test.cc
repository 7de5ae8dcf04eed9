// SPDX-License-Identifier: Apache-2.0
#include "services/common/process.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"

namespace continuo::common {
namespace {

int NumArenas() {
  char* text = nullptr;
  size_t size = 0;
  FILE* const out = open_memstream(&text, &size);
  EXPECT_EQ(malloc_info(0, out), 0);
  fclose(out);
  const std::string all(text, size);
  free(text);
  int number = 0;
  for (size_t at = 0; (at = all.find("<heap nr=", at)) != std::string::npos; ++at) ++number;
  return number;
}

TEST(ProcessTest, ManyThreadsShareFewArenas) {
  PrepareProcess();
  const int most = std::max(2, static_cast<int>(std::thread::hardware_concurrency()) / 2);
  const int num_threads = 8 * most;
  auto* const all_hold = new absl::Barrier(num_threads);
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([=] {
      const auto held = std::make_unique<std::vector<char>>(100'000);
      EXPECT_NE(held->data(), nullptr);
      if (all_hold->Block()) delete all_hold;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(NumArenas(), 0);
  EXPECT_LE(NumArenas(), most);
}

}  // namespace
}  // namespace continuo::common
