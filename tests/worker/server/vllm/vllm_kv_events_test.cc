// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_kv_events.h"

#include <gmock/gmock.h>

#include <memory>
#include <utility>
#include <vector>

namespace continuo::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using engine::KvEvent;
using engine::KvEventLog;

constexpr engine::CacheSalt kMine = {1, 1}, kOthers = {2, 2};
constexpr int kSize = 2;
const absl::Time kThen = absl::FromUnixMillis(1500);

class VllmKvEventsTest : public ::testing::Test {
 protected:
  VllmKvEventsTest() { log_.StartRecording(); }

  // A stream that begins with the snapshot.
  VllmKvEvents Begin(engine::KvSnapshot snapshot) {
    auto box = std::make_shared<KvEventLog::SnapshotBox>();
    auto watch = log_.Begin(box);
    EXPECT_TRUE(watch.ok());
    snapshot.number = log_.last_number();
    snapshot.time = kThen;
    snapshot.block_size = kSize;
    box->Put(std::move(snapshot));
    return {*std::move(watch), kMine, kSize};
  }
  static std::vector<::smg::grpc::common::KvEventBatch> All(VllmKvEvents& events) {
    std::vector<::smg::grpc::common::KvEventBatch> all;
    for (;;) {
      ::smg::grpc::common::KvEventBatch message;
      const auto found = events.Next(message);
      EXPECT_TRUE(found.ok()) << found.status();
      if (!found.ok() || !*found) return all;
      all.push_back(std::move(message));
    }
  }
  static std::vector<int64_t> HashesOf(const ::smg::grpc::common::KvBlocksStored& stored) {
    std::vector<int64_t> hashes;
    for (const auto& block : stored.blocks()) hashes.push_back(block.block_hash());
    return hashes;
  }

  KvEventLog log_{absl::UnixEpoch()};
};

TEST_F(VllmKvEventsTest, AnEmptyCacheIsOnePartWithoutBlocks) {
  VllmKvEvents events = Begin({});
  const auto all = All(events);
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].sequence_number(), log_.last_number());
  EXPECT_EQ(all[0].timestamp(), 1.5);
  EXPECT_TRUE(all[0].has_dp_rank());
  EXPECT_EQ(all[0].snapshot().index(), 0u);
  EXPECT_EQ(all[0].snapshot().count(), 1u);
  EXPECT_EQ(all[0].snapshot().blocks(), 0u);
  ASSERT_EQ(all[0].events_size(), 1);
  EXPECT_TRUE(all[0].events(0).has_cleared());
}

TEST_F(VllmKvEventsTest, ParentsComeBeforeTheirChildren) {
  // 3 and 5 follow 1, 8 follows 3.
  VllmKvEvents events = Begin(
      {.names = {8, 5, 1, 3}, .parents = {3, 1, 0, 1}, .tokens = {80, 81, 50, 51, 10, 11, 30, 31}});
  const auto all = All(events);
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].snapshot().blocks(), 4u);
  ASSERT_EQ(all[0].events_size(), 4);
  EXPECT_TRUE(all[0].events(0).has_cleared());
  const auto& first = all[0].events(1).stored();
  EXPECT_FALSE(first.has_parent_block_hash());
  EXPECT_THAT(HashesOf(first), ElementsAre(1, 3));
  EXPECT_THAT(first.blocks(1).token_ids(), ElementsAre(30, 31));
  EXPECT_EQ(first.blocks(1).block_size(), kSize);
  EXPECT_EQ(all[0].events(2).stored().parent_block_hash(), 1);
  EXPECT_THAT(HashesOf(all[0].events(2).stored()), ElementsAre(5));
  EXPECT_EQ(all[0].events(3).stored().parent_block_hash(), 3);
  EXPECT_THAT(HashesOf(all[0].events(3).stored()), ElementsAre(8));
  EXPECT_EQ(all[0].events(3).event_id(), 0u);
}

TEST_F(VllmKvEventsTest, ALargeSnapshotComesInPartsWhoseNumbersEndWhereEventsBegin) {
  constexpr size_t kBlocks = 40000;
  engine::KvSnapshot snapshot;
  for (size_t i = 1; i <= kBlocks; ++i) {
    snapshot.names.push_back(i);
    snapshot.parents.push_back(i - 1);
  }
  snapshot.tokens.assign(kBlocks * kSize, 1 << 20);
  for (engine::BlockName name = 1; name <= 2; ++name) {
    log_.Add({{.salt = kMine, .names = {name}, .tokens = {1, 2}}}, kThen);
  }
  VllmKvEvents events = Begin(std::move(snapshot));
  const uint64_t last = log_.last_number();
  EXPECT_TRUE(log_.Resume(last - 1).ok());
  log_.Add({{.salt = kMine, .names = {kBlocks + 1}, .tokens = {1, 2}}}, kThen);
  const auto all = All(events);
  ASSERT_GT(all.size(), 3u);
  size_t num_blocks = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].sequence_number(), last + 2 - all.size() + i);
    EXPECT_LT(all[i].ByteSizeLong(), 2 * VllmKvEvents::kMaxPartBytes);
    EXPECT_EQ(all[i].has_snapshot(), i + 1 < all.size());
    for (const auto& event : all[i].events()) {
      EXPECT_EQ(event.has_cleared(), i == 0 && num_blocks == 0 && !event.has_stored());
      for (const auto& block : event.stored().blocks()) {
        EXPECT_EQ(block.block_hash(), static_cast<int64_t>(++num_blocks));
      }
    }
    if (!all[i].has_snapshot()) continue;
    EXPECT_EQ(all[i].snapshot().index(), i);
    EXPECT_EQ(all[i].snapshot().count(), all.size() - 1);
  }
  EXPECT_EQ(num_blocks, kBlocks + 1);
  EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(last - 1).status())) << "it may be a part's number";
}

TEST_F(VllmKvEventsTest, EventsOfOtherSaltsAreLeftOutAndTheirBatchesAreNot) {
  VllmKvEvents events = Begin({});
  ASSERT_THAT(All(events), SizeIs(1));
  using enum KvEvent::Kind;
  log_.Add({{.salt = kMine, .names = {1, 2}, .tokens = {10, 11, 20, 21}},
            {.salt = kOthers, .names = {3}, .tokens = {30, 31}},
            {.kind = kRemoved, .salt = kMine, .names = {2, 1}},
            {.kind = kRemoved, .salt = kOthers, .names = {3}}},
           kThen);
  log_.Add({{.salt = kOthers, .names = {4}, .tokens = {40, 41}}}, kThen);
  log_.Add({{.salt = kMine, .parent = 1, .names = {5}, .tokens = {50, 51}}}, kThen);
  const auto all = All(events);
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[2].sequence_number(), log_.last_number());
  EXPECT_EQ(all[1].sequence_number(), log_.last_number() - 1);
  ASSERT_EQ(all[0].events_size(), 2);
  EXPECT_EQ(all[0].events(0).event_id(), 1u);
  EXPECT_FALSE(all[0].events(0).stored().has_parent_block_hash());
  EXPECT_THAT(all[0].events(0).stored().blocks(1).token_ids(), ElementsAre(20, 21));
  EXPECT_EQ(all[0].events(1).event_id(), 3u);
  EXPECT_THAT(all[0].events(1).removed().block_hashes(), ElementsAre(2, 1));
  EXPECT_THAT(all[1].events(), IsEmpty());
  EXPECT_EQ(all[2].events(0).event_id(), 6u);
  EXPECT_EQ(all[2].events(0).stored().parent_block_hash(), 1);
}

TEST_F(VllmKvEventsTest, ASlowSubscriberIsToldSo) {
  VllmKvEvents events = Begin({});
  ASSERT_THAT(All(events), SizeIs(1));
  for (size_t bytes = 0; bytes <= KvEventLog::kMaxBytes; bytes += 400'000) {
    log_.Add({{.salt = kMine, .names = {1}, .tokens = std::vector<int32_t>(100'000)}}, kThen);
  }
  ::smg::grpc::common::KvEventBatch message;
  EXPECT_TRUE(absl::IsDataLoss(events.Next(message).status()));
}

}  // namespace
}  // namespace continuo::server
