// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/worker/server/lifetime/open_calls.h"

namespace continuo::server {

// What a worker goes through: loading, serving, draining; and whether it is healthy, which is
// "steps are being made", not "the port is open" (exactness: hung-steps). Thread-safe; keeps no
// thread and reads no clock: Tick() is called every few tens of milliseconds.
class Lifecycle {
 public:
  // What is still open at the end of the grace is ended evenly over this time, so that the moves
  // do not stampede; what is open after it, at once.
  static constexpr absl::Duration kSpread = absl::Seconds(1);

  struct Hooks {
    std::function<void()> begin_drain;             // the engine takes nothing new
    std::function<bool()> hung;                    // of the engine
    std::function<int()> running;                  // sequences, as in WatchLoad
    std::function<void(bool serving)> set_health;  // of every name
    std::function<void()> state_changed;           // for those who watch the load
  };
  // `calls` outlives the object. Hooks may call what is const here, and no more; begin_drain, hung
  // and running are called only from StartServing() on.
  Lifecycle(OpenCalls* calls, Hooks hooks);

  // Loading is over.
  void StartServing();
  // NOT_SERVING and nothing new from here on; what still runs `grace` after `now` is handed over.
  // Called again, it only changes the grace. Returns how many sequences run. `now`, here and below,
  // is of a clock that never goes back.
  int BeginDrain(absl::Duration now, absl::Duration grace);
  void Tick(absl::Duration now);

  v1::WorkerState state() const;
  bool draining() const { return state() == v1::WORKER_STATE_DRAINING; }
  // Draining, and no call is open.
  bool drained() const;
  bool healthy() const;
  // The last Tick found the engine hung.
  bool hung() const;

 private:
  void UpdateHealth(bool hung);

  // Of a draining worker: what is to be ended now.
  std::vector<std::shared_ptr<RequestControl>> TakeEnding(absl::Duration now);

  OpenCalls* const calls_;
  const Hooks hooks_;

  // One change of state at a time.
  absl::Mutex change_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  // Keeps health changes in order.
  absl::Mutex health_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  bool told_healthy_ ABSL_GUARDED_BY(health_mutex_) = false;

  mutable absl::Mutex mutex_;
  v1::WorkerState state_ ABSL_GUARDED_BY(mutex_) = v1::WORKER_STATE_LOADING;
  bool hung_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration drain_end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  // What is to be handed over, taken when the grace ends, and how many were.
  bool handing_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<RequestControl>> leaving_ ABSL_GUARDED_BY(mutex_);
  size_t num_left_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What a request of a draining worker ends with, and what a new one is refused with.
absl::Status DrainingError();

}  // namespace continuo::server
