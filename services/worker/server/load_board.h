// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/worker/engine/engine.h"

namespace continuo {

// When one watcher is told: at once, then after changes but not twice within min_interval, at
// least every max_interval, and at once after a change of state. A pure function of what it is
// given. Not thread-safe.
class WatchPace {
 public:
  // 0 ≤ min_interval ≤ max_interval.
  WatchPace(absl::Duration min_interval, absl::Duration max_interval)
      : min_interval_(min_interval), max_interval_(max_interval) {}

  // When to tell next, given the counts of changes and of state changes so far.
  absl::Time NextDue(uint64_t changes, uint64_t state_changes) const;
  void Told(absl::Time now, uint64_t changes, uint64_t state_changes);

 private:
  absl::Duration min_interval_, max_interval_;
  absl::Time told_at_ = absl::InfinitePast();
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
  // `read` fills in the load as it is now; called on the board's thread.
  explicit LoadBoard(std::function<v1::WatchLoadResponse()> read);
  // Closes the watchers that are left.
  ~LoadBoard();

  void Watch(std::shared_ptr<LoadWatcher> watcher, WatchPace pace);
  void Unwatch(const LoadWatcher* watcher);
  // The engine's load listener; counts a change only where something that matters differs.
  void Update(const EngineLoad& load);
  void StateChanged();
  // Ends all streams; new ones end at once.
  void Close();

 private:
  struct Entry {
    std::shared_ptr<LoadWatcher> watcher;
    WatchPace pace;
  };
  void Run();
  bool MustLook() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || news_; }

  const std::function<v1::WatchLoadResponse()> read_;
  absl::Mutex mutex_;
  std::vector<Entry> watchers_ ABSL_GUARDED_BY(mutex_);
  EngineLoad load_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0, state_changes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;  // since the thread looked
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace continuo
