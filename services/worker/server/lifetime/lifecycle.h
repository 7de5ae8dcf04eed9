// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/worker/server/lifetime/open_calls.h"

namespace continuo::server {

// The state of a worker (loading, serving, draining) and its health, which means "steps are being
// made", not "the port is open" (exactness: hung-steps). Thread-safe; keeps no thread and reads no
// clock: Tick() is called every few tens of milliseconds.
class Lifecycle {
 public:
  // Calls that are open at the end of the grace are ended evenly over this time, so that their
  // migrations do not stampede; calls that are open after it are ended at once.
  static constexpr absl::Duration kSpread = absl::Seconds(1);

  struct Hooks {
    std::function<void()> begin_drain;             // the engine rejects new requests
    std::function<bool()> hung;                    // true while a step of the engine hangs
    std::function<int()> running;                  // number of sequences, as in WatchLoad
    std::function<void(bool serving)> set_health;  // sets the health of every name
    std::function<void()> state_changed;           // tells the watchers of the load
  };
  // `calls` outlives the object. Hooks may call const methods of this object only; begin_drain,
  // hung and running are called from StartServing() on.
  Lifecycle(OpenCalls* calls, Hooks hooks);

  // Loading is over.
  void StartServing();
  // From here on the health is NOT_SERVING and new requests are rejected; streams that still run
  // `grace` after `now` are migrated. A second call only changes the grace. Returns the number of
  // running sequences. `now`, here and below, is of a clock that never goes back.
  int BeginDrain(absl::Duration now, absl::Duration grace);
  void Tick(absl::Duration now);

  v1::WorkerState state() const;
  // OK while the worker serves, otherwise the reason why new requests are rejected: loading or
  // draining.
  absl::Status CheckServing() const;
  bool draining() const { return state() == v1::WORKER_STATE_DRAINING; }
  // True if the worker drains and no call is open.
  bool drained() const;
  bool healthy() const;
  // True if the last Tick found the engine hung.
  bool hung() const;

 private:
  // Returns whether the health has changed.
  bool UpdateHealth(bool hung);

  // Returns the calls of a draining worker that are to be ended now.
  std::vector<std::shared_ptr<RequestControl>> TakeEnding(absl::Duration now);

  OpenCalls* const calls_;
  const Hooks hooks_;

  // Held during a change of state, so that there is one at a time.
  absl::Mutex change_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  // Keeps health changes in order.
  absl::Mutex health_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  bool reported_healthy_ ABSL_GUARDED_BY(health_mutex_) = false;

  mutable absl::Mutex mutex_;
  v1::WorkerState state_ ABSL_GUARDED_BY(mutex_) = v1::WORKER_STATE_LOADING;
  bool hung_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration drain_end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  // Set when the grace has ended: the calls that were open then, and how many of them were ended so
  // that their streams migrate.
  bool migrating_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<RequestControl>> to_migrate_ ABSL_GUARDED_BY(mutex_);
  size_t num_migrated_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The status with which a draining worker ends its requests and rejects new ones.
absl::Status DrainingError();

}  // namespace continuo::server
