// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/security/credentials.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/gateway/discovery/worker_address.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/routing/router.h"
#include "services/gateway/routing/slow_workers.h"
#include "services/gateway/workers/declared_models.h"
#include "services/gateway/workers/model_catalog.h"
#include "services/gateway/workers/worker_channel.h"
#include "services/gateway/workers/worker_connection.h"
#include "services/gateway/workers/worker_record.h"

namespace continuo::gateway {

// The parameters of a pool, with their defaults.
struct WorkerPoolOptions {
  WorkerConnectOptions connect;
  WorkerVerdictOptions verdict;
  // The least and the longest time between two reports of a worker. Both grow with the fleet, from
  // the first value to the second, by `…_per_worker` for each worker, since the cost of reports is
  // that of all workers together.
  absl::Duration min_report_interval = absl::Milliseconds(100);
  absl::Duration min_report_interval_at_most = absl::Milliseconds(500);
  absl::Duration min_report_interval_per_worker = absl::Microseconds(330);
  absl::Duration max_report_interval = absl::Milliseconds(500);
  absl::Duration max_report_interval_at_most = absl::Seconds(1);
  absl::Duration max_report_interval_per_worker = absl::Microseconds(500);
  // The delay between attempts to reach a worker; it doubles from min to max.
  absl::Duration min_reconnect = absl::Milliseconds(50);
  absl::Duration max_reconnect = absl::Seconds(1);
  // Reports that change nothing but counts reach the view together, at most this often.
  absl::Duration publish_interval = absl::Milliseconds(20);
  // Discovery waits so long for an address that was attempted and has not named its model: it may
  // be the only worker of a model.
  absl::Duration discovery_wait = absl::Seconds(30);
  // A worker that reports but is not listed is kept so long without a request of this gateway:
  // another gateway's subset may have it.
  absl::Duration unlisted_wait = absl::Seconds(30);
  DeclaredModels declared_models;
  // Called when a worker is lost: the addresses may have changed.
  std::function<void()> on_lost;
  // Called when it may have changed which workers take requests.
  std::function<void()> on_change;
};

// The set of workers. Keeps a connection to each address for as long as it is listed or reports,
// and writes the reports, with the verdict on each, to the LoadView. A report costs the same
// whatever the size of the fleet; what costs a look at each worker is done at most every
// publish_interval, and when a worker is lost. Thread-safe; one mutex for the workers, never held
// while calling out.
class WorkerPool {
 public:
  // Everything passed outlives the pool.
  WorkerPool(WorkerPoolOptions options, LoadView* view, Router* router, Timer* timer,
             const Clock* clock);
  // Ends all connections and waits for them.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Replaces the listed addresses. An address in two pools belongs to the first. `complete` tells
  // that each resolver has answered once.
  void SetAddresses(const std::vector<WorkerAddress>& addresses, bool complete = true);

  // Null where the address is not known, or not any more.
  std::shared_ptr<WorkerChannel> Find(const std::string& address) const;

  // The models that are declared or were ever described, sorted by name, with the description that
  // a worker gave and the fingerprints and number of the workers that take requests now.
  std::vector<v1::Model> Models() const;

 private:
  // A worker and its connection.
  struct Worker {
    std::string address;
    WorkerRecord record;
    std::shared_ptr<WorkerChannel> channel;
    std::shared_ptr<WorkerConnection> connection;  // Null between two attempts.
    uint64_t connection_id = 0;                    // Of the last one.
    bool is_refusing = false;  // It did not take this gateway for one of the fleet.
  };
  // A worker whose streams have to migrate; see Router::WorkerLost.
  struct LostWorker {
    std::string address;
    std::string alive_incarnation;
  };
  // News for others, told after the mutex is released.
  struct News {
    std::vector<LostWorker> lost;
    bool refresh_addresses = false;  // on_lost
    bool changed = false;            // on_change, and the router
  };
  // Shared with timers, which may outlive the pool.
  struct Alive;

  void Connect(const std::string& address);
  void OnReport(uint64_t connection_id, const v1::WatchLoadResponse& report);
  void OnHealth(uint64_t connection_id, bool not_serving);
  void OnConnectionEnd(uint64_t connection_id, const grpc::Status& status);
  // `model` is the name in the report that was the occasion.
  void OnModels(const std::string& address, const std::string& incarnation,
                const std::string& model, const grpc::Status& status,
                const v1::ListModelsResponse& response);
  // A connection or a query has ended; the last access of its callbacks to the pool.
  void OnCallDone();
  // Finds silent and hung workers; runs periodically.
  void CheckWorkers();
  // Calls `method` later, unless the pool is gone by then.
  void After(absl::Duration delay, std::function<void()> method);
  void Tell(const News& news);

  // Null where the connection has ended or was dropped.
  Worker* FindWorker(uint64_t connection_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a worker that is not known yet, and removes one.
  Worker& AddWorker(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveWorker(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the connections of workers that are neither listed nor report, or have not been listed
  // for unlisted_wait and have no request, to `dropped` and forgets the workers. Returns whether
  // there was one.
  bool DropUnlisted(std::vector<std::shared_ptr<WorkerConnection>>* dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The value of LoadSnapshot::discovery_complete.
  bool IsDiscoveryComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // See silence.h.
  absl::Duration SilenceLimit(absl::Duration now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the view. Returns whether others are to be told, also of changes that waited for it.
  bool Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the view now where the last time is publish_interval ago, or sets `*delay` to the time
  // after which PublishDelayed has to be called, or leaves it to a call that is due already.
  // `changed` waits with it for others to be told.
  bool PublishSoon(bool changed, std::optional<absl::Duration>* delay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishDelayed();

  const WorkerPoolOptions options_;
  LoadView* const view_;
  Router* const router_;
  Timer* const timer_;
  const Clock* const clock_;
  const std::shared_ptr<Alive> alive_;

  mutable absl::Mutex mutex_;
  bool addresses_complete_ ABSL_GUARDED_BY(mutex_) = false;  // Each resolver has answered.
  bool all_discovered_ ABSL_GUARDED_BY(mutex_) = false;      // And none was added since.
  bool discovery_complete_ ABSL_GUARDED_BY(mutex_) = false;  // As published last.
  absl::Duration check_time_ ABSL_GUARDED_BY(mutex_);        // Of the last CheckWorkers.
  absl::Duration awake_time_
      ABSL_GUARDED_BY(mutex_);  // This process has run since, without a pause.
  SlowWorkers slow_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  // The workers in their order, which is that of the view. Empty after one was added or removed.
  std::vector<const Worker*> order_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Worker*> connections_ ABSL_GUARDED_BY(mutex_);  // Open ones, by id.
  absl::Duration publish_time_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  absl::Duration publish_cost_ ABSL_GUARDED_BY(mutex_);  // Time that the last one took.
  bool publish_is_due_ ABSL_GUARDED_BY(mutex_) = false;  // PublishDelayed will be called.
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;  // Others are to be told when the view is written.
  ModelCatalog catalog_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_connection_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;  // Connections and queries that have not ended.

  // Apart from the workers, so that calls do not wait for the view to be written.
  mutable absl::Mutex channels_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerChannel>> channels_
      ABSL_GUARDED_BY(channels_mutex_);  // By address.
};

}  // namespace continuo::gateway
