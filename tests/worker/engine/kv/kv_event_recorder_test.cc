// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv/kv_event_recorder.h"

#include <gmock/gmock.h>

#include <random>
#include <vector>

#include "tests/worker/engine/kv_event_reader.h"

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr CacheSalt kNoSalt = {0, 0}, kOther = {7, 8};
constexpr int kBlockSize = 4;
using Tokens = std::vector<int32_t>;
const Tokens kA = {1, 2, 3, 4}, kB = {5, 6, 7, 8}, kC = {9, 10, 11, 12};

class KvEventRecorderTest : public ::testing::Test {
 protected:
  // Returns a chain of published blocks, which is used no longer.
  void Cache(const std::vector<Tokens>& chunks, const CacheSalt& salt = kNoSalt) {
    std::vector<BlockId> blocks;
    for (const Tokens& chunk : chunks) {
      const BlockId parent = blocks.empty() ? kNoBlock : blocks.back();
      blocks.push_back(pool_.Publish(pool_.Allocate(), parent, chunk, salt));
    }
    for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) pool_.Release(*it);
  }
  void ForgetAll() {
    std::vector<BlockId> blocks;
    while (pool_.num_free() > 0) blocks.push_back(pool_.Allocate());
    for (const BlockId block : blocks) pool_.Release(block);
  }

  BlockPool pool_{/*num_blocks=*/6, kBlockSize, PrefixHash({1, 2})};
  KvEventRecorder recorder_{&pool_};
};

TEST_F(KvEventRecorderTest, NothingIsWrittenDownUnlessItRecords) {
  Cache({kA});
  ForgetAll();
  EXPECT_THAT(recorder_.Take(), IsEmpty());
  recorder_.Record();
  Cache({kB});
  recorder_.Stop();
  Cache({kC});
  EXPECT_THAT(recorder_.Take(), IsEmpty());
}

TEST_F(KvEventRecorderTest, AChainIsOneEvent) {
  recorder_.Record();
  Cache({kA, kB});
  Cache({kA, kC});  // goes on behind the block that is there
  const std::vector<KvEvent> events = recorder_.Take();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].kind, KvEvent::Kind::kStored);
  EXPECT_EQ(events[0].parent, kNoName);
  ASSERT_THAT(events[0].names, SizeIs(2));
  EXPECT_LT(events[0].names[0], events[0].names[1]);
  EXPECT_THAT(events[0].tokens, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(events[1].parent, events[0].names[0]);
  EXPECT_THAT(events[1].names, SizeIs(1));
  EXPECT_EQ(events[1].tokens, kC);
  EXPECT_THAT(recorder_.Take(), IsEmpty());
}

TEST_F(KvEventRecorderTest, BlocksAreForgottenWhenTheyAreHandedOut) {
  recorder_.Record();
  Cache({kA, kB});
  const std::vector<BlockName> names = recorder_.Take().at(0).names;
  ForgetAll();
  const std::vector<KvEvent> events = recorder_.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, KvEvent::Kind::kRemoved);
  EXPECT_THAT(events[0].names, ElementsAre(names[1], names[0])) << "the end of a prefix first";
  Cache({kA});
  EXPECT_GT(recorder_.Take().at(0).names[0], names[1]) << "no name comes twice";
}

TEST_F(KvEventRecorderTest, SaltsAreKeptApart) {
  recorder_.Record();
  Cache({kA}, kNoSalt);
  Cache({kA, kB}, kOther);
  const std::vector<KvEvent> events = recorder_.Take();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].salt, kNoSalt);
  EXPECT_EQ(events[1].salt, kOther);
  const KvSnapshot snapshot = recorder_.Copy(kOther);
  EXPECT_THAT(snapshot.names, SizeIs(2));
  EXPECT_THAT(snapshot.tokens, SizeIs(2 * kBlockSize));
  EXPECT_EQ(snapshot.block_size, kBlockSize);
  EXPECT_THAT(recorder_.Copy({9, 9}).names, IsEmpty());
}

TEST_F(KvEventRecorderTest, ALargeEventIsFollowedByAnother) {
  constexpr int kBlocks = 12'000;
  BlockPool pool(kBlocks, kBlockSize, PrefixHash({1, 2}));
  KvEventRecorder recorder(&pool);
  recorder.Record();
  BlockId last = kNoBlock;
  for (int i = 0; i < kBlocks; ++i) last = pool.Publish(pool.Allocate(), last, kA, kNoSalt);
  size_t num_blocks = 0;
  const std::vector<KvEvent> events = recorder.Take();
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_LT(events[i].bytes(), KvEventRecorder::kMaxEventBytes + 100);
    EXPECT_EQ(events[i].parent, i == 0 ? kNoName : events[i - 1].names.back());
    num_blocks += events[i].names.size();
  }
  EXPECT_GT(events.size(), 1u);
  EXPECT_EQ(num_blocks, static_cast<size_t>(kBlocks));
}

// Requests come, find a prefix, compute and publish the rest, and leave, in a pool that is too
// small for all.
TEST(KvEventRecorderRandomTest, EventsTellWhatPromptsFind) {
  std::mt19937 random(17);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int num_found = 0, num_removed = 0;
  for (int round = 0; round < 30; ++round) {
    BlockPool pool(12, kBlockSize, PrefixHash({3, 4}, round % 3 == 0 ? 6 : 128));
    KvEventRecorder recorder(&pool);
    const CacheSalt salts[] = {kNoSalt, kOther};
    std::vector<std::vector<BlockId>> running;
    KvEventReader reader(kBlockSize);
    const int begins_at = below(40);
    for (int i = 0; i < 200; ++i) {
      if (i == begins_at) {
        recorder.Record();
        for (const CacheSalt& salt : salts) reader.Begin(recorder.Copy(salt), salt);
      }
      while (!running.empty() && below(2) == 0) {
        std::vector<BlockId> blocks = std::move(running.back());
        running.pop_back();
        for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) pool.Release(*it);
      }
      Tokens tokens;
      for (int n = below(4) + 1; n > 0; --n) tokens.insert(tokens.end(), kBlockSize, below(3));
      const CacheSalt& salt = salts[below(2)];
      std::vector<BlockId> blocks;
      pool.AcquirePrefix({tokens, {}}, salt, 100, blocks);
      if (i >= begins_at) {
        const std::vector<KvEvent> events = recorder.Take();
        for (const KvEvent& event : events) num_removed += event.kind == KvEvent::Kind::kRemoved;
        reader.Read(events);
        EXPECT_EQ(reader.Find(tokens, salt), static_cast<int>(blocks.size()));
        num_found += static_cast<int>(blocks.size());
      }
      const int need = static_cast<int>(tokens.size()) / kBlockSize;
      bool publishes = true;
      while (static_cast<int>(blocks.size()) < need && pool.num_free() > 0) {
        const BlockId parent = blocks.empty() ? kNoBlock : blocks.back();
        const auto chunk = std::span(tokens).subspan(blocks.size() * kBlockSize, kBlockSize);
        blocks.push_back(pool.Allocate());
        if (!publishes) continue;
        blocks.back() = pool.Publish(blocks.back(), parent, chunk, salt);
        publishes = pool.IsPublished(blocks.back());
      }
      running.push_back(std::move(blocks));
      ASSERT_TRUE(pool.CheckInvariants().ok()) << pool.CheckInvariants();
    }
    reader.Read(recorder.Take());
    size_t num_published = 0;
    pool.VisitPublished([&](const PublishedBlock&) { ++num_published; });
    EXPECT_EQ(reader.size(), num_published);
  }
  EXPECT_GT(num_found, 100);
  EXPECT_GT(num_removed, 100);
}

}  // namespace
}  // namespace continuo::engine
