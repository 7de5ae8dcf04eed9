// SPDX-License-Identifier: Apache-2.0
// The queries and positions that a block of attention takes.
#include "kernels/cuda/attention/query_tile.h"

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace continuo::kernels::cuda {
namespace {

TEST(QueryTileTest, EveryQueryIsInOneTileOfItsSequence) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    AttentionStep step;
    std::vector<int32_t> begin = {0}, length;
    step.num_seqs = 1 + static_cast<int>(random() % 9);
    for (int i = 0; i < step.num_seqs; ++i) {
      const auto rows = static_cast<int32_t>(1 + random() % (round % 2 == 0 ? 3 : 200));
      begin.push_back(begin.back() + rows);
      length.push_back(rows + static_cast<int32_t>(random() % 300));
    }
    // The launch does not have all of the step's sequences.
    const int skipped = static_cast<int>(random() % static_cast<unsigned>(step.num_seqs));
    step.num_seqs -= skipped;
    step.query_begin = begin.data() + skipped;
    step.kv_len = length.data() + skipped;
    step.first_row = *step.query_begin;
    step.rows = begin.back() - step.first_row;
    step.heads_per_kv_head = 1 + static_cast<int>(random() % 20);
    step.num_kv_heads = 1 + static_cast<int>(random() % 3);
    // A rank may begin within the heads of a key-value head.
    step.first_head = static_cast<int>(random() % static_cast<unsigned>(step.heads_per_kv_head));
    step.num_heads = step.num_kv_heads * step.heads_per_kv_head - step.first_head;
    for (const int tile_size : {16, 32, 64}) {
      std::set<std::pair<int64_t, int>> seen;
      for (int kv_head = 0; kv_head < step.num_kv_heads; ++kv_head) {
        const int heads = HeadsOf(step, kv_head).size();
        const int64_t num_tiles = NumTiles(step.rows, step.num_seqs, heads, tile_size);
        for (int64_t t = 0; t < num_tiles; ++t) {
          const QueryTile tile = FindTile(step, kv_head, tile_size, t);
          for (int i = 0; i < tile.num_pairs; ++i) {
            EXPECT_EQ(SequenceOf(step, tile.Row(i)), tile.seq);
            EXPECT_EQ(tile.Position(i),
                      step.kv_len[tile.seq] - (step.query_begin[tile.seq + 1] - tile.Row(i)));
            EXPECT_EQ((step.first_head + tile.Head(i)) / step.heads_per_kv_head, kv_head);
            EXPECT_TRUE(seen.emplace(tile.Row(i), tile.Head(i)).second);
          }
        }
        EXPECT_EQ(FindTile(step, kv_head, tile_size, num_tiles).num_pairs, 0);
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(step.rows * step.num_heads));
    }
  }
}

TEST(QueryTileTest, SplitsShareOutWhatIsSeen) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    AttentionStep step;
    step.window = round % 3 == 0 ? 0 : 1 + static_cast<int>(random() % 500);
    step.chunk = round % 5 == 0 ? 1 + static_cast<int>(random() % 700) : 0;
    QueryTile tile;
    tile.heads = {0, 2};
    tile.num_pairs = 1 + static_cast<int>(random() % 64);
    tile.first_position = static_cast<int64_t>(random() % 3000);
    const int64_t first = FirstSeen(tile.Position(0), step);
    const int64_t end = tile.Position(tile.num_pairs - 1) + 1;
    constexpr int kUnit = 64;
    for (const int64_t tokens : {0, 1024}) {
      const int splits = tokens == 0 ? 1 + static_cast<int>(random() % 20) : 4;
      int64_t next = first / kUnit * kUnit;
      for (int s = 0; s < splits; ++s) {
        const SeenRange range = SeenBy(step, tile, kUnit, s, splits, tokens);
        EXPECT_EQ(range.first, first);
        if (range.begin >= range.end) continue;
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.begin % kUnit, 0);
        EXPECT_TRUE(tokens == 0 || range.begin / tokens == s);
        next = range.end;
      }
      EXPECT_EQ(next, end) << splits << " splits of " << tokens;
    }
  }
}

}  // namespace
}  // namespace continuo::kernels::cuda
