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

// True if routing cares for the difference: the worker's part of a full one (cache, batch, prompts
// ahead) has changed by about a thirtieth, or it has begun or ceased to have a queue.
bool ChangeMatters(const engine::EngineLoad& before, const engine::EngineLoad& now);

// Decides when one watcher gets a report: at once, then after changes but not twice within
// min_interval, at least every max_interval, and at once after a change of state. A pure function
// of its arguments. Not thread-safe.
class WatchPace {
 public:
  // 0 ≤ min_interval ≤ max_interval.
  WatchPace(absl::Duration min_interval, absl::Duration max_interval)
      : min_interval_(min_interval), max_interval_(max_interval) {}

  // The time of the next report, given the numbers of changes and of state changes so far. Times
  // here are of a clock that never goes back (Clock::Elapsed).
  absl::Duration NextDue(uint64_t changes, uint64_t state_changes) const;
  void Reported(absl::Duration now, uint64_t changes, uint64_t state_changes);

 private:
  absl::Duration min_interval_, max_interval_;
  absl::Duration last_report_time_ = -absl::InfiniteDuration();
  uint64_t changes_ = 0, state_changes_ = 0;
};

// One stream of WatchLoad.
class LoadWatcher {
 public:
  virtual ~LoadWatcher() = default;
  // Must not block; replaces a report that was not sent yet.
  virtual void Send(const v1::WatchLoadResponse& response) = 0;
  // Called when the worker ends.
  virtual void Close() = 0;
};

// Reports the load to every watcher. Has a thread of its own. Thread-safe.
class LoadBoard {
 public:
  // `read` returns the load as it is now; it is called on the board's thread and by Read. `clock`
  // outlives the board.
  LoadBoard(std::function<v1::WatchLoadResponse()> read, const Clock* clock);
  ~LoadBoard() { Close(); }

  // The load as it is now.
  v1::WatchLoadResponse Read() const { return read_(); }
  void Watch(std::shared_ptr<LoadWatcher> watcher, WatchPace pace);
  void Unwatch(const LoadWatcher* watcher);
  // The engine's load listener. Counts a change only if it matters; others wait for max_interval,
  // or until they add up.
  void Update(const engine::EngineLoad& load);
  void StateChanged();
  // Ends all streams; new ones end at once. Its thread does not call `read` afterwards. May be
  // called again, by one thread at a time.
  void Close();

 private:
  struct Entry {
    std::shared_ptr<LoadWatcher> watcher;
    WatchPace pace;
  };
  void Run();

  const std::function<v1::WatchLoadResponse()> read_;
  const Clock* const clock_;
  // From the standard library, because Abseil's waits with a timeout follow the wall clock when it
  // is set.
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Entry> watchers_;
  engine::EngineLoad load_;  // when a change was last counted
  uint64_t changes_ = 0, state_changes_ = 0;
  bool news_ = false;  // something has changed since the thread looked
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace continuo::server
