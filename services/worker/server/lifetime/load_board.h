// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/base/clock.h"
#include "services/worker/engine/engine.h"

namespace continuo::server {

// When one watcher is told: at once, then after changes but not twice within min_interval, at
// least every max_interval, and at once after a change of state. A pure function of what it is
// given. Not thread-safe.
class WatchPace {
 public:
  // 0 ≤ min_interval ≤ max_interval.
  WatchPace(absl::Duration min_interval, absl::Duration max_interval)
      : min_interval_(min_interval), max_interval_(max_interval) {}

  // When to tell next, given the counts of changes and of state changes so far. Times here are of
  // a clock that never goes back (Clock::Elapsed).
  absl::Duration NextDue(uint64_t changes, uint64_t state_changes) const;
  void Told(absl::Duration now, uint64_t changes, uint64_t state_changes);

 private:
  absl::Duration min_interval_, max_interval_;
  absl::Duration told_at_ = -absl::InfiniteDuration();
  uint64_t changes_ = 0, state_changes_ = 0;
};

// One stream of WatchLoad.
class LoadWatcher {
 public:
  virtual ~LoadWatcher() = default;
  // Must not block; replaces what was not sent yet.
  virtual void Send(const v1::WatchLoadResponse& response) = 0;
  // The worker ends.
  virtual void Close() = 0;
};

// Tells every watcher of the load. Has a thread of its own. Thread-safe.
class LoadBoard {
 public:
  // `read` fills in the load as it is now; called on the board's thread. `clock` outlives the
  // board.
  LoadBoard(std::function<v1::WatchLoadResponse()> read, const Clock* clock);
  ~LoadBoard() { Close(); }

  void Watch(std::shared_ptr<LoadWatcher> watcher, WatchPace pace);
  void Unwatch(const LoadWatcher* watcher);
  // The engine's load listener; counts a change only where something that matters differs.
  void Update(const engine::EngineLoad& load);
  void StateChanged();
  // Ends all streams; new ones end at once. Nothing is read afterwards. May be called again, by one
  // thread at a time.
  void Close();

 private:
  struct Entry {
    std::shared_ptr<LoadWatcher> watcher;
    WatchPace pace;
  };
  void Run();

  const std::function<v1::WatchLoadResponse()> read_;
  const Clock* const clock_;
  // Not absl's: waits of these do not follow the wall clock when it is set.
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Entry> watchers_;
  engine::EngineLoad load_;
  uint64_t changes_ = 0, state_changes_ = 0;
  bool news_ = false;  // since the thread looked
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace continuo::server
