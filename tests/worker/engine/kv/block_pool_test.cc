// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv/block_pool.h"

#include <gmock/gmock.h>

#include <vector>

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheSalt kNoSalt = {0, 0};
const std::vector<int32_t> kA = {1, 2, 3, 4}, kB = {5, 6, 7, 8}, kC = {9, 10, 11, 12};

std::vector<int32_t> Join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class BlockPoolTest : public ::testing::Test {
 protected:
  explicit BlockPoolTest(int digest_bits = 128)
      : pool_(/*num_blocks=*/4, /*block_size=*/4, PrefixHash({1, 2}, digest_bits)) {}
  void TearDown() override { EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants(); }

  std::vector<BlockId> Acquire(const std::vector<int32_t>& tokens,
                               const CacheSalt& salt = kNoSalt) {
    std::vector<BlockId> found;
    pool_.AcquirePrefix({tokens, {}}, salt, 100, found);
    return found;
  }
  // Returns a published chain of blocks, whose last block was released first.
  std::vector<BlockId> Cache(const std::vector<std::vector<int32_t>>& chunks,
                             const CacheSalt& salt = kNoSalt) {
    std::vector<BlockId> blocks;
    for (const auto& chunk : chunks) {
      const BlockId parent = blocks.empty() ? kNoBlock : blocks.back();
      blocks.push_back(pool_.Publish(pool_.Allocate(), parent, chunk, salt));
    }
    for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) pool_.Release(*it);
    return blocks;
  }

  BlockPool pool_;
};

TEST_F(BlockPoolTest, BlocksAreUsedCachedOrEmpty) {
  const BlockId used = pool_.Allocate();
  Cache({kA});
  EXPECT_EQ(pool_.num_used(), 1);
  EXPECT_EQ(pool_.num_cached(), 1);
  EXPECT_EQ(pool_.num_empty(), 2);
  EXPECT_EQ(pool_.num_free(), 3);
  pool_.Release(used);
  EXPECT_EQ(pool_.num_empty(), 3);
}

TEST_F(BlockPoolTest, AReleasedPrefixIsFoundUntilItsBlockIsReused) {
  const std::vector<BlockId> cached = Cache({kA});
  EXPECT_EQ(Acquire(kA), cached);
  pool_.Release(cached[0]);
  for (int i = 0; i < 4; ++i) pool_.Allocate();
  EXPECT_THAT(Acquire(kA), IsEmpty());
}

TEST_F(BlockPoolTest, EmptyBlocksAreTakenBeforeCachedOnes) {
  Cache({kA});
  for (int i = 0; i < 3; ++i) pool_.Allocate();
  EXPECT_EQ(Acquire(kA).size(), 1u);
}

TEST_F(BlockPoolTest, TheEndOfAPrefixIsReusedBeforeItsStart) {
  const std::vector<BlockId> cached = Cache({kA, kB, kC});
  pool_.Allocate();  // the empty one
  pool_.Allocate();
  EXPECT_THAT(Acquire(Join(Join(kA, kB), kC)), ElementsAre(cached[0], cached[1]));
}

TEST_F(BlockPoolTest, ThePrefixReleasedLongestAgoIsReusedFirst) {
  Cache({kA});
  Cache({kB});
  const std::vector<BlockId> again = Acquire(kA);  // now newer than that of kB
  pool_.Release(again[0]);
  for (int i = 0; i < 3; ++i) pool_.Allocate();
  EXPECT_THAT(Acquire(kB), IsEmpty());
  EXPECT_EQ(Acquire(kA), again);
}

TEST_F(BlockPoolTest, ABlockIsOnlyFoundBehindItsParent) {
  Cache({kA, kB});
  EXPECT_THAT(Acquire(kB), IsEmpty());
  EXPECT_THAT(Acquire(Join(kC, kB)), IsEmpty());
  EXPECT_EQ(Acquire(Join(kA, kB)).size(), 2u);
}

TEST_F(BlockPoolTest, APrefixIsOnlyFoundUnderItsSalt) {
  Cache({kA}, {1, 0});
  EXPECT_THAT(Acquire(kA), IsEmpty());
  EXPECT_THAT(Acquire(kA, {0, 1}), IsEmpty());
  EXPECT_EQ(Acquire(kA, {1, 0}).size(), 1u);
}

TEST_F(BlockPoolTest, APrefixMayEndInTheMiddleOfTheAnswer) {
  const std::vector<BlockId> cached = Cache({kA, kB});
  const std::vector<int32_t> head = {1, 2, 3}, tail = {4, 5, 6, 7, 8, 9};
  std::vector<BlockId> found;
  pool_.AcquirePrefix({head, tail}, kNoSalt, 100, found);
  EXPECT_EQ(found, cached);
}

TEST_F(BlockPoolTest, NoMoreBlocksAreFoundThanAskedFor) {
  Cache({kA, kB});
  std::vector<BlockId> found;
  pool_.AcquirePrefix({Join(kA, kB), {}}, kNoSalt, 1, found);
  EXPECT_EQ(found.size(), 1u);
}

TEST_F(BlockPoolTest, TwoThatComputedTheSameShareOneBlock) {
  const BlockId first = pool_.Allocate(), second = pool_.Allocate();
  EXPECT_EQ(pool_.Publish(first, kNoBlock, kA, kNoSalt), first);
  EXPECT_EQ(pool_.Publish(second, kNoBlock, kA, kNoSalt), first);
  EXPECT_EQ(pool_.references(first), 2);
  EXPECT_EQ(pool_.num_used(), 1);
  EXPECT_EQ(pool_.num_empty(), 3);
}

TEST_F(BlockPoolTest, ReferencesAreCounted) {
  const BlockId block = pool_.Allocate();
  pool_.AddReference(block);
  EXPECT_EQ(pool_.num_references(), 2);
  pool_.Release(block);
  EXPECT_EQ(pool_.num_used(), 1);
  pool_.Release(block);
  EXPECT_EQ(pool_.num_used(), 0);
  EXPECT_EQ(pool_.num_references(), 0);
}

TEST_F(BlockPoolTest, WhatNobodyCanFindIsReusedFirst) {
  const BlockId block = pool_.Allocate();
  pool_.Release(block);
  EXPECT_EQ(pool_.Allocate(), block);
}

// All digests are equal, so that only tokens, parent and salt tell blocks apart.
class CollidingBlockPoolTest : public BlockPoolTest {
 protected:
  CollidingBlockPoolTest() : BlockPoolTest(/*digest_bits=*/0) { cached_ = Cache({kA})[0]; }

  // Offers a block and expects that the caller keeps it, unpublished.
  void ExpectNotTaken(BlockId parent, const std::vector<int32_t>& tokens, const CacheSalt& salt) {
    const BlockId block = pool_.Allocate();
    const BlockId held = pool_.Publish(block, parent, tokens, salt);
    EXPECT_EQ(held, block);
    EXPECT_FALSE(pool_.IsPublished(held));
    EXPECT_EQ(pool_.references(held), 1);
    pool_.Release(held);
  }

  BlockId cached_;
};

TEST_F(CollidingBlockPoolTest, TheSamePrefixIsStillFound) {
  EXPECT_THAT(Acquire(kA), ElementsAre(cached_));
  EXPECT_EQ(pool_.Publish(pool_.Allocate(), kNoBlock, kA, kNoSalt), cached_);
  EXPECT_EQ(pool_.references(cached_), 2);
}

TEST_F(CollidingBlockPoolTest, OtherTokensAreNoHit) {
  EXPECT_THAT(Acquire(kB), IsEmpty());
  EXPECT_THAT(Acquire({1, 2, 3, 5}), IsEmpty());
  ExpectNotTaken(kNoBlock, kB, kNoSalt);
  EXPECT_THAT(Acquire(kA), ElementsAre(cached_));
}

TEST_F(CollidingBlockPoolTest, AnotherParentIsNoHit) {
  EXPECT_THAT(Acquire(Join(kA, kA)), ElementsAre(cached_));
  ExpectNotTaken(cached_, kA, kNoSalt);
}

TEST_F(CollidingBlockPoolTest, AnotherSaltIsNoHit) {
  for (const CacheSalt& salt : {CacheSalt{1, 0}, CacheSalt{0, 1}}) {
    EXPECT_THAT(Acquire(kA, salt), IsEmpty());
    ExpectNotTaken(kNoBlock, kA, salt);
  }
}

TEST(PrefixHashTest, FewDigestBitsCollide) {
  const auto root = [](int bits) { return PrefixHash({1, 2}, bits).Root(kNoSalt); };
  EXPECT_EQ(root(0), PrefixDigest());
  EXPECT_LT(root(5).low, 32u);
  EXPECT_EQ(root(5).high, 0u);
  EXPECT_EQ(root(64).low, root(128).low);
  EXPECT_EQ(root(64).high, 0u);
  EXPECT_EQ(root(128), PrefixHash({1, 2}).Root(kNoSalt));
}

TEST(PrefixHashTest, DigestsDependOnKeyParentTokensAndSalt) {
  const PrefixHash a({1, 2}), b({1, 3});
  const PrefixDigest root = a.Root(kNoSalt);
  EXPECT_NE(root, a.Root({0, 1}));
  EXPECT_NE(root, b.Root(kNoSalt));
  EXPECT_NE(a.Extend(root, kA), a.Extend(root, kB));
  EXPECT_NE(a.Extend(root, kA), b.Extend(root, kA));
  EXPECT_NE(a.Extend(root, kA), a.Extend(a.Root({0, 1}), kA));
  EXPECT_NE(a.Extend(a.Extend(root, kA), kB), a.Extend(a.Extend(root, kB), kA));
  EXPECT_EQ(a.Extend(root, kA), PrefixHash({1, 2}).Extend(root, kA));
}

}  // namespace
}  // namespace continuo::engine
