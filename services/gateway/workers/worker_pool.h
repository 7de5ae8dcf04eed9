// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/base/clock.h"
#include "services/gateway/relay/timer.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/routing/router.h"
#include "services/gateway/routing/slow_workers.h"
#include "services/gateway/workers/worker_health.h"

namespace continuo::gateway {

// The connection to one worker. Immutable; the stubs are thread-safe.
struct WorkerChannel {
  WorkerChannel(const std::string& address, std::shared_ptr<grpc::Channel> channel)
      : address(address),
        channel(channel),
        inference(v1::InferenceService::NewStub(channel)),
        worker(v1::WorkerService::NewStub(channel)) {}

  const std::string address;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::InferenceService::Stub> inference;
  const std::unique_ptr<v1::WorkerService::Stub> worker;
};

// Where a worker is, and the pool that it belongs to (PoolSpec).
struct WorkerAddress {
  WorkerAddress(std::string address, int pool = 0, double weight = 1)  // NOLINT: by address alone
      : address(std::move(address)), pool(pool), weight(weight) {}

  std::string address;
  int pool;
  double weight;
};

struct WorkerPoolOptions {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // Name in the workers' certificates; empty: their address.
  std::string tls_server_name;
  // A worker is silent when it has reported nothing for this long.
  absl::Duration max_silence = absl::Seconds(2);
  absl::Duration min_report_interval = absl::Milliseconds(100);
  absl::Duration max_report_interval = absl::Milliseconds(500);
  // Between attempts to reach a worker; doubles from min to max.
  absl::Duration min_reconnect = absl::Milliseconds(50);
  absl::Duration max_reconnect = absl::Seconds(1);
  // How long an address that has not said of which model it is may turn out to be of one that no
  // other has.
  absl::Duration settle_wait = absl::Seconds(30);
  // Called when a worker is lost: the addresses may have changed.
  std::function<void()> on_lost;
  // Called when it may have changed which workers take requests.
  std::function<void()> on_change;
};

// The workers: a channel to each address, its WatchLoad and its health followed for as long as it
// is listed or alive, and what they say written to the LoadView. A worker that left the list while
// it reports is draining. Thread-safe; one mutex, never held while calling out.
class WorkerPool {
 public:
  // Everything passed outlives the pool.
  WorkerPool(WorkerPoolOptions options, LoadView* view, Router* router, Timer* timer,
             const Clock* clock);
  // Ends all watches and waits for them.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // From the resolvers: all addresses there are now. An address in two pools belongs to the first.
  // `complete`: each resolver has answered once.
  void SetAddresses(const std::vector<WorkerAddress>& addresses, bool complete = true);

  // Null where the address is no longer known.
  std::shared_ptr<WorkerChannel> Find(const std::string& address) const;

  // What is served now, sorted by name: of each known model what its workers say of it, the
  // fingerprints and number of those that take requests.
  std::vector<v1::Model> Models() const;

 private:
  class LoadWatch;
  // One address.
  struct Worker {
    std::shared_ptr<WorkerChannel> channel;
    bool listed = true;
    int pool = 0;
    double pool_weight = 1;
    absl::Duration first_time;  // when it became known
    bool told = false;          // of which model it is
    bool tried = false;         // it has reported or failed once
    bool has_report = false;    // of the current watch
    bool silent = false;        // what it had is lost, until it reports again
    int failures = 0;           // watches in a row without a report
    uint64_t watch_id = 0;      // of the current watch; others are late
    std::shared_ptr<LoadWatch> watch;
    std::shared_ptr<HealthWatch> health;  // beside `watch`
    bool not_serving = false;             // says `health`
    bool hung = false;                    // until `health` says SERVING again
    // When it last began to say NOT_SERVING over there or SERVING in its reports.
    absl::Duration contradicts_time;
    std::string incarnation;
    std::string models_of;  // the incarnation whose models were asked for
    // When the current watch was opened or last reported, as Clock::Elapsed tells it.
    absl::Duration heard_time;
    std::map<std::string, std::shared_ptr<const WorkerLoad>> loads;  // by model
  };
  // Shared with callbacks that outlive a watch, and with timers that outlive the pool.
  struct Alive;

  void StartWatch(const std::string& address);
  void OnReport(const std::string& address, uint64_t watch_id, const v1::WatchLoadResponse& report);
  void OnHealth(const std::string& address, uint64_t watch_id, bool not_serving);
  // Serving by its reports and not by its health, for longer than a drain needs to show in both.
  bool IsHung(const Worker& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnWatchEnd(const std::string& address, uint64_t watch_id, const grpc::Status& status);
  void OnModels(const std::string& address, const std::string& incarnation,
                const grpc::Status& status, const v1::ListModelsResponse& response);
  // Marks silent and hung workers; runs again after a while.
  void CheckWorkers();
  // Calls `method` later, unless the pool is gone by then.
  void After(absl::Duration delay, std::function<void()> method);

  void TellChange();
  static void MarkHung(Worker& worker);
  // Whether any load is another one now.
  static bool MarkLost(Worker& worker, bool refused);
  // As LoadSnapshot::discovery_complete has it.
  bool IsSettled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether that is another one now.
  bool Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WorkerPoolOptions options_;
  LoadView* const view_;
  Router* const router_;
  Timer* const timer_;
  const Clock* const clock_;
  const std::shared_ptr<Alive> alive_;

  mutable absl::Mutex mutex_;
  bool resolved_ ABSL_GUARDED_BY(mutex_) = false;
  bool settled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration check_time_ ABSL_GUARDED_BY(mutex_);  // of the last CheckWorkers
  // Since when this process has run without a pause.
  absl::Duration awake_time_ ABSL_GUARDED_BY(mutex_);
  SlowWorkers slow_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> known_models_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, v1::Model> models_ ABSL_GUARDED_BY(mutex_);  // as last told
  uint64_t next_watch_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;  // watches and queries that have not ended
};

}  // namespace continuo::gateway
