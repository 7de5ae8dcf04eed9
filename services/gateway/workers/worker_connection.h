// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "continuo/v1/worker.pb.h"
#include "services/gateway/workers/health_watch.h"
#include "services/gateway/workers/load_watch.h"
#include "services/gateway/workers/worker_channel.h"

namespace continuo::gateway {

// One connection to a worker: its WatchLoad and, for a worker whose reports do not tell its health,
// a health watch beside it. It ends with its WatchLoad. Thread-safe.
class WorkerConnection {
 public:
  // Called from gRPC's threads. Reports come one at a time and before `on_end`, and so does the
  // health; the two may come at the same time.
  struct Callbacks {
    std::function<void(const v1::WatchLoadResponse&)> on_report;
    // Only of a worker whose reports do not tell it. False also once the health watch has ended.
    std::function<void(bool not_serving)> on_health;
    // Called once, when the WatchLoad has ended; the health watch is being cancelled.
    std::function<void(const grpc::Status&)> on_end;
    // Called once, last of all: no callback runs any more.
    std::function<void()> on_done;
  };

  WorkerConnection(const std::shared_ptr<WorkerChannel>& channel,
                   const v1::WatchLoadRequest& request, Callbacks callbacks);

  // Called once.
  void Start();
  // Ends the calls soon.
  void Cancel();

 private:
  // Outlives the connection until the calls are done.
  struct Shared;

  std::shared_ptr<HealthWatch> health_;
  std::shared_ptr<LoadWatch> load_;
};

}  // namespace continuo::gateway
