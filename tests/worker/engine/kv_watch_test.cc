// SPDX-License-Identifier: Apache-2.0
// Those who watch an engine's prefix cache.
#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "services/worker/engine/engine.h"
#include "tests/testing/fake_executor.h"
#include "tests/testing/manual_clock.h"
#include "tests/worker/engine/kv_event_reader.h"

namespace continuo::engine {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kBlock = 4, kBlocks = 16, kTokens = 50;
constexpr CacheSalt kPlain = {0, 0}, kSalted = {5, 6};
constexpr size_t kEverything = size_t{1} << 40;

class KvWatchTest : public ::testing::Test {
 protected:
  KvWatchTest() {
    executor_ = std::make_unique<FakeExecutor>(
        FakeExecutorOptions{.num_blocks = kBlocks, .block_size = kBlock, .vocab_size = kTokens});
    EngineOptions options;
    options.num_blocks = kBlocks;
    options.block_size = kBlock;
    options.vocab_size = kTokens;
    options.max_batch_tokens = 32;
    options.max_running = 8;
    engine_ = std::make_unique<Engine>(options, executor_.get(), &clock_, &metrics_);
    thread_ = std::thread([this] { EXPECT_TRUE(engine_->Run().ok()); });
  }
  void TearDown() override {
    engine_->Stop();
    thread_.join();
  }

  // Returns how many tokens of the prompt were cached.
  int Generate(std::vector<int32_t> prompt, const CacheSalt& salt = kPlain) {
    Request request;
    request.id = ++last_id_;
    request.prompt = std::move(prompt);
    request.max_tokens = 2;
    request.cache_salt = salt;
    request.sampling.seed = last_id_;
    absl::Notification done;
    int cached = 0;
    const absl::Status status = engine_->Submit(std::move(request), [&](RequestEvent event) {
      if (!event.ended) return;
      EXPECT_TRUE(event.ended->ok()) << *event.ended;
      cached = event.cached_prompt_tokens;
      done.Notify();
    });
    EXPECT_TRUE(status.ok()) << status;
    done.WaitForNotification();
    return cached;
  }
  std::unique_ptr<KvEventLog::Watch> Watch(const CacheSalt& salt = kPlain) {
    auto watch = engine_->WatchKvEvents(salt);
    EXPECT_TRUE(watch.ok()) << watch.status();
    return *std::move(watch);
  }
  static KvSnapshot SnapshotOf(KvEventLog::Watch& watch) {
    for (;;) {
      if (auto snapshot = watch.TakeSnapshot(); snapshot.has_value()) return *std::move(snapshot);
      std::this_thread::yield();
    }
  }
  // Reads what has happened: a snapshot is made once the engine has ended its step.
  void ReadAll(KvEventLog::Watch& watch, KvEventReader& reader) {
    const auto behind = Watch();
    SnapshotOf(*behind);
    const auto read = watch.Read(kEverything);
    ASSERT_TRUE(read.ok()) << read.status();
    for (const auto& batch : *read) reader.Read(batch->events);
  }
  static std::vector<int32_t> Prompt(int blocks, int32_t token) {
    return std::vector<int32_t>(static_cast<size_t>(blocks * kBlock + 1), token);
  }

  ManualClock clock_;
  EngineMetrics metrics_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::thread thread_;
  RequestId last_id_ = 0;
};

TEST_F(KvWatchTest, NothingIsRecordedUntilSomebodyWatches) {
  Generate(Prompt(2, 1));
  EXPECT_FALSE(engine_->kv_event_log().recording());
}

TEST_F(KvWatchTest, ALateWatchBeginsWithWhatIsCached) {
  Generate(Prompt(2, 1));
  Generate(Prompt(1, 2), kSalted);
  const auto watch = Watch();
  const KvSnapshot snapshot = SnapshotOf(*watch);
  EXPECT_THAT(snapshot.names, SizeIs(2));
  EXPECT_EQ(snapshot.block_size, kBlock);
  KvEventReader reader(kBlock);
  reader.Begin(snapshot, kPlain);
  EXPECT_EQ(reader.Find(Prompt(2, 1), kPlain), 2);
  const auto salted = Watch(kSalted);
  EXPECT_THAT(SnapshotOf(*salted).names, SizeIs(1));
}

TEST_F(KvWatchTest, EventsTellWhatPromptsFind) {
  std::mt19937 random(3);
  const auto watch = Watch();
  KvEventReader reader(kBlock);
  reader.Begin(SnapshotOf(*watch), kPlain);
  int num_hits = 0;
  for (int i = 0; i < 150; ++i) {
    const CacheSalt& salt = random() % 4 == 0 ? kSalted : kPlain;
    std::vector<int32_t> prompt;
    for (auto n = random() % 4 + 1; n > 0; --n) {
      prompt.insert(prompt.end(), kBlock, static_cast<int32_t>(random() % 3));
    }
    prompt.push_back(9);
    ReadAll(*watch, reader);
    const int found = reader.Find(prompt, salt);
    EXPECT_EQ(Generate(prompt, salt), found * kBlock);
    num_hits += found > 0;
  }
  EXPECT_GT(num_hits, 30);
}

TEST_F(KvWatchTest, AWatchThatIsGoneLeavesNoTrace) {
  Watch();  // its snapshot is made for nobody
  Generate(Prompt(2, 1));
  const auto watch = Watch();
  EXPECT_THAT(SnapshotOf(*watch).names, SizeIs(2));
  EXPECT_THAT(*watch->Read(kEverything), IsEmpty());
}

}  // namespace
}  // namespace continuo::engine
