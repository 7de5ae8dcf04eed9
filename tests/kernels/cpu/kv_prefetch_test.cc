// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/kv_prefetch.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/runtime/rows.h"
#include "tests/kernels/paged_case.h"

namespace continuo::kernels::cpu {
namespace {

using testing::Heads;
using testing::PagedCase;

constexpr int kHeadDim = 8;
constexpr int64_t kRowBytes = kHeadDim * sizeof(uint16_t);

// Keys and values of two heads; the work items of one thread's plan.
class KvPrefetchTest : public ::testing::Test {
 protected:
  void Use(std::vector<PagedCase::Sequence> sequences, int window = 0) {
    paged_ = std::make_unique<PagedCase>(std::move(sequences), Heads(2, 2, kHeadDim, window),
                                         DType::kBF16, 1, 16);
    plan_.Make(paged_->kv(), paged_->params(), /*stride=*/32, /*num_threads=*/1);
  }

  const AttentionItem& Item(int index) const {
    return plan_.items()[plan_.items().size() - 1 - static_cast<size_t>(index)];
  }
  int num_items() const { return static_cast<int>(plan_.items().size()); }

  // The rows of keys and values that an item reads from `position` on.
  std::set<const char*> RowsOf(int index, int64_t position) const {
    const PagedKv kv = paged_->kv();
    const AttentionItem& item = Item(index);
    const SeenPositions seen(item, kv, paged_->params());
    const int32_t* table =
        static_cast<const int32_t*>(kv.block_tables.data) + item.seq * kv.block_tables.cols();
    std::set<const char*> rows;
    position = std::max(position, item.begin + seen.Begin(item.begin));
    for (; position < std::min(item.end, seen.end()); ++position) {
      for (const int which : {0, 1}) {
        rows.insert(KvRows(kv, table[position / kv.block_size], item.kv_head, which) +
                    position % kv.block_size * kRowBytes);
      }
    }
    return rows;
  }
  std::set<const char*> AllRowsOf(int index) const { return RowsOf(index, 0); }
  std::set<const char*> RowsAfterFirstChunk(int index) const {
    return RowsOf(index, Item(index).begin + kKvChunk);
  }

  void Begin(int index, int step) {
    prefetch_.Begin(plan_.items(), index, step, paged_->kv(), paged_->params());
  }

  std::vector<const char*> Next(int n) {
    std::vector<MemoryRange> ranges(static_cast<size_t>(2 * n));
    const MemoryRange* const end = prefetch_.Next(n, ranges.data());
    EXPECT_LE(end, ranges.data() + 2 * n);
    std::vector<const char*> rows;
    for (const MemoryRange* range = ranges.data(); range < end; ++range) {
      for (ptrdiff_t at = 0; at < range->bytes; at += kRowBytes) rows.push_back(range->data + at);
    }
    return rows;
  }

  // Reads an item as attention does: chunk by chunk, prefetching as much as it reads.
  std::vector<const char*> Read(int index, int step) {
    Begin(index, step);
    std::vector<const char*> rows;
    const SeenPositions seen(Item(index), paged_->kv(), paged_->params());
    for (int64_t chunk = Item(index).begin; chunk < Item(index).end; chunk += kKvChunk) {
      const std::vector<const char*> more = Next(seen.End(chunk) - seen.Begin(chunk));
      rows.insert(rows.end(), more.begin(), more.end());
    }
    prefetch_.End();
    return rows;
  }

  static std::set<const char*> SetOf(const std::vector<const char*>& rows) {
    const std::set<const char*> set(rows.begin(), rows.end());
    EXPECT_EQ(set.size(), rows.size()) << "prefetched twice";
    return set;
  }

  std::unique_ptr<PagedCase> paged_;
  AttentionPlan plan_;
  KvPrefetch prefetch_;
};

TEST_F(KvPrefetchTest, EverythingAfterTheFirstChunkIsPrefetchedOnceOverAllItems) {
  Use({{300, 1}, {129, 1}, {20, 1}, {257, 1}});
  ASSERT_EQ(num_items(), 8);
  std::vector<const char*> prefetched;
  for (int i = 0; i < num_items(); ++i) {
    const std::vector<const char*> rows = Read(i, 1);
    prefetched.insert(prefetched.end(), rows.begin(), rows.end());
  }
  std::set<const char*> expected = RowsAfterFirstChunk(0);
  for (int i = 1; i < num_items(); ++i) expected.merge(AllRowsOf(i));
  EXPECT_EQ(SetOf(prefetched), expected);
}

TEST_F(KvPrefetchTest, AShortChunkPrefetchesNoMoreThanItReads) {
  Use({{300, 1}, {300, 1}});
  Begin(0, 1);
  EXPECT_EQ(Next(128).size(), 256u);
  EXPECT_EQ(Next(3).size(), 6u);
}

TEST_F(KvPrefetchTest, AThreadPrefetchesItsOwnItems) {
  Use({{128, 1}, {128, 1}, {128, 1}});
  EXPECT_EQ(SetOf(Read(1, 2)), AllRowsOf(3));
  EXPECT_EQ(SetOf(Read(3, 2)), AllRowsOf(5));
  EXPECT_TRUE(Read(5, 2).empty());
}

TEST_F(KvPrefetchTest, AnUnexpectedItemBeginsAnew) {
  Use({{200, 1}, {200, 1}, {200, 1}});
  EXPECT_FALSE(Read(0, 2).empty());
  Begin(3, 2);
  EXPECT_EQ(SetOf(Next(72)), RowsAfterFirstChunk(3));
}

TEST_F(KvPrefetchTest, AWindowsOldPositionsAreNotPrefetched) {
  Use({{1000, 1}, {1000, 1}}, /*window=*/100);
  ASSERT_EQ(Item(1).begin, 896);
  EXPECT_EQ(SetOf(Read(0, 1)), AllRowsOf(1));
}

TEST_F(KvPrefetchTest, AfterAResetAnExpectedItemBeginsAnewToo) {
  Use({{200, 1}, {200, 1}});
  EXPECT_FALSE(Read(0, 1).empty());
  prefetch_.Reset();
  Begin(1, 1);
  EXPECT_EQ(SetOf(Next(72)), RowsAfterFirstChunk(1));
}

}  // namespace
}  // namespace continuo::kernels::cpu
