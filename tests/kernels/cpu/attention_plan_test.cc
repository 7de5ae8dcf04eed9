// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/paged_case.h"

namespace continuo::kernels::cpu {
namespace {

using testing::Heads;
using testing::PagedCase;

AttentionPlan PlanFor(const PagedCase& c, int threads) {
  AttentionPlan plan;
  plan.Make(c.kv(), c.params(), /*stride=*/32, threads);
  return plan;
}

// Every chunk that the rows see is in one part, and parts' results do not overlap.
void ExpectWhole(const PagedCase& c, const AttentionPlan& plan) {
  std::map<std::tuple<int, int, int>, std::vector<std::pair<int64_t, int64_t>>> parts;
  std::vector<bool> used(plan.partial_floats());
  for (const AttentionItem& item : plan.items()) {
    EXPECT_LT(item.begin, item.end);
    parts[{item.seq, item.first_head, item.first_row}].push_back({item.begin, item.end});
    if (item.results < 0) continue;
    const int64_t floats =
        (item.end - item.begin) / kKvChunk * PartialLayout{item.num_queries(), 32}.size();
    for (int64_t i = item.results; i < item.results + floats; ++i) {
      EXPECT_FALSE(used.at(i)) << i;
      used[i] = true;
    }
  }
  for (auto& [key, ranges] : parts) {
    const SeenPositions seen(
        {.seq = std::get<0>(key), .num_heads = 1, .first_row = std::get<2>(key), .num_rows = 1},
        c.kv(), c.params());
    std::sort(ranges.begin(), ranges.end());
    EXPECT_EQ(ranges.front().first, seen.FirstChunk());
    for (size_t i = 1; i < ranges.size(); ++i) EXPECT_EQ(ranges[i].first, ranges[i - 1].second);
    EXPECT_GE(ranges.back().second, seen.end());
  }
  EXPECT_EQ(std::count(used.begin(), used.end(), false), 0);
}

TEST(AttentionPlanTest, ALongSequenceIsSplitAmongTheThreads) {
  const PagedCase c({{9000, 1}}, Heads(4, 1, 8), DType::kBF16, 1, 16);
  for (const int threads : {2, 4, 64}) {
    const AttentionPlan plan = PlanFor(c, threads);
    ExpectWhole(c, plan);
    EXPECT_EQ(plan.split().size(), 1u);
    // 71 chunks, of which a part takes at least 8.
    EXPECT_EQ(plan.items().size(), static_cast<size_t>(std::min(2 * threads + 1, 8))) << threads;
  }
  EXPECT_EQ(PlanFor(c, 1).items().size(), 1u);
}

TEST(AttentionPlanTest, AWindowSeesItsLastChunksOnly) {
  const PagedCase c({{9000, 2}}, Heads(4, 1, 8, 3000), DType::kBF16, 1, 16);
  const AttentionPlan plan = PlanFor(c, 4);
  ExpectWhole(c, plan);
  EXPECT_EQ(plan.split().size(), 1u);
  EXPECT_EQ(plan.items().size(), 3u);
}

TEST(AttentionPlanTest, ItemsEnoughForTheThreadsAreNotSplit) {
  const PagedCase even({{3000, 1}, {3000, 1}}, Heads(8, 4, 8), DType::kBF16, 1, 16);
  EXPECT_EQ(PlanFor(even, 2).items().size(), 8u);
  EXPECT_TRUE(PlanFor(even, 2).split().empty());
  const PagedCase short_one({{1000, 1}}, Heads(1, 1, 8), DType::kBF16, 1, 16);
  EXPECT_EQ(PlanFor(short_one, 8).items().size(), 1u);
}

TEST(AttentionPlanTest, ALongSequenceAmongShortOnesIsSplit) {
  const PagedCase c({{8000, 1}, {200, 1}, {200, 1}, {200, 1}}, Heads(2, 1, 8), DType::kBF16, 1, 16);
  const AttentionPlan plan = PlanFor(c, 2);
  ExpectWhole(c, plan);
  EXPECT_EQ(plan.split().size(), 1u);
  EXPECT_GT(plan.items().size(), 4u);
}

TEST(AttentionPlanTest, ManyQueriesAreNotSplit) {
  for (const int rows : {16, 17}) {
    const PagedCase c({{4000, rows}}, Heads(1, 1, 8), DType::kBF16, 1, 16);
    EXPECT_EQ(PlanFor(c, 8).split().size(), rows == 16 ? 1u : 0u);
  }
}

TEST(AttentionPlanTest, ResultsTakeSixteenMebibytesAtMost) {
  const PagedCase c({{4000, 1}, {4000, 1}, {4000, 1}}, Heads(1, 1, 8), DType::kBF16, 1, 16);
  AttentionPlan plan;
  // 32 chunks of 50,000 floats and a little each: two sequences have room.
  plan.Make(c.kv(), c.params(), /*stride=*/50000, /*num_threads=*/8);
  EXPECT_EQ(plan.split().size(), 2u);
  EXPECT_LE(plan.partial_floats(), 4 << 20);
  EXPECT_EQ(std::count_if(plan.items().begin(), plan.items().end(),
                          [](const AttentionItem& item) { return item.results < 0; }),
            1);
}

}  // namespace
}  // namespace continuo::kernels::cpu
