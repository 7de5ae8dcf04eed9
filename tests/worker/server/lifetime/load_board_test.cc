// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/load_board.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "tests/testing/manual_clock.h"

namespace continuo::server {
namespace {

constexpr absl::Duration kMin = absl::Milliseconds(100), kMax = absl::Seconds(1);
constexpr absl::Duration kStart = absl::Seconds(1000);

TEST(WatchPaceTest, TellsAtOnceThenEveryMaxInterval) {
  WatchPace pace(kMin, kMax);
  EXPECT_EQ(pace.NextDue(0, 0), -absl::InfiniteDuration());
  pace.Reported(kStart, 0, 0);
  EXPECT_EQ(pace.NextDue(0, 0), kStart + kMax);
}

TEST(WatchPaceTest, AChangeWaitsForTheMinInterval) {
  WatchPace pace(kMin, kMax);
  pace.Reported(kStart, 0, 0);
  EXPECT_EQ(pace.NextDue(5, 0), kStart + kMin);
}

TEST(WatchPaceTest, AChangeOfStateDoesNotWait) {
  WatchPace pace(kMin, kMax);
  pace.Reported(kStart, 0, 0);
  EXPECT_EQ(pace.NextDue(0, 1), -absl::InfiniteDuration());
  pace.Reported(kStart + absl::Milliseconds(1), 0, 1);
  EXPECT_EQ(pace.NextDue(0, 1), kStart + absl::Milliseconds(1) + kMax);
}

TEST(ChangeMattersTest, TellsWhatRoutingCaresFor) {
  const engine::EngineLoad before = {.running = 20,
                                     .waiting = 2,
                                     .pending_prompt_tokens = 1000,
                                     .used_blocks = 500,
                                     .total_blocks = 1000,
                                     .max_running = 64};
  const auto matters = [&](auto change) {
    engine::EngineLoad now = before;
    change(now);
    return ChangeMatters(before, now);
  };
  EXPECT_FALSE(matters([](auto&) {}));
  // A step of decoding.
  EXPECT_FALSE(
      matters([](auto& now) { now.used_blocks += 5, now.steps += 1, now.cached_blocks = 9; }));
  EXPECT_TRUE(matters([](auto& now) { now.used_blocks -= 16; }));
  EXPECT_FALSE(matters([](auto& now) { now.running += 1; }));
  EXPECT_TRUE(matters([](auto& now) { now.running += 2; }));
  EXPECT_FALSE(matters([](auto& now) { now.pending_prompt_tokens -= 127; }));
  EXPECT_TRUE(matters([](auto& now) { now.pending_prompt_tokens -= 128; }));
  // It may begin a request at once from now on.
  EXPECT_TRUE(matters([](auto& now) { now.waiting = 0, now.pending_prompt_tokens = 0; }));
  engine::EngineLoad idle = before;
  idle.waiting = 0;
  idle.pending_prompt_tokens = 0;
  engine::EngineLoad prompt = idle;
  prompt.pending_prompt_tokens = 1;
  EXPECT_TRUE(ChangeMatters(idle, prompt));
}

class FakeWatcher : public LoadWatcher {
 public:
  void Send(const v1::WatchLoadResponse& response) override {
    absl::MutexLock lock(&mutex_);
    states_.push_back(response.state());
  }
  void Close() override { closed_.Notify(); }

  void WaitFor(v1::WorkerState state) {
    absl::MutexLock lock(&mutex_);
    const auto seen = [&] { return !states_.empty() && states_.back() == state; };
    mutex_.Await(absl::Condition(&seen));
  }
  bool closed() const { return closed_.HasBeenNotified(); }

 private:
  absl::Mutex mutex_;
  std::vector<v1::WorkerState> states_;
  absl::Notification closed_;
};

TEST(LoadBoardTest, AChangeOfStateReachesAWatcherWithLongIntervals) {
  std::atomic<v1::WorkerState> state = v1::WORKER_STATE_SERVING;
  const SystemClock clock;
  LoadBoard board(
      [&] {
        v1::WatchLoadResponse response;
        response.set_state(state);
        return response;
      },
      &clock);
  auto watcher = std::make_shared<FakeWatcher>();
  board.Watch(watcher, WatchPace(absl::Hours(1), absl::Hours(1)));
  watcher->WaitFor(v1::WORKER_STATE_SERVING);
  state = v1::WORKER_STATE_DRAINING;
  board.StateChanged();
  watcher->WaitFor(v1::WORKER_STATE_DRAINING);
}

TEST(LoadBoardTest, AChangeOfTheLoadReachesAWatcher) {
  std::atomic<int> running = 0;
  const SystemClock clock;
  LoadBoard board(
      [&] {
        v1::WatchLoadResponse response;
        response.set_state(running == 0 ? v1::WORKER_STATE_SERVING : v1::WORKER_STATE_DRAINING);
        return response;
      },
      &clock);
  auto watcher = std::make_shared<FakeWatcher>();
  board.Watch(watcher, WatchPace(absl::ZeroDuration(), absl::Hours(1)));
  watcher->WaitFor(v1::WORKER_STATE_SERVING);
  running = 1;
  engine::EngineLoad load;
  load.running = 1;
  board.Update(load);
  watcher->WaitFor(v1::WORKER_STATE_DRAINING);
}

// The wall clock is set back while time goes on.
class SetBackClock : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch(); }
  absl::Duration Elapsed() const override { return elapsed_.Elapsed(); }
  ManualClock elapsed_;
};

TEST(LoadBoardTest, IntervalsGoOnThoughTheWallClockIsSetBack) {
  SetBackClock clock;
  std::atomic<v1::WorkerState> state = v1::WORKER_STATE_SERVING;
  LoadBoard board(
      [&] {
        v1::WatchLoadResponse response;
        response.set_state(state);
        return response;
      },
      &clock);
  auto watcher = std::make_shared<FakeWatcher>();
  board.Watch(watcher, WatchPace(absl::Hours(1), absl::Hours(1)));
  watcher->WaitFor(v1::WORKER_STATE_SERVING);
  state = v1::WORKER_STATE_DRAINING;
  clock.elapsed_.Advance(absl::Hours(1));
  engine::EngineLoad load;
  load.running = 1;
  board.Update(load);
  watcher->WaitFor(v1::WORKER_STATE_DRAINING);
}

TEST(LoadBoardTest, CloseEndsWatchersAndLaterOnes) {
  const SystemClock clock;
  LoadBoard board([] { return v1::WatchLoadResponse(); }, &clock);
  auto first = std::make_shared<FakeWatcher>(), second = std::make_shared<FakeWatcher>();
  board.Watch(first, WatchPace(kMin, kMax));
  board.Close();
  EXPECT_TRUE(first->closed());
  board.Watch(second, WatchPace(kMin, kMax));
  EXPECT_TRUE(second->closed());
}

// Opens a gate when it is closed itself.
class GateKeeper : public LoadWatcher {
 public:
  explicit GateKeeper(absl::Notification* gate) : gate_(gate) {}
  void Send(const v1::WatchLoadResponse&) override {}
  void Close() override { gate_->Notify(); }

 private:
  absl::Notification* const gate_;
};

TEST(LoadBoardTest, NothingIsReadAfterClose) {
  const SystemClock clock;
  absl::Notification reading, gate;
  std::atomic<bool> done = false;
  LoadBoard board(
      [&] {
        reading.Notify();
        gate.WaitForNotification();
        done = true;
        return v1::WatchLoadResponse();
      },
      &clock);
  board.Watch(std::make_shared<GateKeeper>(&gate), WatchPace(kMin, kMax));
  reading.WaitForNotification();
  board.Close();
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace continuo::server
