// SPDX-License-Identifier: Apache-2.0
// How the positions of decodes are shared among blocks.
#include "kernels/cuda/attention/decode_share.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kSlice = 16;

struct Case {
  std::vector<int32_t> lengths;
  AttentionStep step;
  uint32_t slices = 0, least = 1;
  Shares shares;

  Case(std::vector<int32_t> lengths_of_sequences, int heads, int window, uint32_t blocks,
       uint32_t least_of_part)
      : lengths(std::move(lengths_of_sequences)), least(least_of_part) {
    step.kv_len = lengths.data();
    step.num_seqs = static_cast<int>(lengths.size());
    step.num_kv_heads = heads;
    step.window = window;
    for (int seq = 0; seq < step.num_seqs; ++seq) {
      slices += SlicesOf(step, seq, kSlice).num * static_cast<uint32_t>(heads);
    }
    shares = Shares(slices, std::min(blocks, slices), least);
  }
  // Returns the parts of a block, found as its threads find them.
  Parts PartsOf(uint32_t block) const {
    uint32_t before = 0;
    int seq = 0;
    const auto heads = static_cast<uint32_t>(step.num_kv_heads);
    while (true) {
      const uint32_t slices = SlicesOf(step, seq, kSlice).num;
      if (shares.Begin(block) < (before + slices) * heads) break;
      before += slices;
      ++seq;
    }
    return Parts(step, shares, block, kSlice, seq, before);
  }
};

Case RandomCase(std::mt19937& random) {
  std::vector<int32_t> lengths(1 + random() % 20);
  const uint32_t longest = 1u << random() % 13;
  for (int32_t& length : lengths) length = static_cast<int32_t>(1 + random() % longest);
  return Case(lengths, static_cast<int>(1 + random() % 5),
              random() % 3 == 0 ? static_cast<int>(1 + random() % 500) : 0, 1 + random() % 100,
              1 + random() % 10);
}

TEST(SlicesTest, ASequenceHasThoseThatItsRowSees) {
  const Case c({1, 16, 17, 100, 100}, 1, 0, 1, 1);
  EXPECT_EQ(SlicesOf(c.step, 0, kSlice).num, 1u);
  EXPECT_EQ(SlicesOf(c.step, 1, kSlice).num, 1u);
  EXPECT_EQ(SlicesOf(c.step, 2, kSlice).num, 2u);
  const Case windowed({100}, 1, 40, 1, 1);
  const SeenSlices slices = SlicesOf(windowed.step, 0, kSlice);  // positions 60 to 99
  EXPECT_EQ(slices.first_seen, 60);
  EXPECT_EQ(slices.first, 3u);
  EXPECT_EQ(slices.num, 4u);
}

TEST(SharesTest, EachSliceBelongsToOneBlock) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    const Case c = RandomCase(random);
    uint32_t next = 0;
    for (uint32_t block = 0; block < c.shares.blocks(); ++block) {
      Parts parts = c.PartsOf(block);
      while (parts.Next()) {
        ASSERT_EQ(parts.tile_begin() + parts.begin(), next);
        ASSERT_GT(parts.end(), parts.begin());
        ASSERT_LE(parts.end(), parts.slices().num);
        next = parts.tile_begin() + parts.end();
        EXPECT_EQ(parts.slices().num, SlicesOf(c.step, parts.seq(), kSlice).num);
        EXPECT_LT(parts.head(), c.step.num_kv_heads);
        EXPECT_EQ(parts.is_whole_tile(), parts.end() - parts.begin() == parts.slices().num);
      }
    }
    ASSERT_EQ(next, c.slices);
  }
}

TEST(SharesTest, TheBlocksOfATileAreThoseThatHaveAPartOfIt) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    const Case c = RandomCase(random);
    std::map<uint32_t, std::vector<uint32_t>> blocks_of;  // by the tile's first slice
    std::map<uint32_t, uint32_t> end_of;
    for (uint32_t block = 0; block < c.shares.blocks(); ++block) {
      Parts parts = c.PartsOf(block);
      while (parts.Next()) {
        blocks_of[parts.tile_begin()].push_back(block);
        end_of[parts.tile_begin()] = parts.tile_end();
        if (!parts.is_whole_tile()) {
          EXPECT_GE(parts.end() - parts.begin(), std::min(c.least, c.slices / c.shares.blocks()));
        }
      }
    }
    for (const auto& [begin, blocks] : blocks_of) {
      const uint32_t first = c.shares.FirstInside(begin), last = c.shares.LastInside(end_of[begin]);
      if (blocks.size() == 1) {
        EXPECT_GT(first, last);
        continue;
      }
      EXPECT_EQ(first, blocks.front() + 1);
      EXPECT_EQ(last, blocks.back());
      EXPECT_EQ(last - first + 2, blocks.size());
    }
  }
}

TEST(SharesTest, SharesOfLongSequencesAreEven) {
  const Case c({5000, 100000, 33, 70000}, 8, 0, 396, 8);
  const auto of_block = [&](uint32_t block) {
    uint32_t slices = 0;
    Parts parts = c.PartsOf(block);
    while (parts.Next()) slices += parts.end() - parts.begin();
    return slices;
  };
  const uint32_t even = c.slices / c.shares.blocks();
  for (uint32_t block = 0; block < c.shares.blocks(); ++block) {
    EXPECT_GE(of_block(block) + 8, even);
    EXPECT_LE(of_block(block), even + 9);
  }
}

TEST(SharesTest, ShortSequencesAreNotCut) {
  const Case c(std::vector<int32_t>(64, 128), 8, 0, 396, 8);
  for (uint32_t block = 0; block < c.shares.blocks(); ++block) {
    Parts parts = c.PartsOf(block);
    while (parts.Next()) EXPECT_TRUE(parts.is_whole_tile());
  }
}

}  // namespace
}  // namespace continuo::kernels::cuda
