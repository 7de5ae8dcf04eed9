// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/read_ahead.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/rows.h"
#include "tests/kernels/paged_case.h"

namespace continuo::kernels::cpu {
namespace {

using testing::Heads;
using testing::PagedCase;

constexpr int kHeadDim = 8;
constexpr int64_t kRowBytes = kHeadDim * sizeof(uint16_t);

// One sequence's keys and values of two heads, handed out to so many threads.
class ReadAheadTest : public ::testing::Test {
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
    const SeenPositions seen(item, kv, paged_->params().window);
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
  std::set<const char*> RowsAfterFirstSpan(int index) const {
    return RowsOf(index, Item(index).begin + kSpan);
  }

  void Begin(int index, int step) {
    ahead_.Begin(plan_.items(), index, step, paged_->kv(), paged_->params());
  }

  std::vector<const char*> Next(int n) {
    std::vector<MemoryPiece> pieces(static_cast<size_t>(2 * n));
    const MemoryPiece* const end = ahead_.Next(n, pieces.data());
    EXPECT_LE(end, pieces.data() + 2 * n);
    std::vector<const char*> rows;
    for (const MemoryPiece* piece = pieces.data(); piece < end; ++piece) {
      for (ptrdiff_t at = 0; at < piece->bytes; at += kRowBytes) rows.push_back(piece->data + at);
    }
    return rows;
  }

  // Reads an item as attention does: span by span, asking for as much as it reads.
  std::vector<const char*> Read(int index, int step) {
    Begin(index, step);
    std::vector<const char*> rows;
    const SeenPositions seen(Item(index), paged_->kv(), paged_->params().window);
    for (int64_t span = Item(index).begin; span < Item(index).end; span += kSpan) {
      const std::vector<const char*> more = Next(seen.End(span) - seen.Begin(span));
      rows.insert(rows.end(), more.begin(), more.end());
    }
    ahead_.End();
    return rows;
  }

  static std::set<const char*> SetOf(const std::vector<const char*>& rows) {
    const std::set<const char*> set(rows.begin(), rows.end());
    EXPECT_EQ(set.size(), rows.size()) << "asked for twice";
    return set;
  }

  std::unique_ptr<PagedCase> paged_;
  AttentionPlan plan_;
  ReadAhead ahead_;
};

TEST_F(ReadAheadTest, EverythingAfterTheFirstSpanIsAskedForOnceOverAllItems) {
  Use({{300, 1}, {129, 1}, {20, 1}, {257, 1}});
  ASSERT_EQ(num_items(), 8);
  std::vector<const char*> asked;
  for (int i = 0; i < num_items(); ++i) {
    const std::vector<const char*> rows = Read(i, 1);
    asked.insert(asked.end(), rows.begin(), rows.end());
  }
  std::set<const char*> expected = RowsAfterFirstSpan(0);
  for (int i = 1; i < num_items(); ++i) expected.merge(AllRowsOf(i));
  EXPECT_EQ(SetOf(asked), expected);
}

TEST_F(ReadAheadTest, AShortSpanAsksForNoMoreThanItReads) {
  Use({{300, 1}, {300, 1}});
  Begin(0, 1);
  EXPECT_EQ(Next(128).size(), 256u);
  EXPECT_EQ(Next(3).size(), 6u);
}

TEST_F(ReadAheadTest, AThreadAsksForWhatItsOwnTurnsBring) {
  Use({{128, 1}, {128, 1}, {128, 1}});
  EXPECT_EQ(SetOf(Read(1, 2)), AllRowsOf(3));
  EXPECT_EQ(SetOf(Read(3, 2)), AllRowsOf(5));
  EXPECT_TRUE(Read(5, 2).empty());
}

TEST_F(ReadAheadTest, AnItemOutOfTurnBeginsAnew) {
  Use({{200, 1}, {200, 1}, {200, 1}});
  EXPECT_FALSE(Read(0, 2).empty());
  Begin(3, 2);
  EXPECT_EQ(SetOf(Next(72)), RowsAfterFirstSpan(3));
}

TEST_F(ReadAheadTest, AWindowsOldPositionsAreNotAskedFor) {
  Use({{1000, 1}, {1000, 1}}, /*window=*/100);
  ASSERT_EQ(Item(1).begin, 896);
  EXPECT_EQ(SetOf(Read(0, 1)), AllRowsOf(1));
}

TEST_F(ReadAheadTest, AfterAResetAnExpectedItemBeginsAnewToo) {
  Use({{200, 1}, {200, 1}});
  EXPECT_FALSE(Read(0, 1).empty());
  ahead_.Reset();
  Begin(1, 1);
  EXPECT_EQ(SetOf(Next(72)), RowsAfterFirstSpan(1));
}

}  // namespace
}  // namespace continuo::kernels::cpu
