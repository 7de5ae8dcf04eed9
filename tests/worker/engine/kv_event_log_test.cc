// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv_event_log.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Time kStart = absl::FromUnixMicros(5'000'000);
constexpr size_t kAll = size_t{1} << 40;

// An event of about so many bytes, that the block `name` is stored.
std::vector<KvEvent> Stored(BlockName name, size_t bytes = 100) {
  KvEvent event = {.names = {name}};
  event.tokens.resize(bytes / sizeof(int32_t));
  return {std::move(event)};
}

std::vector<BlockName> NamesOf(const std::vector<std::shared_ptr<const KvEventBatch>>& batches) {
  std::vector<BlockName> names;
  for (const auto& batch : batches) {
    for (const KvEvent& event : batch->events) {
      names.insert(names.end(), event.names.begin(), event.names.end());
    }
  }
  return names;
}

class KvEventLogTest : public ::testing::Test {
 protected:
  // Does what the engine thread does for a watch that begins.
  std::unique_ptr<KvEventLog::Watch> Begin() {
    auto box = std::make_shared<KvEventLog::SnapshotBox>();
    auto watch = log_.Begin(box);
    EXPECT_TRUE(watch.ok()) << watch.status();
    EXPECT_FALSE((*watch)->TakeSnapshot().has_value()) << "it is not there yet";
    EXPECT_THAT(*(*watch)->Read(kAll), IsEmpty());
    if (!log_.recording()) log_.StartRecording();
    box->Put({.number = log_.last_number()});
    EXPECT_TRUE((*watch)->TakeSnapshot().has_value());
    EXPECT_FALSE((*watch)->TakeSnapshot().has_value()) << "it comes once";
    return *std::move(watch);
  }
  bool Add(BlockName name, size_t bytes = 100) { return log_.Add(Stored(name, bytes), kStart); }
  // Fills the log with more than it keeps.
  bool Overflow() {
    bool goes_on = true;
    for (size_t bytes = 0; goes_on && bytes <= KvEventLog::kMaxBytes; bytes += 200 << 10) {
      goes_on = Add(99, 200 << 10);
    }
    return goes_on;
  }

  KvEventLog log_{kStart};
};

TEST_F(KvEventLogTest, AWatchReadsEachBatchOnce) {
  const auto early = Begin();
  Add(1);
  const auto late = Begin();
  Add(2);
  const auto read = *early->Read(kAll);
  EXPECT_THAT(NamesOf(read), ElementsAre(1, 2));
  EXPECT_GT(read[0]->number, 5'000'000u) << "no earlier process can have told it";
  EXPECT_EQ(read[1]->number, read[0]->number + 1);
  EXPECT_EQ(read[0]->first_event, 1u);
  EXPECT_EQ(read[1]->first_event, 2u);
  EXPECT_THAT(*early->Read(kAll), IsEmpty());
  EXPECT_THAT(NamesOf(*late->Read(kAll)), ElementsAre(2));
}

TEST_F(KvEventLogTest, NumbersLeaveRoomForTheNumbersOfASnapshot) {
  KvEventLog log{absl::UnixEpoch()};
  EXPECT_GE(log.last_number() + 1, KvEventLog::kMinNumber);
}

TEST_F(KvEventLogTest, AWatchReadsAsMuchAsItLikes) {
  const auto watch = Begin();
  for (BlockName name = 1; name <= 3; ++name) Add(name, 1000);
  EXPECT_THAT(NamesOf(*watch->Read(1)), ElementsAre(1));
  EXPECT_THAT(NamesOf(*watch->Read(1500)), ElementsAre(2, 3));
}

TEST_F(KvEventLogTest, ALargeStepIsSeveralBatches) {
  const auto watch = Begin();
  std::vector<KvEvent> events;
  for (BlockName name = 1; name <= 5; ++name) events.push_back(Stored(name, 100 << 10)[0]);
  log_.Add(std::move(events), kStart);
  const auto read = *watch->Read(kAll);
  ASSERT_THAT(read, SizeIs(3));
  EXPECT_THAT(NamesOf(read), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(read[1]->first_event, 3u);
}

TEST_F(KvEventLogTest, AWatchGoesOnWhereAnotherEnded) {
  auto watch = Begin();
  const uint64_t begun = log_.last_number();
  Add(1);
  const uint64_t last = (*watch->Read(kAll)).back()->number;
  watch.reset();
  Add(2);
  auto resumed = log_.Resume(last);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_THAT(NamesOf(*(*resumed)->Read(kAll)), ElementsAre(1, 2)) << "from this number on";
  resumed = log_.Resume(begun);
  ASSERT_TRUE(resumed.ok()) << "that of the snapshot";
  EXPECT_THAT(NamesOf(*(*resumed)->Read(kAll)), ElementsAre(1, 2));
  resumed = log_.Resume(last + 2);
  ASSERT_TRUE(resumed.ok()) << "the next one";
  EXPECT_THAT(*(*resumed)->Read(kAll), IsEmpty());
  for (const uint64_t other : {begun - 1, last + 3, uint64_t{1}, ~uint64_t{0}}) {
    EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(other).status())) << other;
  }
}

TEST_F(KvEventLogTest, NobodyGoesOnWhereNothingWasRecorded) {
  EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(log_.last_number()).status()));
  EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(log_.last_number() + 1).status()));
}

TEST_F(KvEventLogTest, NobodyGoesOnFromAPartOfASnapshot) {
  const auto early = Begin();
  for (BlockName name = 1; name <= 3; ++name) Add(name);
  const uint64_t part = log_.last_number() - 1;
  EXPECT_TRUE(log_.Resume(part).ok());
  const auto late = Begin();
  late->TellInParts();
  EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(part).status()));
  EXPECT_TRUE(log_.Resume(part + 1).ok()) << "the last part has all";
  Add(4);
  EXPECT_TRUE(log_.Resume(part + 1).ok());
  EXPECT_THAT(NamesOf(*early->Read(kAll)), ElementsAre(1, 2, 3, 4));
}

TEST_F(KvEventLogTest, ASlowWatchIsToldThatItHasLostEvents) {
  const auto slow = Begin();
  const uint64_t begun = log_.last_number();
  EXPECT_TRUE(Overflow());
  const auto read = slow->Read(kAll);
  EXPECT_TRUE(absl::IsDataLoss(read.status())) << read.status();
  EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(begun).status()));
  EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(begun + 1).status()));
  EXPECT_TRUE(log_.Resume(log_.last_number()).ok());
  const auto anew = Begin();
  Add(7);
  EXPECT_THAT(NamesOf(*anew->Read(kAll)), ElementsAre(7));
}

TEST_F(KvEventLogTest, RecordingEndsWhenTheLogIsFullAndNobodyWatches) {
  auto watch = Begin();
  EXPECT_TRUE(Overflow());
  watch.reset();
  Add(1);
  const uint64_t last = log_.last_number();
  EXPECT_FALSE(Overflow());
  EXPECT_FALSE(log_.recording());
  const uint64_t end = log_.last_number();
  EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(last).status()));
  // What happens now is told to nobody, so that none of these numbers is good any longer.
  Begin();
  for (const uint64_t number : {last, end, end + 1}) {
    EXPECT_TRUE(absl::IsOutOfRange(log_.Resume(number).status())) << number;
  }
  EXPECT_TRUE(log_.Resume(log_.last_number()).ok());
}

TEST_F(KvEventLogTest, TheNumberOfWatchesIsBound) {
  std::vector<std::unique_ptr<KvEventLog::Watch>> watches;
  for (int i = 0; i < KvEventLog::kMaxWatches; ++i) watches.push_back(Begin());
  const auto box = std::make_shared<KvEventLog::SnapshotBox>();
  EXPECT_TRUE(absl::IsResourceExhausted(log_.Begin(box).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(log_.Resume(log_.last_number()).status()));
  watches.pop_back();
  EXPECT_TRUE(log_.Begin(box).ok());
}

// ThreadSanitizer checks this, too.
TEST_F(KvEventLogTest, WatchesReadWhileEventsAreAdded) {
  constexpr BlockName kEvents = 2000;
  std::vector<std::unique_ptr<KvEventLog::Watch>> watches;
  for (int i = 0; i < 3; ++i) watches.push_back(Begin());
  std::vector<std::thread> readers;
  std::atomic<int> num_right = 0;
  for (auto& watch : watches) {
    readers.emplace_back([&num_right, watch = watch.get()] {
      BlockName last = 0;
      while (last < kEvents) {
        for (const BlockName name : NamesOf(*watch->Read(1000))) {
          if (name != last + 1) return;
          last = name;
        }
      }
      ++num_right;
    });
  }
  for (BlockName name = 1; name <= kEvents; ++name) Add(name);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(num_right, 3);
}

}  // namespace
}  // namespace continuo::engine
